import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cgpfl.data import make_data
from cgpfl.models import as_model


@pytest.fixture(scope="session")
def digits():
    """A small federation: 8 clients, 2 rotation contexts."""
    return make_data("digits", "rotation", clients=8, contexts=2, seed=0)


@pytest.fixture(scope="session")
def mlr(digits):
    return as_model("mlr", digits.shape, digits.classes)
