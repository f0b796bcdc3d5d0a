import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import jax

from cgpfl.data import make_data
from cgpfl.models import as_model

if jax.default_backend() != "cpu":  # numbers worked out by hand have more digits than tf32
    jax.config.update("jax_default_matmul_precision", "highest")


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forget compiled programs after each file: hundreds of them in one process exhaust its memory maps."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def digits():
    """A small federation: 8 clients, 2 rotation contexts."""
    return make_data("digits", "rotation", clients=8, contexts=2, seed=0)


@pytest.fixture(scope="session")
def mlr(digits):
    return as_model("mlr", digits.shape, digits.classes)
