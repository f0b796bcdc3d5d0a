"""The restricted reader of pickled .npy files: what numpy wrote comes back, and nothing is run."""

import io
import os
import pickle

import numpy as np
import pytest

from cgpfl.data.pickled import read_npy


def npy(value):
    """As np.save writes an object."""
    file = io.BytesIO()
    np.save(file, np.array(value, dtype=object), allow_pickle=True)
    return file.getvalue()


def header(pickled):
    """A .npy file of one object whose pickle is given."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": ()})
    return file.getvalue() + pickled


class Runs:
    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


@pytest.mark.parametrize("protocol", [2, 4])
def test_arrays_and_plain_values_come_back(protocol):
    """Protocol 2 holds bytes as text for _codecs.encode, as the watch's file does."""
    rows = np.arange(6.0).reshape(3, 2)
    value = {
        "X": [rows, np.asfortranarray(rows), rows.astype(">f4")],
        "y": np.array([1, -2], np.int16),
        "on": np.array([True, False]),
        "names": ("a", None, 1.5, 7),
    }
    found = read_npy(header(pickle.dumps(np.array(value, dtype=object), protocol)))
    assert list(found) == list(value)
    assert found["names"] == value["names"]
    for a, b in zip([*found["X"], found["y"], found["on"]], [*value["X"], value["y"], value["on"]], strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


def test_what_numpy_saves_itself():
    assert read_npy(npy({"a": np.arange(3)}))["a"].tolist() == [0, 1, 2]


def test_nothing_is_run(tmp_path):
    made = tmp_path / "made"
    with pytest.raises(ValueError, match=r"asks for posix.system; only arrays and plain values are read"):
        read_npy(npy({"x": Runs(os.system, f"touch {made}")}))
    assert not made.exists()


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        (pickle.dumps(Runs(eval, "1"), 2), "asks for __builtin__.eval"),
        (pickle.dumps(Runs(np.load, "x")), "asks for numpy.load"),
        (pickle.dumps(np.float64(1)), "asks for numpy"),  # a scalar of NumPy's has a function of its own
        (pickle.dumps(np.array(["a"])), "an array of U1; must be of numbers"),
        (pickle.dumps(np.array([{}], dtype=object)), "an array of O8; must be of numbers"),
        (b"\x80\x02cnumpy\nndarray\n(tR.", "not callable"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.", "encoded as 'hex'"),
        (b"\x80\x02c_codecs\nencode\n.", "holds a function"),
        (b"\x80\x02P1\n.", "pickle: "),
        (b"\x80\x02]q\x00h\x00a.", "recursion"),  # a list that holds itself
        (b"\x80\x02", "pickle: "),
    ],
)
def test_whatever_else_is_refused(pickled, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        read_npy(header(pickled))
    assert "\n" not in str(caught.value)


def test_bytes_that_do_not_fill_an_array_are_refused():
    whole = pickle.dumps(np.arange(4, dtype=np.int16), 3)
    assert whole.count(b"K\x04\x85") == 1
    with pytest.raises(ValueError, match=r"holds 4 numbers for an array \(5,\)"):
        read_npy(header(whole.replace(b"K\x04\x85", b"K\x05\x85")))


def test_an_array_of_numbers_is_no_object():
    file = io.BytesIO()
    np.save(file, np.arange(3))
    with pytest.raises(ValueError, match=r"a .npy file of int64 \(3,\); must be one object"):
        read_npy(file.getvalue())
