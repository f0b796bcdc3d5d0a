"""print(data) is a summary."""

import numpy as np

from cgpfl.data import FederatedData


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


def test_names_and_labels():
    x, y = np.zeros((8, 2), np.float32), np.array(["cat", "dog"])[np.arange(8) % 2]
    data = FederatedData.from_clients(dict.fromkeys("abcdef", (x, y)))
    lines = str(data).splitlines()
    assert lines[2].endswith("inputs 2 (float32), 2 classes: cat, dog")
    assert lines[-1] == "  names: a, b, c, d, e and 1 more"
    assert data.summary()["names"] == list("abcdef")
    numbers = FederatedData.from_clients({"a": (x, np.arange(8) / 3)})
    assert str(numbers).splitlines()[2].endswith("1 number to predict")
