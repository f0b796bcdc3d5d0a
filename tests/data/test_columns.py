"""Columns of a table: statistics that clients can send, encoding by name, and the way back."""

import numpy as np
import pandas as pd
import pytest

from cgpfl.data.columns import Columns, Statistics, cells, fitted, measure, merged
from cgpfl.errors import CgpflError

FRAME = pd.DataFrame(
    {"age": [20.0, 40.0, np.nan, 30.0], "kind": ["b", "a", None, "b"], "yes": [True, False, True, True]}
)


def columns(frame=FRAME, categorical=(), **settings):
    return fitted(measure(cells(frame, categorical)), **settings)


def test_by_hand():
    """Age: mean 30, variance (100 + 100 + 0)/3; a missing one is the mean, and said to be missing."""
    found = columns()
    assert found.inputs == ("age", "age missing", "kind = (missing)", "kind = a", "kind = b", "yes")
    x = found.encode(FRAME[["yes", "kind", "age"]], "frame")  # in another order: by name
    np.testing.assert_allclose(x, [[20, 0, 0, 0, 1, 1], [40, 0, 0, 1, 0, 0], [30, 1, 1, 0, 0, 1], [30, 0, 0, 0, 1, 1]])
    scale, shift = found.units()
    spread = (200 / 3) ** 0.5
    np.testing.assert_allclose((x * scale + shift)[:, 0], [-10 / spread, 10 / spread, 0, 0], atol=1e-6)
    np.testing.assert_allclose((x * scale + shift)[:, 1:5], x[:, 1:5])
    back = found.decode(x)
    pd.testing.assert_frame_equal(back[["age"]], FRAME[["age"]])
    pd.testing.assert_series_equal(back["kind"], FRAME["kind"])


def test_codes_are_for_embeddings():
    found = columns(encoding="codes")
    assert (found.inputs, found.categories) == (("age", "age missing", "kind", "yes"), (0, 0, 4, 0))
    x = found.encode(FRAME.assign(kind=["b", "a", None, "new"]), "frame")
    assert x[:, 2].tolist() == [2, 1, 0, 3]  # what was never seen has a code of its own
    assert found.decode(x)["kind"].isna().tolist() == [False, False, True, True]


def test_clients_together_are_one_table():
    """Counts, means and squares of parts give those of the whole, to the last digits of float64."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(1e6, 1.0, 500), "b": random.choice(["x", "y", "z"], 500)})
    frame.loc[::7, "a"] = np.nan
    parts = np.array_split(np.arange(500), 9)
    whole, table = measure(cells(frame)), cells(frame)
    total = merged([measure(table, p, p) for p in parts], [str(i) for i in range(9)])
    for name in whole:
        assert (total[name].count, total[name].missing, total[name].values) == (
            whole[name].count,
            whole[name].missing,
            whole[name].values,
        )
    assert total["a"].mean == pytest.approx(np.nanmean(frame["a"]), rel=1e-14)
    assert total["a"].std == pytest.approx(np.nanstd(frame["a"]), rel=1e-9)


def test_what_does_not_vary_is_not_scaled():
    assert Statistics(3, 5.0, 0.0).std == 1
    assert Statistics().std == 1
    found = columns(pd.DataFrame({"a": [2.0, 2.0]}))
    np.testing.assert_allclose(
        found.encode(pd.DataFrame({"a": [2.0]}), "frame") * found.units()[0] + found.units()[1], 0
    )


def test_plain_and_back():
    found = columns(encoding="codes", standardise=False)
    assert Columns.of_plain(found.plain()) == found
    assert found.units() == (1.0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="age"), "new: lacks 'age'; its columns must be age, kind, yes"),
        (lambda f: f.assign(more=1), "new: has 'more'; its columns must be"),
        (lambda f: f.assign(age=["x", "y", "z", "u"]), "column 'age': must be numbers, found 'x'"),
        (lambda f: f.assign(age=np.inf), "column 'age': row 0 is inf"),
        (lambda f: f.assign(yes=[1, None, 0, 1]), "column 'yes': row 1 is missing; it never was before"),
        (lambda f: f.assign(kind=[[1], 2, 3, 4]), "column 'kind': a cell is a list"),
    ],
)
def test_other_tables_are_refused(change, message):
    with pytest.raises(CgpflError, match=message) as error:
        columns().encode(change(FRAME), "new")
    assert "\n" not in str(error.value)


def test_clients_must_agree():
    one, two = measure(cells(FRAME)), measure(cells(FRAME.assign(age="old")))
    with pytest.raises(CgpflError, match="client b: column 'age' has words, other clients have numbers"):
        merged([one, two], ["a", "b"])
    with pytest.raises(CgpflError, match="client b: lacks column 'yes', which a has"):
        merged([one, measure(cells(FRAME.drop(columns="yes")))], ["a", "b"])
    with pytest.raises(CgpflError, match="holds times; leave it out by ignore"):
        cells(pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}))
    with pytest.raises(CgpflError, match="categorical: data has no column 'colour'"):
        cells(FRAME, ["colour"])
    with pytest.raises(CgpflError, match=r"column 'id': has 1,001 values; leave it out by ignore"):
        columns(pd.DataFrame({"id": [f"n{i}" for i in range(1001)]}))
