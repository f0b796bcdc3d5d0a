import pytest


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Tests share a few cores, where PyTorch's threads mostly wait for each other."""
    monkeypatch.setattr("benchmarks.bench.rivals.cores", lambda: 1)
