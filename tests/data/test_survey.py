"""What clients say of their tables, who fits, and what comes of it; worked out by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from cgpfl.data.columns import Statistics
from cgpfl.data.survey import Survey, agreeing, common_form, survey
from cgpfl.data.tables import Reading
from cgpfl.errors import CgpflError

READING = Reading(label="y")


def said(*, x=None, y=("a", "b"), w=None, **more):
    """A client with a column of numbers x, perhaps one of words w, and labels y."""
    x = Statistics(2, 1.0, 2.0) if x is None else x
    words = {} if w is None else {"w": Statistics(2, values=frozenset(w), is_number=False)}
    return Survey({"x": x, **words}, "classification", tuple(y), **more)


def test_a_client_says_statistics_of_its_training_rows(tmp_path):
    pd.DataFrame({"x": [1, 3, None], "w": ["u", "v", "u"], "y": ["b", "a", "b"]}).to_csv(tmp_path / "train.csv")
    pd.DataFrame({"x": [9.0], "w": ["z"], "y": ["c"]}).to_csv(tmp_path / "test.csv")
    reading = Reading(label="y", ignore=("Unnamed: 0", "not there"))
    found = survey(tmp_path, reading, counted=True)
    assert found.columns["x"] == Statistics(2, 2.0, 2.0, missing=1)
    assert found.columns["w"] == Statistics(3, values=frozenset("uvz"), is_number=False)
    assert (found.labels, found.counts) == (("a", "b", "c"), (1, 2, 0))
    assert Survey.of_plain(json.loads(json.dumps(found.plain()))) == found
    assert survey(tmp_path, reading).counts == ()


def test_the_form_is_that_of_all_rows_together():
    # 0, 2 and 4, 4, 7: mean 3.4, squares around it 11.56 + 1.96 + 2 · 0.36 + 12.96 = 27.2, std sqrt(5.44).
    two = [said(x=Statistics(2, 1.0, 2.0), w="uv"), said(x=Statistics(3, 5.0, 6.0, missing=1), w="t", y=("c", "a"))]
    form = common_form(two, ["p", "q"], READING)
    x, w = form.columns.columns
    assert (x.mean, x.std, x.missing) == (pytest.approx(3.4), pytest.approx(5.44**0.5), True)
    assert w.values == ("t", "u", "v")
    assert (form.labels, form.classes, form.shape) == (("a", "b", "c"), 3, (5,))
    assert form.scale[0] == pytest.approx(5.44**-0.5)
    numbers = common_form([said(y=(1,)), said(y=(0,))], ["p", "q"], READING)
    assert (numbers.labels, numbers.classes) == ((), 2)


def test_classes_weigh_by_all_clients_counts():
    two = [said(counts=(1, 2)), said(y=("b",), counts=(1,))]
    weights = common_form(two, ["p", "q"], READING, "balanced").objective.weights
    assert weights == pytest.approx((4 / (2 * 1), 4 / (2 * 3)))


def test_most_clients_decide():
    words = Statistics(2, values=frozenset("u"), is_number=False)
    each = {0: said(x=words), 1: said(), 2: said(w="u"), 3: said(), 4: said(x=Statistics(missing=2)), 5: said(y=(0, 1))}
    fit, wrong = agreeing(each)
    assert fit == [1, 3, 4]  # a column that is all missing is of either kind
    assert wrong == {
        0: "column 'x' has words, the others' numbers",
        2: "has column 'w' more",
        5: "its labels are numbers, the others' words",
    }
    assert agreeing({0: said(w="u"), 1: said()})[0] == [0]  # of equally many, those with the first


def test_labels_are_put_together_unless_most_have_the_same():
    apart = {0: said(y="ab"), 1: said(y="bc"), 2: said(y="cd")}
    assert agreeing(apart) == ([0, 1, 2], {})
    same = {0: said(y="abz"), 1: said(y="ab"), 2: said(y="ab"), 3: said(y="a")}
    assert agreeing({**same, 4: said(y="ab")}) == ([1, 2, 3, 4], {0: "label 'z' is nobody else's"})


@pytest.mark.parametrize(
    "change",
    [
        {"columns": {}}, {"columns": {"x": {"count": -1}}}, {"task": "other"}, {"labels": []}, {"labels": [[1]]},
        {"counts": [1]}, {"moments": [{}]}, {"columns": None},
        {"columns": {"x": said().plain()["columns"]["x"] | {"mean": float("nan")}}},
    ],
)  # fmt: skip
def test_whatever_a_node_says_is_checked(change):
    with pytest.raises(CgpflError, match="statistics: "):
        Survey.of_plain(said().plain() | change)
    with pytest.raises(CgpflError, match="statistics: "):
        Survey.of_plain([])


def test_names_of_persons_do_not_leave(tmp_path):
    names = pd.DataFrame({"name": [f"p{i}" for i in range(30)], "x": np.arange(30), "y": [0, 1] * 15})
    names.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(CgpflError, match="column 'name': nearly every row has a value of its own"):
        survey(tmp_path / "t.csv", READING)
    asked = survey(tmp_path / "t.csv", Reading(label="y", categorical=("name",)))
    assert len(asked.columns["name"].values) == 30
    names.assign(y=names["name"]).drop(columns="name").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(CgpflError, match="nearly every row has a label of its own"):
        survey(tmp_path / "t.csv", READING)


def test_whole_numbers_that_are_too_many_for_classes():
    two = [said(y=range(1, 41)), said(y=range(41, 81))]
    with pytest.raises(CgpflError, match="80 different whole numbers in all; say task = classification or regression"):
        common_form(two, ["p", "q"], READING)


def test_several_labels_at_once():
    each = [Survey({"x": Statistics(2, 1.0, 2.0)}, "multi-label")] * 2
    form = common_form(each, ["p", "q"], Reading(label="cough, fever"))
    assert (form.labels, form.classes, form.objective.task) == (("cough", "fever"), 2, "multi-label")
