import dataclasses
import hashlib

import numpy as np
import pytest

from cgpfl.data import SPLITS, FederatedData, make_data
from cgpfl.data.federated import IndexTable
from cgpfl.errors import CgpflError

X = np.arange(60, dtype=np.float32).reshape(30, 2)
Y = np.arange(30) % 3


def test_from_arrays_keeps_samples_with_their_client():
    owner = np.arange(30) % 4
    data = FederatedData.from_arrays(X, Y, owner, test=0.3, validation=0.2, seed=1)
    assert data.clients == 4
    assert data.classes == 3
    for i in range(4):
        parts = [t.parts()[i] for t in (data.train, data.test, data.validation)]
        assert sorted(np.concatenate(parts)) == np.flatnonzero(owner == i).tolist()
        assert len(parts[1]) == round(0.3 * (owner == i).sum())


def test_from_clients_with_own_test_sets():
    train = [(X[:5], Y[:5]), (X[5:12], Y[5:12])]
    test = [(X[12:14], Y[12:14]), (X[14:20], Y[14:20])]
    data = FederatedData.from_clients(train, test=test, context=[1, 0], scale=2.0, shift=1.0)
    np.testing.assert_array_equal(data.inputs(1)[0], X[5:12] * 2 + 1)
    np.testing.assert_array_equal(data.client(1)[0], X[5:12])  # as they were given
    np.testing.assert_array_equal(data.client(1, "test")[1], Y[14:20])
    np.testing.assert_array_equal(data.context, [1, 0])
    np.testing.assert_array_equal(data.train.counts, [5, 7])


def test_bytes_stay_bytes():
    data = FederatedData.from_arrays(X.astype(np.uint8), Y, np.arange(30) % 3)
    assert data.x.dtype == np.uint8


def nan(x):
    x = x.copy()
    x[7, 1] = np.nan
    return x


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FederatedData.from_arrays(nan(X), Y, Y), "NaN or infinite values, first at sample 7"),
        (lambda: FederatedData.from_arrays(X, Y[:-1], Y[:-1]), r"x \(30, 2\) and y \(29,\)"),
        (lambda: FederatedData.from_arrays(X[:, 0], Y, Y), r"must be x \[n, features"),
        (lambda: FederatedData.from_arrays(X, [*Y[:-1], None], Y), "y: row 29 has no label"),
        (lambda: FederatedData.from_arrays(X, np.array([*Y[:-1], "a"], object), Y), "are words and numbers"),
        (lambda: FederatedData.from_arrays(X, Y, Y, task="guess"), "task 'guess': must be auto, classification"),
        (lambda: FederatedData.from_arrays(X, np.where(Y == 1, np.nan, Y), Y, task="regression"), "has no target"),
        (lambda: FederatedData.from_arrays(X, np.eye(3)[Y] * 2, Y, task="multi-label"), "must be 0 or 1 each"),
        (lambda: FederatedData.from_arrays(X, Y, Y, task="next-token"), r"next tokens are integers \[n, T\]"),
        (lambda: FederatedData.from_arrays(X, Y, Y, names=("a", "a", "b")), "2 different ones for 3 clients"),
        (lambda: FederatedData.from_arrays(X.astype(str), Y, Y), "must be numbers"),
        (lambda: FederatedData.from_arrays(X, Y - 1, Y, classes=3), "labels out of range: -1"),
        (lambda: FederatedData.from_arrays(X, Y, Y, classes=2), r"labels out of range: 2; must be 0\.\.1"),
        (lambda: FederatedData.from_arrays(X, Y, Y[:-3]), "needs one client a sample"),
        (lambda: FederatedData.from_arrays(X, Y, Y, test=1.0), "sum to less than 1"),
        (lambda: FederatedData.from_arrays(X, Y, Y, context=[0, 1]), r"shape \(2,\); must be one number a client"),
        (lambda: FederatedData.from_arrays(X, Y + 2**32, Y, classes=3), "labels out of range: 4294967298"),
        (lambda: FederatedData.from_clients([(X, Y)], test=[(X, Y)], validation=0.2), "only goes with a share"),
        (lambda: FederatedData.from_clients([]), "list is empty"),
        (lambda: FederatedData.from_clients([(X, Y), (X[:0], Y[:0])]), "client 1: has 0 samples"),
        (lambda: FederatedData.from_clients([(X, Y), (X[:, :1], Y)]), "different shapes"),
        (lambda: FederatedData.from_clients([(X, Y)], test=[]), "has 0 clients; must be 1"),
        (lambda: FederatedData.from_parts(X, Y, [np.arange(9), np.arange(8, 20)]), "sample 8 is used 2 times"),
        (
            lambda: FederatedData(X, Y, 3, IndexTable.of([np.arange(5)]), IndexTable.of([np.array([99])])),
            "sample 99 does not exist",
        ),
    ],
)
def test_bad_arrays_say_what_and_where(make, message):
    with pytest.raises(CgpflError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("rule", [s for s in SPLITS if s != "own"])
def test_every_split_of_digits(rule):
    data = make_data("digits", rule, clients=20, seed=0, validation=0.1)
    assert data.clients == 20
    assert data.digest == make_data("digits", rule, clients=20, seed=0, validation=0.1).digest
    assert data.digest != make_data("digits", rule, clients=20, seed=1, validation=0.1).digest
    assert (data.validation.counts > 0).all()


def test_digest_sees_every_part():
    data = make_data("digits", "rotation", clients=8, seed=0)
    x = data.x.copy()
    x[0, 0, 0] += 1
    changes = [
        {"x": x},
        {"y": (data.y + 1) % 10},
        {"train": data.test, "test": data.train},
        {"context": 1 - data.context % 2},
        {"scale": 2.0},
        {"ids": data.ids[::-1].copy()},
    ]
    assert len({data.digest, *(dataclasses.replace(data, **c).digest for c in changes)}) == 7


def test_digest_ignores_padding():
    data = make_data("digits", "rotation", clients=8, seed=0)
    wider = IndexTable(np.pad(data.train.rows, ((0, 0), (0, 9))), data.train.counts)
    assert dataclasses.replace(data, train=wider).digest == data.digest


def test_permute_keeps_each_clients_samples_and_id():
    data = make_data("digits", "dirichlet", clients=6, seed=0)
    moved = data.permute([3, 1, 0, 2, 5, 4])
    np.testing.assert_array_equal(moved.client(0)[0], data.client(3)[0])
    assert moved.ids[0] == 3


def test_npz_files(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, x=X, y=Y, client=np.arange(30) % 2)
    own = make_data(str(path), "own")
    assert own.clients == 2
    assert make_data(str(path), "iid", clients=3).clients == 3
    np.savez(path, x=X, label=Y)
    with pytest.raises(CgpflError, match="has arrays x, label; must have x and y"):
        make_data(str(path), "iid", clients=3)
    path.write_text("no arrays")
    with pytest.raises(CgpflError, match="cannot be read"):
        make_data(str(path), "iid", clients=3)
    with pytest.raises(CgpflError, match="does not exist"):
        make_data(str(tmp_path / "none.npz"), "iid", clients=3)
    with pytest.raises(CgpflError, match=r"no data 'mnits'; did you mean mnist\? there are digits"):
        make_data("mnits")


def test_npz_with_objects_is_not_unpickled(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object), y=np.zeros(1, int))
    with pytest.raises(CgpflError, match="cannot be read"):
        make_data(str(path), "iid", clients=1)


def test_digest_is_computed_once(monkeypatch):
    """And anew for what was made from it."""
    data, hashed, true = make_data("digits", "iid", clients=5, seed=0), [], hashlib.sha256
    monkeypatch.setattr("cgpfl.data.federated.hashlib.sha256", lambda: hashed.append(1) or true())
    assert data.digest == data.digest == data.summary()["split_hash"]
    assert len(hashed) == 1
    assert dataclasses.replace(data, scale=2 * data.scale).digest != data.digest
