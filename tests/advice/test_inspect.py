"""Every trouble is found in a table that has it, and nothing in one that has none."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cgpfl
from cgpfl.cli import app
from cgpfl.data.inspection import findings
from made_advice import federation, frame


def told(table, **more):
    return [f.what for f in findings(federation(table, **more))]


def test_nothing_is_wrong_with_a_clean_table():
    assert told(frame()) == []
    assert "Nothing was found" in str(cgpfl.inspect(federation()))


def test_nothing_is_wrong_with_digits():
    assert findings(cgpfl.make_data("digits", "iid", clients=5)) == []


def change(name):
    table, draw = frame(), np.random.default_rng(9)
    ward = table["ward"]
    if name == "label":
        table["code"] = np.where(table["outcome"] == "ill", "x", "y")
    elif name == "units":
        table.loc[ward == "ward 3", "age"] *= 1000
    elif name == "missing":
        table.loc[table.index % 4 == 0, "age"] = np.nan
    elif name == "never":
        table.loc[ward == "ward 2", "age"] = np.nan
    elif name == "id":
        table["number"] = draw.permutation(len(table))
    elif name == "word id":
        table["code"] = [f"patient {i}" for i in range(len(table))]
    elif name == "constant":
        table["unit"] = "mm"
    elif name == "who":
        table["region"] = np.where(ward.str[-1].astype(int) < 4, "north", "south")
    elif name == "one class":
        table.loc[ward == "ward 5", "outcome"] = "ill"
    elif name == "copies":
        table = pd.concat([table, table[:20].assign(ward="ward 9")], ignore_index=True)
    elif name == "torn":
        other = table[:5].assign(outcome=table["outcome"][:5].map({"ill": "well", "well": "ill"}))
        table = pd.concat([table, other], ignore_index=True)
    elif name == "tiny":
        table = table[(ward != "ward 1") | (table.index % 20 == 0)]
    elif name == "half":
        table = pd.concat([table, frame(7).assign(ward="ward 0")], ignore_index=True)
    return table


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("label", "Column 'code' gives the label away: it alone tells 100 % of them"),
        ("units", "Column 'age' is quite different with ward 3"),
        ("missing", "Column 'age': 25.0% missing"),
        ("never", "Column 'age': 12.5% missing; always with ward 2"),
        ("id", "Column 'number' looks like an id: 320 values in 320 samples"),
        ("word id", "Column 'code' looks like an id: 320 values in 320 samples"),
        ("constant", "Column 'unit' is the same everywhere"),
        ("who", "Column 'region' is constant with each client"),
        ("one class", "1 of 8 clients have one label only: ward 5"),
        ("copies", "40 samples are with several clients (most: ward 0, ward 9)"),
        ("torn", "10 samples are identical to one with another label"),
        ("tiny", "1 of 8 clients have fewer than 5 samples: ward 1"),
        ("half", "ward 0 holds 56% of all samples"),
    ],
)
def test_it_is_found(name, said):
    assert any(line.startswith(said) for line in told(change(name)))


def test_test_samples_in_training_are_counted():
    """Of 20 rows that are there twice, the pairs that the cut put on both sides."""
    table = pd.concat([frame(), frame()[:20]], ignore_index=True)
    data = federation(table)
    whole = pd.concat([data.client(i, part)[0].assign(part=part) for i in range(8) for part in ("train", "test")])
    both = whole.groupby(["age", "noise"])["part"].agg(lambda p: set(p) == {"train", "test"}).sum()
    assert both > 0
    assert any(line.startswith(f"{both} of ") for line in told(table))


def test_an_id_does_not_hide_copies():
    table = change("copies")
    table["number"] = np.arange(len(table))
    assert any(line.startswith("40 samples are with several clients") for line in told(table))


def test_inputs_that_are_not_scaled():
    table = frame().assign(age=lambda t: 1000 * t["age"])
    assert any(line.startswith("Inputs are not scaled") for line in told(table, standardise=False))
    assert told(table) == []


def test_a_target_in_other_units():
    table = frame().assign(outcome=lambda t: 2.5 * t["age"] + 3)
    assert told(table, task="regression")[0].startswith("Column 'age' gives the label away")


def test_the_most_harmful_comes_first():
    found = findings(federation(change("label").assign(unit="mm")))
    assert [f.word for f in found] == ["breaks", "worth knowing"]


def test_the_command_writes_a_page(tmp_path):
    file = tmp_path / "wards.csv"
    change("who").to_csv(file, index=False)
    flags = ["data", "inspect", str(file), "--client", "ward", "--label", "outcome"]
    result = CliRunner().invoke(app, [*flags, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0
    assert "matters  Column 'region'" in result.stdout
    lines = [line for line in result.stdout.splitlines() if not line.startswith("page:")]
    assert max(map(len, lines)) <= 80
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        *("inspection.html", "inspection.txt", "clients.png", "columns.png")
    }
    again = CliRunner().invoke(app, [*flags, "--out", str(tmp_path / "out")])
    assert isinstance(again.exception, cgpfl.CgpflError)
