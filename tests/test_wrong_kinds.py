"""Python calls with the wrong kind of argument: a CgpflError of one line, where it was given."""

import numpy as np
import pytest

import cgpfl
from cgpfl.data import FederatedData, Form
from cgpfl.errors import CgpflError, short
from cgpfl.experiment.result import PersonalModel

QUICK = {"rounds": 1, "progress": False}
SMALL = {"clients": 4}


def run(data=None, **settings):
    return lambda: cgpfl.run("local", SMALL if data is None else data, **QUICK, **settings)


def compare(data=None, **settings):
    return lambda: cgpfl.compare(["local"], SMALL if data is None else data, **{"out": "nowhere", **QUICK, **settings})


def made(**settings):
    return lambda: cgpfl.make_data(**settings)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (run(FederatedData), "data: the class FederatedData is no FederatedData"),
        (run(dict), "data: the class dict"),
        (run(3), "data: int"),
        (run(b"digits"), "data: bytes"),
        (run("a/nosuch"), "does not exist"),
        (run("nosuch.csv"), "does not exist"),
        (run("x" * 357_030), "no data 'xxx"),
        (run(label=3), "label 3: must be text"),
        (run(label=[]), "label"),
        (run(label="a" * 400), "at most 100"),
        (run(out=3), "out: int is no path"),
        (run(seed="3"), "seed = '3'"),
        (run(seed=[1]), "seed"),
        (run(seed=None), "seed = None"),
        (run(callbacks=3), "callbacks: 3"),
        (compare(out=b"a"), "out: bytes is no path"),
        (compare(seeds="3"), "seeds = '3'"),
        (compare(seeds=[1, 2]), "seeds"),
        (compare(dict, seeds=1), "data: the class dict"),
        (made(source=3), "data: source = 3: must be text"),
        (made(source=None), "source"),
        (made(split_by=3), "split = 3: must be text"),
        (made(clients="many"), "clients = 'many': must be a whole number or \"auto\""),
        (made(clients=[1]), "clients"),
        (made(clients=2**70), "clients"),
        (made(seed=-1), "seed = -1: must be from 0"),
        (made(seed=1.5), "seed = 1.5: must be a whole number"),
        (made(share="all"), "share = 'all': must be a number"),
        (made(test="x"), "test"),
        (made(contexts="x"), "contexts"),
        (lambda: FederatedData.from_arrays(3, 4, 5), "client"),
        (lambda: FederatedData.from_clients(3), "clients: int is no list"),
        (lambda: FederatedData.from_frame(3, client="a", label="b"), "int is no table"),
        (lambda: FederatedData(1, 2, 3, 4, 5), "data: x is a int"),
        (lambda: cgpfl.CGPFL(contexts=-1), "cgpfl: contexts = -1: must be"),
        (lambda: cgpfl.FedAvg(rate="fast"), "fedavg: rate = 'fast'"),
        (lambda: cgpfl.FedAvg(rate=float("nan")), "rate = nan"),
        (lambda: cgpfl.FedAvg(rate=10**400), "rate = an integer of about 401 digits"),
        (lambda: cgpfl.Result.load(3), "folder: int is no path"),
        (lambda: cgpfl.load_model(3), "model: int is no path"),
        (lambda: cgpfl.personalize(3, "x"), "run: int is no path"),
        (lambda: cgpfl.predict(3, "x"), "model: int is no path"),
    ],
)
def test_one_line(call, said):
    with pytest.raises(CgpflError) as error:
        call()
    assert said in str(error.value)
    assert len(str(error.value)) < 700
    assert "\n" not in str(error.value)


def test_constructors_take_what_is_meant():
    """NumPy's numbers, 1 for 1.0, an array of a sweep."""
    assert cgpfl.FedAvg(rate=np.float32(0.5)).rate == 0.5
    assert cgpfl.CGPFL(contexts=np.int64(3)).contexts == 3
    assert cgpfl.FedAvg(rate=1).rate == 1
    assert cgpfl.FedAvg(rate=np.array([0.1, 0.2])).rate.shape == (2,)


@pytest.mark.parametrize("x", [np.zeros((3, 5)), np.zeros(4), np.zeros((0, 4)), 3])
def test_a_wrong_shape_to_predict(x):
    model = PersonalModel({}, None, Form((4,), 2))
    with pytest.raises(CgpflError, match=r"data: x has shape .*; must be \('n', 4\)"):
        model.predict(x)


def test_messages_are_short():
    assert short("a: b; must be c") == "a: b; must be c"
    value = ["x" * 10] * 5000
    for text in (f"data: {value!r}: must be d", f"k = {'y' * 357_030!r}: must be d", "[" * 400_000 + "; must be d"):
        found = short(text)
        assert len(found) <= 1010
        assert found.endswith("must be d")
    assert len(short(f"k = {'y' * 5000!r}: must be d")) < 230
    path = "/".join(["folder"] * 60)
    assert path in short(f"out {path}: exists already")  # a path is of use whole
