"""Contexts in words, worked out from records that never were."""

import json

import numpy as np
import pytest

from browser import keep
from cgpfl.files import SUMS
from cgpfl.report.choice import choice
from cgpfl.report.figures import draw
from cgpfl.report.page import html, write_report
from cgpfl.report.read import read_run
from run_folders import make, write_records

AUTO = {"contexts": "auto", "prox": "auto", "folds": 5}


def records(sizes, *, trust=0.0, sure=0.98, most=20, k=None, unheard=0, **more):
    """The last two evaluations of CGPFL-Auto, with contexts of these sizes; ``k`` where it is not their number."""
    context = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    n = len(context)
    score = np.linspace(0.9, 0.8, most + 1, dtype=np.float32)
    last = {
        "context": context,
        "k": np.int32(len(sizes) if k is None else k),
        "score": score,
        "score_error": score / 100,
        "score_shared": score / 2,
        "score_personal": score / 4,
        "spread": np.array([0.5, 0.2, 0.3], np.float32),
        "agreement": np.float32(sure),
        "trust": np.broadcast_to(np.float32(trust), n),
        "heard": np.arange(n) >= unheard,
        **more,
    }
    return {name: np.stack([np.zeros_like(v), v]) for name, v in last.items()}


def test_what_is_measured_is_there():
    found = choice(records([14, 13, 13], trust=0.05), AUTO)
    assert (found.k, found.sizes, found.chosen, found.limit, found.alone) == (3, [14, 13, 13], True, 20, False)
    assert found.curve.columns.tolist() == ["k", "score", "error", "shared", "personal"]
    assert found.curve["k"].tolist() == [*range(1, 21), 40]
    np.testing.assert_allclose(found.curve["error"], found.curve["score"] / 100, rtol=1e-6)
    assert found.sure == pytest.approx(0.98)
    assert (found.between, found.within, found.noise) == pytest.approx((0.5, 0.2, 0.3))
    assert found.trust.shape == (40,)


AGAIN = "found again without a fifth of the samples: agreement 0.98"
SENTENCES = {
    "hardly": (
        ([14, 13, 13], {"trust": 0.05}),
        "3 contexts of 14, 13 and 13 clients; clients inside a context hardly differ: the context's model is used "
        f"nearly as it is; {AGAIN}",
    ),
    "equal": (
        ([10] * 4, {}),
        "4 contexts of 10 clients each; clients inside a context hardly differ: the context's model is used as it is; "
        f"{AGAIN}",
    ),
    "somewhat": (
        ([20, 20], {"trust": 0.3, "sure": 0.6}),
        "2 contexts of 20 clients each; clients inside a context differ somewhat: each client's model is its own, held "
        "near the context's; found again in part without a fifth of the samples: agreement 0.60",
    ),
    "much": (
        ([30, 10], {"trust": 0.5, "sure": 0.2}),
        "2 contexts of 30 and 10 clients; clients inside a context differ much: each keeps mostly its own model; "
        "hardly found again without a fifth of the samples: agreement 0.20",
    ),
    "alike": (([40], {}), "all 40 clients are alike: one context, whose model everybody uses as it is"),
    "one, apart": (
        ([40], {"trust": 0.7}),
        "one context of all 40 clients; clients inside it differ much: each keeps mostly its own model",
    ),
    "alone": (
        ([1] * 40, {"trust": 0.4}),
        "every client stands alone: nothing that clients share predicts what one of them does; each trains on its own",
    ),
    "many": (
        (range(3, 13), {"most": 12}),
        "10 contexts of 3 to 12 clients; clients inside a context hardly differ: the context's model is used as it is; "
        f"{AGAIN}",
    ),
    "empty": (
        ([5, 3], {"most": 4, "k": 4}),
        "4 contexts of 5 and 3 clients, 2 without any; clients inside a context hardly differ: the context's model is "
        f"used as it is; {AGAIN}",
    ),
    "warm-up": (
        ([8], {"score": np.zeros(5, np.float32)}),
        "contexts were not looked for yet: all 8 clients share one model",
    ),
}


@pytest.mark.parametrize("what", SENTENCES)
def test_the_sentence(what):
    (sizes, more), sentence = SENTENCES[what]
    assert choice(records(sizes, **more), AUTO).describe() == sentence


def test_who_stands_alone_uses_its_own_model():
    found = choice(records([1] * 40, trust=0.4), AUTO)
    assert found.alone
    assert found.trust.tolist() == [1.0] * 40


def test_the_sentence_claims_nothing_that_was_set():
    values = records([20, 20], trust=0.7)
    assert choice(values, AUTO | {"prox": 3.0, "folds": 7}).describe() == (
        "2 contexts of 20 clients each; clients inside a context differ much; found again without 1/7 of the samples: "
        "agreement 0.98"
    )
    given = choice(values, AUTO | {"contexts": [0] * 20 + [1] * 20})
    assert (given.chosen, given.curve, given.sure) == (False, None, None)
    assert given.describe().endswith("each keeps mostly its own model")
    assert choice(values, AUTO | {"contexts": 2}).sure == pytest.approx(0.98)


def test_methods_that_measure_less():
    plain = {"context": np.array([[0, 0, 0], [0, 2, 0]]), "k": np.array([1, 3])}
    ifca = choice(plain, {"contexts": 3})
    assert ifca.describe() == "3 contexts of 2 and 1 clients, 1 without any"
    assert (ifca.chosen, ifca.edges(), ifca.trust, ifca.sure, ifca.alone) == (False, [], None, None, False)
    split = choice({"context": np.array([[0, 1, 2]]), "k": np.array([3])}, {"most": 16})
    assert (split.chosen, split.alone, split.limit) == (True, True, 3)
    heur = {"complexity": np.array([[1.0, 2]]), "cost": np.array([[4.0, 1]]), "mu": np.array([2.0])}
    found = choice({"context": np.array([[0, 0, 1, 1]]), "k": np.array([2]), **heur}, {"contexts": "auto"})
    assert found.curve.to_dict("list") == {"k": [1, 2], "complexity": [1, 2], "cost": [4, 1], "error": [9, 4]}
    assert found.describe() == "2 contexts of 2 clients each"
    assert found.edges() == ["K is at its upper limit, 2: there may be more contexts"]
    nothing = {name: 0 * value for name, value in heur.items()}
    early = choice({"context": np.array([[0, 0, 0, 0]]), "k": np.array([1]), **nothing}, {"contexts": "auto"})
    assert early.curve is None
    assert early.edges() == ["contexts were not looked for: the run ended in the warm-up"]


EDGES = {
    "inside": (([14, 13, 13], {}), []),
    "one": (([40], {}), ["K = 1: no contexts found"]),
    "most": (([2] * 20, {}), ["K is at its upper limit, 20: there may be more contexts"]),
    "alone": (([1] * 40, {}), []),
    "few clients": (([3], {"most": 1}), ["K = 1: with 3 clients no more are looked for"]),
    "unheard": (([20, 20], {"unheard": 3}), ["no evidence about 3 of 40 clients: too few answers or samples"]),
    "warm-up": (
        ([8], {"score": np.zeros(5, np.float32), "unheard": 8}),
        ["contexts were not looked for: the run ended in the warm-up"],
    ),
}


@pytest.mark.parametrize("what", EDGES)
def test_edges(what):
    (sizes, more), lines = EDGES[what]
    found = choice(records(sizes, **more), AUTO).edges()
    assert found == lines
    assert all(len(f"cgpfl-auto: {line}") <= 80 for line in lines)


def run_folder(folder, values, notes=()):
    """A finished run of local training and CGPFL-Auto with these records, in words or without."""
    make(folder, clients=values["context"].shape[1], methods=("local", "cgpfl-auto"))
    kept = folder / "methods" / "cgpfl-auto"
    correct = np.full(values["context"].shape, 5, np.float32)
    write_records(kept, [1, 2], {"correct": correct, "shared_correct": correct, **values})
    summary = json.loads((folder / "summary.json").read_text())
    found = choice(values, AUTO)
    summary["methods"]["cgpfl-auto"]["contexts"] |= {"k": found.k, **found.facts()}
    summary["methods"]["cgpfl-auto"]["notes"] = list(notes)
    (folder / SUMS).unlink(missing_ok=True)  # changed on purpose
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.mark.pictures
@pytest.mark.parametrize("sizes", [[3, 3, 2], [1] * 8], ids=["contexts", "alone"])
def test_a_report_explains(tmp_path, sizes):
    values = records(sizes, trust=0.3, most=4)
    folder = run_folder(tmp_path / "run", values, ["contexts <do> not help"])
    alone = len(sizes) == 8
    found = read_run(folder)["methods"][1]["contexts"]
    assert found["curve"]["k"] == [1, 2, 3, 4, 8]
    assert found["curve"]["score"] == pytest.approx(values["score"][-1].tolist(), rel=1e-4)
    assert found["trust"] == pytest.approx([1.0 if alone else 0.3] * 8)
    assert (found["alone"], found["between"], len(found["groups"])) == (alone, 0.5, 0 if alone else 3)
    page = html([folder])
    said = choice(values, AUTO).describe().replace("'", "&#x27;")
    assert f"<li><b>cgpfl-auto</b>: {said}</li>" in page
    assert "<li><b>cgpfl-auto</b>: contexts &lt;do&gt; not help</li>" in page
    assert "choosing-k-cgpfl-auto.png" in [path.name for path in draw(folder)]


def test_a_method_that_goes_on_is_explained_by_its_records(tmp_path):
    values = records([3, 3, 2], trust=0.3, most=4)
    whole = read_run(run_folder(tmp_path / "whole", values))["methods"][1]["contexts"]
    folder = run_folder(tmp_path / "run", values)
    (folder / "summary.json").unlink()
    about = {"seed": 0, "data": {"clients": 8, "true_contexts": 3}, "model": {"name": "mlr"}}
    events = [("opened", "", 0, about), ("started", "cgpfl-auto", 0, {"rounds": 9, "settings": AUTO})]
    events.append(("evaluated", "cgpfl-auto", 2, {"accuracy": 0.5, "k": 3}))
    lines = [dict(zip(("kind", "method", "round", "values"), event, strict=True)) for event in events]
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    now = read_run(folder)
    assert now["state"] == "running"
    assert now["methods"][0]["contexts"] == whole


@pytest.mark.parametrize(("sizes", "scheme"), [([3, 3, 2], "light"), ([1] * 8, "dark")], ids=["contexts", "alone"])
def test_the_page_shows_it(opened, tmp_path, sizes, scheme):
    folder = run_folder(tmp_path / "run", records(sizes, trust=0.3, most=4), ["K is odd"])
    page = opened(write_report([folder], tmp_path / "report.html"), scheme=scheme)
    page.evaluate("refresh(true)")
    alone = len(sizes) == 8
    said = page.locator("[data-key='found/run'] .chart").text_content()
    assert said.startswith("Every client stands alone" if alone else "3 contexts of 3, 3 and 2 clients")
    assert said.endswith("K is odd")
    data = "key => document.querySelector(`[data-key='${key}'] .chart`).data"
    curve, apart, star = page.evaluate(data, "k/run")
    assert (len(curve["x"]), len(curve["error_y"]["array"]), len(apart["x"])) == (4, 4, 1)
    assert star["name"] == ("chosen: everybody alone" if alone else "chosen: K = 3")
    assert star["x"] == (apart["x"] if alone else [3])
    differ = page.evaluate(data, "differ/run")
    assert [t["type"] for t in differ] == ["bar"] * (2 if alone else 3) + ["histogram"] * (1 if alone else 3)
    assert sum(len(t["x"]) for t in differ if t["type"] == "histogram") == 8
    assert page.locator("[data-key='groups/run']").count() == (0 if alone else 1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    keep(page, f"report-choice-{scheme}")
