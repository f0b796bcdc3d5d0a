import pytest

from cgpfl.data import load, sources
from cgpfl.data.fetch import prepared
from cgpfl.paper import cells, tuning

SETS = ("mnist", "fashion-mnist", "cifar10")


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """The paper's sets by name, each of them digits; called with another source, they are that. Nothing is fetched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CGPFL_CACHE", str(tmp_path_factory.mktemp("cache")))

        def use(source):
            forget()
            for name in SETS:
                patch.setitem(sources._kept, prepared(name), source)

        use(load("digits"))
        yield use
    forget()


def forget():
    """Federations of recipes that name a set are kept only as long as it is that set."""
    cells._federation.cache_clear()
    cells._digest.cache_clear()


@pytest.fixture
def by_hand(monkeypatch):
    """Validation accuracies are those that ``choices`` gave: no federation is built for them."""

    def validated(runs, setting):
        return float("nan") if runs.diverged[0] is not None else runs.settings["validation"]

    monkeypatch.setattr(tuning, "validated", validated)
