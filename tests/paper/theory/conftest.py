import numpy as np
import pytest

from cgpfl.data import FederatedData
from cgpfl.models import as_model


@pytest.fixture(scope="session")
def tiny():
    """Six clients in two contexts, 12 to 17 samples of 5 features, 3 classes: small enough for dense Hessians."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(2, 5, 3))
    clients = []
    for i in range(6):
        x = rng.normal(size=(16 + i, 5)).astype(np.float32)
        clients.append((x, np.argmax(x @ w[i % 2] + 0.3 * rng.normal(size=(16 + i, 3)), axis=1)))
    return FederatedData.from_clients(clients, test=0.25, context=[i % 2 for i in range(6)], classes=3)


@pytest.fixture(scope="session")
def tiny_mlr(tiny):
    return as_model("mlr", tiny.shape, tiny.classes)
