"""Words and the page, of a study made by hand."""

import json

import pandas as pd
import pytest

from cgpfl.advice.words import command
from cgpfl.data import make_data
from made_advice import advice, federation, frame


@pytest.fixture(scope="module")
def contexts():
    return advice()


def test_contexts_are_recommended_and_explained(contexts):
    assert contexts.recommended == "contexts"
    text = str(contexts)
    assert text.startswith("2 contexts: clients that are alike share a model.")
    assert "2 contexts of 4, 4 clients, found in 10 of 10 folds" in text
    assert "age: much higher" in text
    assert "8 of 8 clients gain by contexts, 0 lose" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("score", "k", "said"),
    [
        ({"alone": 0.95}, 8, "Train alone: each client on its own samples."),
        ({"one model": 0.9, "one model, tuned": 0.9}, 1, "Pool everything: one model for everybody."),
        ({"contexts + personal": 0.97}, 2, "2 contexts, and a model of its own for each client."),
        ({}, 1, "One model for everybody, trained by CGPFL-Auto."),
        ({"contexts + personal": 0.97}, 1, "One context, and a model of its own for each client."),
        ({"alone": 0.9, "one model": 0.9}, 1, "both do as well as the best"),
    ],
)
def test_other_advice(score, k, said):
    text = str(advice(score, k))
    assert said in text
    assert max(map(len, text.splitlines())) <= 80


def test_alone_names_who_would_gain_by_sharing():
    found = advice({"alone": 0.95}, 8)
    assert found.shared in ("contexts", "contexts + personal")
    assert "the best way that shares" in " ".join(str(found).split())
    assert "Alone does as well with what there is" in found.curve.words()
    assert (found.clients["gain"] < 0).all()


def test_everything_is_saved(contexts, tmp_path):
    page = contexts.save(tmp_path / "out")
    assert {p.name for p in page.parent.iterdir()} == {
        *("advice.html", "advice.txt", "advice.json", "ways.csv", "clients.csv", "differences.csv")
    }
    facts = json.loads((page.parent / "advice.json").read_text())
    assert facts["recommended"] == "contexts"
    assert len(pd.read_csv(page.parent / "ways.csv")) == 5
    text = page.read_text()
    assert "The simplest way whose" in text
    assert "http" not in text.replace("http-equiv", "")


def test_names_are_escaped(tmp_path):
    table = frame().assign(ward=lambda t: t["ward"].str.replace("ward", "<b>"))
    text = advice(data=federation(table)).save(tmp_path).read_text()
    assert "<b> 0" not in text
    assert "&lt;b&gt; 0" in text


def test_the_command_runs_the_same_data(tmp_path):
    file = tmp_path / "a b.csv"
    frame().to_csv(file, index=False)
    data = make_data(str(file), client="ward", label="outcome", smallest=6, ignore=("noise",))
    said = command(data, "dnn", "one model", 0.5, 40)
    assert said == (
        f"cgpfl run --data '{file}' --set data.smallest=6 --client ward --label outcome "
        "--set 'data.ignore=[\"noise\"]' --model dnn --method fedavg --set fedavg.rate=0.5 --rounds 40"
    )
    assert command(federation(), "mlr", "alone", 0.1, 40) == ""
