"""From frames, files, folders and other libraries' data sets to a federation: names kept, nothing guessed silently."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from cgpfl import FederatedData, make_data
from cgpfl.data.labels import encode, guess_task
from cgpfl.errors import CgpflError


def shops(n=60, seed=0):
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "shop": random.choice(["north", "south", "west"], n),
            "price": random.normal(100, 20, n),
            "colour": random.choice(["red", "blue"], n),
            "day": pd.date_range("2024-01-01", periods=n).astype(str),
            "part": np.where(np.arange(n) % 4 == 0, "test", "train"),
        }
    )
    return frame.assign(sold=2 * frame["price"] + (frame["colour"] == "red"))


FRAME = shops()
READ = {"client": "shop", "label": "sold", "ignore": ["day", "part"]}


def test_a_frame():
    data = FederatedData.from_frame(FRAME, **READ)
    assert (data.task, data.names, data.classes) == ("regression", ("north", "south", "west"), 1)
    assert (data.columns.names, data.columns.label) == (("price", "colour"), "sold")
    x, y = data.client(data.place("south"), "test")
    both = x.assign(sold=y).merge(
        FRAME.astype({"price": np.float32, "sold": np.float32}), on=["price", "colour", "sold"]
    )
    assert len(both) == len(x) > 0
    assert set(both["shop"]) == {"south"}
    train = np.concatenate([data.inputs(i)[0] for i in range(3)])
    np.testing.assert_allclose(train[:, 0].mean(), 0, atol=1e-5)  # over the whole federation's training samples
    np.testing.assert_allclose(train[:, 0].std(), 1, atol=1e-5)
    objective = data.form().objective
    assert objective.spread[0] == pytest.approx(np.concatenate([data.inputs(i)[1] for i in range(3)]).std(), rel=1e-5)


def test_every_way_to_the_same_federation(tmp_path):
    """A frame, a CSV, a Parquet file, a folder of files and a folder of folders."""
    frame = FRAME.drop(columns=["day", "part"])
    frame.to_csv(tmp_path / "all.csv", index=False)
    frame.to_parquet(tmp_path / "all.parquet", index=False)
    (tmp_path / "files").mkdir()
    for name, own in frame.groupby("shop"):
        own.drop(columns="shop").to_csv(tmp_path / "files" / f"{name}.csv", index=False)
        (tmp_path / "folders" / name).mkdir(parents=True)
        own.drop(columns="shop").to_parquet(tmp_path / "folders" / name / "data.parquet", index=False)
    table = {"client": "shop", "label": "sold"}
    wanted = FederatedData.from_frame(frame, **table)
    found = [
        make_data(str(tmp_path / "all.csv"), **table),
        make_data(str(tmp_path / "all.parquet"), "own", **table),
        FederatedData.from_folder(tmp_path / "files", label="sold"),
        make_data(str(tmp_path / "folders"), label="sold"),
    ]
    for data in found:
        assert (data.names, data.columns.names) == (wanted.names, wanted.columns.names)
        for i in range(3):
            for ours, theirs in zip(data.inputs(i), wanted.inputs(i), strict=True):
                np.testing.assert_allclose(np.sort(ours, axis=0), np.sort(theirs, axis=0), rtol=1e-5, atol=1e-5)


def test_test_parts_may_be_given_or_the_latest():
    given = FederatedData.from_frame(FRAME, client="shop", label="sold", held="part", ignore=["day"], validation=0.2)
    held = FRAME[(FRAME["part"] == "test") & (FRAME["shop"] == "north")]
    assert sorted(given.client(0, "test")[1]) == pytest.approx(sorted(held["sold"].astype(np.float32)))
    late = FederatedData.from_frame(FRAME, client="shop", label="sold", time="day", ignore=["part"])
    own = FRAME[FRAME["shop"] == "west"].sort_values("day")["sold"].to_numpy(np.float32)
    last = round(len(own) / 4)
    assert sorted(late.client(2, "test")[1]) == pytest.approx(sorted(own[-last:]))


def test_labels_are_any_values():
    for values, names in (
        (["cat", "dog", "cat"], ("cat", "dog")),
        ([True, False, True], (False, True)),
        ([1.0, 0.0, 999.0], (0, 1, 999)),
        ([7, 3, 7], (3, 7)),
    ):
        codes, found = encode(values, "y")
        assert found == names
        assert [found[c] for c in codes] == values
    x = np.zeros((40, 2), np.float32)
    data = FederatedData.from_arrays(x, np.where(np.arange(40) % 10 == 9, 999, np.arange(40) % 10), np.arange(40) // 20)
    assert (data.classes, data.labels[-1], data.y.max()) == (10, 999, 9)
    assert set(data.client(0)[1]) <= {*range(9), 999}
    assert json.loads(json.dumps(data.summary()))["labels"][-1] == 999


def test_the_task_is_guessed_from_labels():
    assert guess_task(np.array(["a", "b"])) == "classification"
    assert guess_task(np.array([0.0, 1.0])) == "classification"
    assert guess_task(np.arange(200) % 120) == "classification"  # 0..119
    assert guess_task(np.arange(18, 90)) == "regression"
    assert guess_task(np.array([0.5, 1.0])) == "regression"
    assert guess_task(np.eye(3, dtype=int)) == "multi-label"


def test_data_with_clients_keeps_them(tmp_path):
    """No rotated images, no invented clients, unless they are asked for."""
    random = np.random.default_rng(0)
    path = tmp_path / "mine.npz"
    arrays = {"x": random.random((40, 4, 4)).astype(np.float32), "y": np.arange(40) % 2}
    np.savez(path, **arrays, client=np.array(["b", "a"])[np.arange(40) % 2])
    data = make_data(str(path))
    assert (data.clients, data.names, data.about["split"]) == (2, ("a", "b"), "own")
    np.testing.assert_array_equal(data.x, arrays["x"])
    assert make_data(str(path), "rotation", clients=5, contexts=2).clients == 5
    with pytest.raises(CgpflError, match=r"clients = 40: data .* has its own 2 clients"):
        make_data(str(path), clients=40)
    np.savez(path, **arrays)
    with pytest.raises(CgpflError, match="does not say whose a sample is; name a table's column by client, or a split"):
        make_data(str(path))


def test_small_clients_are_left_out_if_asked():
    frame = pd.concat([FRAME, FRAME[:2].assign(shop="tiny")])
    data = FederatedData.from_frame(frame, **READ, smallest=5)
    assert data.names == ("north", "south", "west")
    assert data.about["left_out"] == "1 of 4 clients, with fewer than 5 samples"
    with pytest.raises(CgpflError, match="client tiny: has 1 samples; needs at least one each to train and test"):
        FederatedData.from_frame(frame[:-1], **READ)


def test_images_in_folders(tmp_path):
    random = np.random.default_rng(0)
    for client in ("anna", "bert"):
        for kind in ("cat", "dog"):
            (tmp_path / client / kind).mkdir(parents=True)
            for i in range(3):
                Image.fromarray(random.integers(0, 255, (5, 4), np.uint8)).save(tmp_path / client / kind / f"{i}.png")
    data = FederatedData.from_folder(tmp_path)
    assert (data.names, data.labels, data.x.shape, data.x.dtype) == (
        ("anna", "bert"),
        ("cat", "dog"),
        (12, 5, 4),
        np.uint8,
    )
    assert FederatedData.from_folder(tmp_path, size=8).shape == (8, 8)
    Image.fromarray(np.zeros((3, 3), np.uint8)).save(tmp_path / "bert" / "dog" / "odd.png")
    with pytest.raises(CgpflError, match="bring them to one size by size = 32"):
        FederatedData.from_folder(tmp_path)
    (tmp_path / "bert" / "dog" / "odd.png").write_bytes(b"no image")
    with pytest.raises(CgpflError, match=r"odd.png: cannot be read as an image"):
        FederatedData.from_folder(tmp_path)


def test_texts_in_a_folder(tmp_path):
    """Windows of characters, and the character that follows each."""
    (tmp_path / "one.txt").write_text("abcabcabc")
    (tmp_path / "two.txt").write_text("cbacbacba")
    data = FederatedData.from_folder(tmp_path, length=3, test=0.5)
    assert (data.task, data.labels, data.shape, data.classes) == ("next-token", ("a", "b", "c"), (3,), 3)
    np.testing.assert_array_equal(data.x[0], [0, 1, 2])
    np.testing.assert_array_equal(data.y[0], [1, 2, 0])
    with pytest.raises(CgpflError, match=r"one.txt: has 9 characters; needs 65, or a smaller length"):
        FederatedData.from_folder(tmp_path)


class Set:
    """As torch's: items by number."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


class Columnar:
    """As Hugging Face's: columns by name."""

    def __init__(self, **columns):
        self.columns, self.column_names, self.features = columns, list(columns), {}

    def __getitem__(self, name):
        return self.columns[name]


def test_other_libraries_sets():
    x, y = np.arange(24, dtype=np.float32).reshape(8, 3), np.arange(8) % 2
    pairs = FederatedData.from_clients({"a": (x, y), "b": (x + 1, y)})
    items = FederatedData.from_clients(
        {"a": Set(list(zip(x, y, strict=True))), "b": Set(list(zip(x + 1, y, strict=True)))}
    )
    named = FederatedData.from_clients(
        {"a": Columnar(img=list(x), label=y), "b": Columnar(img=list(x + 1), label=y)}, label="label"
    )
    assert pairs.digest == items.digest == named.digest
    assert pairs.names == items.names == ("a", "b")
    with pytest.raises(CgpflError, match="label 'label': the data set has columns img, kind"):
        FederatedData.from_clients([Columnar(img=list(x), kind=y)])
    with pytest.raises(CgpflError, match="column 'word': holds no numbers"):
        FederatedData.from_clients([Columnar(word=["a"] * 8, label=y)])
    with pytest.raises(CgpflError, match=r"must be pairs \(sample, label\)"):
        FederatedData.from_clients([Set([1, 2, 3])])


def classes_of(names, *y):
    """A data set as Hugging Face's, whose classes have names."""
    rng = np.random.default_rng(0)
    made = Columnar(img=list(rng.normal(size=(len(y), 3))), label=list(y))
    made.features = {"label": SimpleNamespace(names=list(names))}
    return made


def test_names_of_classes_are_labels_in_their_order():
    def labels(*clients, **more):
        data = FederatedData.from_clients(list(clients), **more)
        return data.labels, sorted({label for i in range(data.clients) for label in data.client(i)[1]})

    assert labels(classes_of(["dog", "cat"], *[0, 1] * 4)) == (("dog", "cat"), ["cat", "dog"])
    numbers = [str(i) for i in range(11)]
    ten = classes_of(numbers, *[0, 2, 10, 1] * 3)
    assert labels(ten, ten) == (("0", "1", "2", "10"), ["0", "1", "10", "2"])  # those that there are
    assert labels(ten, classes=11)[0] == tuple(numbers)
    words = (np.ones((4, 3), np.float32), np.array(["emu", "ant", "cat", "dog"]))
    assert labels(classes_of(["dog", "cat"], *[0, 1] * 4), words)[0] == ("dog", "cat", "ant", "emu")
    other = classes_of(["cat", "dog"], 1, 1, 1, 0)  # one's 1 is the other's 0
    assert labels(other, test=[classes_of(["dog", "cat"], 0, 0)]) == (("cat", "dog"), ["cat", "dog"])


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (classes_of("abc", 0, 1, 3), r"client 1: label 3 at sample 2 has no name; labels must be 0..2 \(a, b, c\)"),
        (classes_of("abc", 0, -1, 2), r"client 1: label -1 at sample 1 is none, remove such .* be 0..2 \(a, b, c\)"),
        (classes_of("abc"), "client 1: the data set is empty"),
        ((np.ones((3, 3)), np.arange(3)), "must be words, or numbers, .*; some are names of classes, a, b, c"),
    ],
)
def test_what_is_wrong_with_named_classes_is_one_line(others, message):
    with pytest.raises(CgpflError, match=message) as error:
        FederatedData.from_clients([classes_of("abc", *[0, 1, 2] * 3), others])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client": "branch"}, "has no column 'branch' for client; it has shop, price"),
        ({"label": "gain"}, "has no column 'gain' for label"),
        ({"ignore": ["weather"]}, "has no column 'weather' to ignore"),
        ({"held": "colour"}, "column 'colour': row 0 is .*; must be test or train"),
        ({"time": "colour"}, "column 'colour': is no time"),
        ({"task": "ranking"}, "task 'ranking'"),
        ({"task": "next-token"}, "learned from texts or arrays of tokens"),
        ({"encoding": "hash"}, "encoding = 'hash': must be one-hot or codes"),
        ({"colour": "red"}, "from_frame: no setting 'colour'"),
        ({"ignore": ["day", "part", "price", "colour"]}, "has no columns beside sold"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_line(change, message):
    with pytest.raises(CgpflError, match=message) as error:
        FederatedData.from_frame(FRAME, **READ | change)
    assert "\n" not in str(error.value)


def test_what_is_wrong_with_a_folder_is_one_line(tmp_path):
    def fails(message, **settings):
        with pytest.raises(CgpflError, match=message) as error:
            make_data(str(tmp_path), **settings)
        assert "\n" not in str(error.value)

    fails("is empty; must hold a file, or a folder, a client")
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    FRAME.drop(columns="price").to_csv(tmp_path / "b.csv", index=False)
    fails(r"b.csv: lacks column 'price', which .*a.csv has", label="sold")
    fails("has a file or folder a client; leave it out", label="sold", client="shop")
    (tmp_path / "b.csv").write_text("")
    fails(r"b.csv: cannot be read as a table \(EmptyDataError\)", label="sold")
    (tmp_path / "b.csv").unlink()
    fails("say by label which column is predicted; it has shop, price")
    (tmp_path / "c.npz").write_bytes(b"no archive")
    fails("has files of several kinds, .csv, .npz", label="sold")
    (tmp_path / "sub").mkdir()
    fails("has files .* and folders")


def test_columns_go_by_name_wherever_a_model_is_used(tmp_path):
    """Permuted columns give the same predictions; a missing one is refused, whoever asks."""
    from cgpfl import export, predict, run

    data = FederatedData.from_frame(FRAME, **READ)
    result = run("local", data, rounds=3)
    x, y = data.client(1, "test")
    model = result.personal_model("south")
    wanted = model.predict(x)
    np.testing.assert_allclose(model.predict(x[["colour", "price"]]), wanted)
    assert result.scores is not None
    folder = export(result, tmp_path / "south", client="south").path
    found = predict(folder, x.assign(sold=y)[["sold", "colour", "price"]])
    np.testing.assert_allclose(found["prediction"], wanted, rtol=1e-5)
    np.testing.assert_allclose(predict(folder, x, using="onnx")["prediction"], wanted, rtol=1e-4)
    with pytest.raises(CgpflError, match="lacks 'price'; its columns must be price, colour"):
        predict(folder, x[["colour"]])
    with pytest.raises(IndexError, match="client east: there are clients north, south, west"):
        result.personal_model("east")


def test_given_test_samples_are_not_trained_on(tmp_path):
    FRAME.to_csv(tmp_path / "all.csv", index=False)
    with pytest.raises(
        CgpflError, match=r"held: .* says which samples are tested; that goes with its own clients alone"
    ):
        make_data(str(tmp_path / "all.csv"), "iid", clients=3, label="sold", held="part", ignore=["day"])


def test_days_and_months_are_not_confused():
    days = ["13/01/2020", "02/01/2020", "05/02/2020", "20/02/2020"]
    frame = pd.DataFrame({"c": ["a"] * 4, "x": range(4), "y": [0.5, 1.5, 2.5, 3.5], "t": days})
    data = FederatedData.from_frame(frame, client="c", label="y", time="t", test=0.5)
    assert sorted(data.client(0, "test")[1]) == [2.5, 3.5]
    with pytest.raises(CgpflError, match="'02/01/2020': day or month first"):
        FederatedData.from_frame(frame.assign(t="02/01/2020"), client="c", label="y", time="t")


def test_numbers_may_be_names():
    x, y = np.zeros((12, 2), np.float32), np.arange(12) % 2
    data = FederatedData.from_arrays(x, y, np.arange(12) // 4 + 1)
    assert (data.names, data.place(1), data.place("3")) == (("1", "2", "3"), 0, 2)
    with pytest.raises(CgpflError, match="client 0: there are clients 1, 2, 3"):
        data.place(0)


def test_other_seeds_give_inputs_of_the_same_form(tmp_path):
    """A rare word, and a cell that is missing, wherever the split puts them; rows that nobody uses, too."""
    frame = FRAME.assign(colour=["rare", *FRAME["colour"][1:]], price=[np.nan, *FRAME["price"][1:]])
    frame.drop(columns=["shop", "day", "part"]).to_csv(tmp_path / "all.csv", index=False)
    made = [make_data(str(tmp_path / "all.csv"), "iid", clients=3, label="sold", share=0.5, seed=s) for s in range(4)]
    assert {d.columns.inputs for d in made} == {
        ("price", "price missing", "colour = blue", "colour = rare", "colour = red")
    }


def test_numbers_that_hardly_vary_keep_their_digits():
    """Milliseconds of an hour of 2024: float32 alone would leave twenty different ones."""
    time = 1.7e12 + np.random.default_rng(0).uniform(0, 3.6e6, 60).round()
    data = FederatedData.from_frame(FRAME.assign(time=time), **READ)
    x = np.concatenate([data.inputs(i, p)[0][:, -1] for i in range(3) for p in ("train", "test")])
    assert len(np.unique(x)) == 60
    assert abs(x).max() < 3
    shown = np.concatenate([data.client(i, p)[0]["time"] for i in range(3) for p in ("train", "test")])
    np.testing.assert_allclose(np.sort(shown), np.sort(time), atol=1)


def test_columns_may_be_numbers_and_lists():
    frame = pd.DataFrame(np.random.default_rng(0).random((20, 4)))
    data = FederatedData.from_frame(frame.assign(c="a"), client="c", label=["1", "3"], ignore="0")
    assert (data.task, data.classes, data.columns.names) == ("regression", 2, ("2",))
    assert data.columns.encode(frame, "frame").shape == (20, 1)
    yes = pd.DataFrame({"c": ["a"] * 8, "x": range(8), "p": [True, False] * 4, "q": [False, True] * 4})
    assert FederatedData.from_frame(yes, client="c", label="p,q").task == "multi-label"


def test_units_are_of_one_form():
    x, y, c = np.zeros((8, 3), np.float32), np.arange(8) % 2, np.zeros(8, int)
    whole, mixed = (FederatedData.from_arrays(x, y, c, scale=s, shift=0) for s in (2, np.array([1.0, 2, 3])))
    assert (type(whole.scale), mixed.shift.shape, mixed.scale.dtype) == (float, (3,), np.float32)
    assert whole.digest == FederatedData.from_arrays(x, y, c, scale=2.0).digest


def test_tokens_are_within_the_vocabulary():
    x, y = np.array([[9, 1, 2, 3]] * 8), np.array([[1, 2, 3, 4]] * 8)
    with pytest.raises(CgpflError, match=r"x: token 9; tokens must be 0..4, or say classes = 10"):
        FederatedData.from_arrays(x, y, np.zeros(8, int), task="next-token")
    assert FederatedData.from_arrays(x, y, np.zeros(8, int), task="next-token", classes=10).classes == 10


def test_clients_labels_are_of_one_kind(tmp_path):
    x = np.zeros((8, 2), np.float32)
    with pytest.raises(CgpflError, match="labels are of different kinds"):
        FederatedData.from_clients([(x, np.arange(8) % 2), (x, np.array(["a", "b"] * 4))])
    with pytest.raises(CgpflError, match="test: has no client 'b'"):
        FederatedData.from_clients({"a": (x, np.arange(8) % 2), "b": (x, np.arange(8) % 2)}, test={"a": (x, x[:, 0])})
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(8) % 2)
    assert make_data(str(tmp_path), task="regression").task == "regression"
    with pytest.raises(CgpflError, match="label: is for tables"):
        make_data(str(tmp_path), label="y")
