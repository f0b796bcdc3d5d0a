"""Labels of several files, and numbers too large to be any."""

import numpy as np
import pandas as pd
import pytest

from cgpfl.data import FederatedData
from cgpfl.data.build import make_data
from cgpfl.data.labels import encode, one_kind
from cgpfl.errors import CgpflError

X, WHOSE = np.zeros((16, 2), np.float32), np.arange(16) % 2


def test_a_label_that_is_a_word_in_one_file_and_a_number_in_another_is_one_label(tmp_path):
    for name, labels in (("north", ["1", "2"] * 6), ("south", ["1", "2", "x"] * 4), ("west", ["1.0", "2.0"] * 6)):
        rows = "".join(f"{i},{label}\n" for i, label in enumerate(labels))
        (tmp_path / f"{name}.csv").write_text(f"a,label\n{rows}")
    data = make_data(str(tmp_path))
    assert data.labels == ("1", "2", "x")
    north, south, west = (data.client(i)[1].tolist() for i in range(3))
    assert set(north) == {"1", "2"} == set(west)
    assert set(south) <= {"1", "2", "x"}


def test_numbers_alone_stay_numbers_and_a_missing_one_stays_missing():
    assert one_kind([1, 2]).tolist() == [1, 2]
    mixed = one_kind(np.array([1, "a", None, True, 2.0], object))
    assert mixed.tolist() == ["1", "a", None, True, "2"]
    frame = pd.DataFrame({"a": np.arange(16.0), "client": WHOSE, "label": ["1", "2"] * 4 + [1, 2] * 3 + [1, None]})
    with pytest.raises(CgpflError, match="row 15 has no label"):
        FederatedData.from_frame(frame, client="client", label="label")


def test_known_labels_of_the_other_kind_are_found_by_their_text():
    assert encode(["1", "0", 1], "y", (0, 1))[0].tolist() == [1, 0, 1]
    assert encode([1, "x"], "y", ("1", "x"))[0].tolist() == [0, 1]
    assert encode([1, "1"], "y", (1, "1"))[0].tolist() == [0, 1]  # each, where both are known
    with pytest.raises(CgpflError, match="label True at sample 0"):
        encode([True], "y", (0, 1))


@pytest.mark.parametrize("digits", [30, 300, 5000])  # Python itself refuses to print the last
@pytest.mark.parametrize("task", ["auto", "classification"])
def test_a_label_of_hundreds_of_digits_is_one_line(digits, task):
    y = np.array([10**digits, 2] * 8, object)
    with pytest.raises(CgpflError, match="row 0: a label is ") as error:
        FederatedData.from_arrays(X, y, WHOSE, task=task)
    assert len(str(error.value)) < 120


def test_targets_of_hundreds_of_digits_are_one_line():
    y = np.array([10**400, 2] * 8, object)
    with pytest.raises(CgpflError, match="found a number of some 400 digits"):
        FederatedData.from_arrays(X, y, WHOSE, task="regression")
    with pytest.raises(CgpflError, match="found a number of some 400 digits"):
        FederatedData.from_arrays(X, np.stack([y, y], axis=1), WHOSE)


def test_such_a_label_in_a_file_is_one_line(tmp_path):
    rows = "".join(f"{i},{'ab'[i % 2]},{'9' * 300 if i % 3 else 2}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"x,client,label\n{rows}")
    with pytest.raises(CgpflError, match="row 1: a label is a number of some 300 digits"):
        make_data(str(tmp_path / "t.csv"))
    (tmp_path / "t.csv").write_text(f"x,client,label\n{rows}".replace("9" * 300, "1e400"))
    with pytest.raises(CgpflError, match="row 1: a label is inf"):
        make_data(str(tmp_path / "t.csv"))
