import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")
sys.path.insert(0, str(Path(__file__).parent))

from cgpfl.data import make_data
from cgpfl.models import as_model


@pytest.fixture(scope="session")
def four():
    """Four clients, two contexts."""
    return make_data("digits", "rotation", clients=4, contexts=2, share=0.3, seed=0)


@pytest.fixture(scope="session")
def model(four):
    return as_model("mlr", four.shape, four.classes)
