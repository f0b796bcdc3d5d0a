"""print(data) is a summary."""

from types import SimpleNamespace

import numpy as np

from cgpfl.data import FederatedData
from cgpfl.data.describe import described, facts_of


def test_a_federation_of_ones_own():
    parts = [(np.zeros((n, 2, 3), np.float32), np.arange(n) % 2) for n in (1200, 4)]
    data = FederatedData.from_clients(parts, test=0.25, context=[0, 1])
    assert (
        str(data)
        == repr(data)
        == (
            "FederatedData\n"
            "  clients: 2, with 3 to 900 training samples each\n"
            "  samples: 903 for training, 301 for test; inputs 2 × 3 (float32), 2 classes\n"
            "  true contexts: 2"
        )
    )


def test_names_and_public_samples(digits):
    fields = ("train", "test", "validation", "public", "x", "shape", "classes", "clients", "context", "about")
    named = SimpleNamespace(**{name: getattr(digits, name) for name in fields}, names=("a", "b", "c", "d", "e", "f"))
    lines = described(named).splitlines()
    assert lines[0] == "FederatedData: digits split by rotation"
    assert lines[-1] == "  names: a, b, c, d, e and 1 more"


def test_a_run_folder_has_the_names(digits):
    assert facts_of(digits) == digits.summary()  # nobody has one
    named = SimpleNamespace(names=("north", "south"), summary=lambda: {"clients": 2})
    assert facts_of(named) == {"clients": 2, "names": ["north", "south"]}
