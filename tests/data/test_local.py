"""One client's data from files."""

import numpy as np
import pandas as pd
import pytest

from cgpfl.data import Form
from cgpfl.data.local import files_of, load_local, read_samples
from cgpfl.errors import CgpflError


def form(classes=3, shape=(2, 3)):
    return Form(shape, classes, 0.5, -1.0)


X = np.arange(8 * 6, dtype=np.uint8).reshape(8, 2, 3)
Y = np.array([0, 1, 2, 0, 1, 2, 0, 1])


def frame(x=X, y=Y, label="label"):
    columns = [f"p{j}" for j in range(6)]
    return pd.DataFrame(x.reshape(len(x), -1), columns=columns).assign(**{label: y})


@pytest.fixture
def files(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    np.savez(tmp_path / "flat.npz", x=X.reshape(8, -1), y=Y.astype(float))
    frame().to_csv(tmp_path / "a.csv", index=False)
    frame(label="y")[["p0", "y", "p1", "p2", "p3", "p4", "p5"]].to_csv(tmp_path / "y.csv", index=False)
    frame().to_parquet(tmp_path / "a.parquet", index=False)
    return tmp_path


@pytest.mark.parametrize("name", ["a.npz", "flat.npz", "a.csv", "y.csv", "a.parquet"])
def test_every_kind_of_file_is_the_same_client(files, name):
    data = load_local(files / name, form(4))
    assert (data.clients, data.ids.tolist(), data.shape, data.classes) == (1, [0], (2, 3), 4)
    assert (data.train.counts[0], data.test.counts[0]) == (6, 2)
    x, y = data.client(0, "test")
    rows = data.test.parts()[0]
    np.testing.assert_array_equal(y, Y[rows])
    np.testing.assert_array_equal(x, X[rows])  # as they were given
    np.testing.assert_allclose(data.inputs(0, "test")[0], X[rows] * 0.5 - 1.0)
    same = load_local(files / "a.npz", form(4))
    np.testing.assert_array_equal(rows, same.test.parts()[0])  # the seed decides, not the kind of file


def test_images_stay_bytes(files):
    assert read_samples(files / "a.npz", form()).x.dtype == np.uint8
    assert read_samples(files / "a.csv", form()).x.dtype == np.float32


def test_the_cut_goes_by_seed_and_share(files):
    cuts = [load_local(files / "flat.npz", form(shape=(6,)), seed=s, test=0.5).test.parts()[0] for s in (0, 0, 1)]
    assert [len(c) for c in cuts] == [4, 4, 4]
    assert set(cuts[0]) == set(cuts[1]) != set(cuts[2])


def test_a_folder_of_train_and_test(tmp_path):
    np.savez(tmp_path / "train.npz", x=X[:5], y=Y[:5])
    assert files_of(tmp_path) == (tmp_path / "train.npz", None)  # one file: it is cut
    frame(X[5:], Y[5:]).to_csv(tmp_path / "test.csv", index=False)
    (tmp_path / "notes.txt").write_text("not data")
    data = load_local(tmp_path, form(3))
    np.testing.assert_array_equal(data.client(0)[1], Y[:5])
    np.testing.assert_array_equal(data.client(0, "test")[1], Y[5:])
    np.testing.assert_allclose(data.inputs(0, "test")[0], X[5:] * 0.5 - 1.0)


def test_labels_are_optional_where_nothing_is_learned(files):
    frame().drop(columns="label").to_csv(files / "none.csv", index=False)
    assert read_samples(files / "none.csv", form()).y is None
    with pytest.raises(CgpflError, match=r"none.csv: has no labels; a table needs a column label \(or y\)"):
        load_local(files / "none.csv", form(3))


def broken(folder, kind):
    """A file or folder that is wrong in one way."""
    path = folder / "bad.csv"
    good = frame()
    if kind == "features":
        good.drop(columns="p3").to_csv(path, index=False)
    elif kind == "range":
        frame(y=Y + 2).to_csv(path, index=False)
    elif kind == "half":
        frame(y=Y + 0.5).to_csv(path, index=False)
    elif kind == "words":
        frame(y=["cat"] * 8).to_csv(path, index=False)
    elif kind == "missing label":
        frame(y=[0, None, *Y[2:]]).to_csv(path, index=False)
    elif kind == "nan":
        good.astype({"p2": float}).replace({"p2": {8.0: np.nan}}).to_csv(path, index=False)
    elif kind == "text":
        good.assign(p1="red").to_csv(path, index=False)
    elif kind == "both":
        good.assign(y=Y).to_csv(path, index=False)
    elif kind == "no rows":
        good[:0].to_csv(path, index=False)
    elif kind == "one row":
        good[:1].to_csv(path, index=False)
    elif kind == "no bytes":
        path.write_bytes(b"")
    elif kind == "parquet":
        path = folder / "bad.parquet"
        path.write_bytes(b"not a table")
    elif kind == "npz":
        path = folder / "bad.npz"
        path.write_bytes(b"not an archive")
    elif kind == "no x":
        path = folder / "bad.npz"
        np.savez(path, images=X, y=Y)
    elif kind == "form":
        path = folder / "bad.npz"
        np.savez(path, x=X.transpose(0, 2, 1), y=Y)
    elif kind == "lengths":
        path = folder / "bad.npz"
        np.savez(path, x=X, y=Y[:3])
    elif kind == "suffix":
        path = folder / "bad.xlsx"
        path.write_bytes(b"")
    elif kind == "folder":
        np.savez(folder / "one.npz", x=X, y=Y)
        np.savez(folder / "two.npz", x=X, y=Y)
        path = folder
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("features", r"a sample has 5 features; must have shape \(2, 3\), or 6 features in that order"),
        ("range", r"label 3 at sample 1; labels must be 0..2"),
        ("half", r"label 0.5 at sample 0; labels must be 0..2"),
        ("words", r"label 'cat' at sample 0; labels must be 0..2"),
        ("missing label", r"row 1 has no label"),
        ("nan", r"x has NaN or infinite values, first at sample 1"),
        ("text", r"column 'p1' has type .*; features must be numbers"),
        ("both", r"has the columns label and y; only one"),
        ("no rows", r"has no samples"),
        ("one row", r"has 1 samples; needs at least one each to train and test"),
        ("no bytes", r"cannot be read as a table \(EmptyDataError\)"),
        ("parquet", r"cannot be read as a table"),
        ("npz", r"cannot be read as NumPy arrays"),
        ("no x", r"has arrays images \(8, 2, 3\), y \(8,\); must have x"),
        ("form", r"a sample has shape \(3, 2\); must have shape \(2, 3\)"),
        ("lengths", r"x \(8, 2, 3\) and y \(3,\)"),
        ("suffix", r"unknown kind of file '.xlsx'; must be .npz, .csv, .parquet"),
        ("missing", r"no such file or folder"),
        ("folder", r"has files one.npz, two.npz; must have train and test, or one file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, kind, message):
    path = broken(tmp_path, kind)
    with pytest.raises(CgpflError, match=message) as error:
        load_local(path, form(3))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
