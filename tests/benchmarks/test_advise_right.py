"""Whether advice is counted as right: rankings by hand-worked numbers."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.advise import is_right, ranked, show, todo
from benchmarks.ranking import CANDIDATES, cut, method_of, paired
from cgpfl.advice.study import NAMES


def lines_of(right: dict[str, float], splits: int = 3, clients: int = 8) -> list[dict[str, object]]:
    """Of each way on each split: so many right answers of 10 at every client, one more in odd splits."""

    def line(way: str, split: int) -> dict[str, object]:
        sums = {"rate": 0.1, "correct": [right[way] + split % 2] * clients}
        return {"kind": "tuna", "way": way, "split": split, "counts": [10] * clients, "short": sums, "full": sums}

    return [line(way, split) for way in NAMES for split in range(splits)]


def test_a_ranking_has_scores_and_those_that_cannot_be_told_apart() -> None:
    right = dict(zip(NAMES, [5.0, 8.0, 8.0, 7.0, 2.0], strict=True))
    found = ranked(lines_of(right), "tuna")
    assert found is not None
    assert found["best"] == NAMES[1]
    assert found["score"][NAMES[0]] == pytest.approx((5 + 6 + 5) / 30, abs=1e-4)
    assert found["tied"] == [NAMES[1], NAMES[2]]  # the others are behind by the same everywhere


def test_the_paired_test_over_splits_is_nadeau_and_bengios() -> None:
    apart = np.repeat([[1.0], [2.0], [3.0]], 8, axis=1)  # of 10: 0.1, 0.2, 0.3; every client the same
    error = np.sqrt((1 / 3 + 1 / 3) * 0.01)
    from scipy.stats import t

    assert paired(apart, np.full((3, 8), 10.0)) == pytest.approx(2 * t.sf(0.2 / error, 2))


def test_a_ranking_waits_for_every_way_of_two_splits() -> None:
    lines = lines_of(dict.fromkeys(NAMES, 5.0), splits=2)
    assert ranked(lines, "tuna") is not None
    assert ranked(lines[:-1], "tuna") is None


def test_advice_is_right_if_it_is_among_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    study = {"kind": "tuna", "seed": 0, "advice": "alone", "k": 2, "cpu_seconds": 9.0, "score": dict.fromkeys(NAMES, 0)}
    assert is_right(study, ["alone", "contexts"])
    assert not is_right(study, ["contexts"])
    show([study, *lines_of(dict(zip(NAMES, [9.0, 8.0, 8.0, 7.0, 2.0], strict=True)))])
    assert "| tuna | 1 of 1 | alone: 1 | 2: 1 |" in capsys.readouterr().out


def test_what_is_done_is_not_done_again() -> None:
    lines = lines_of(dict.fromkeys(NAMES, 5.0), splits=2)
    assert list(todo(["tuna", "iid"], 1, 2, lines)) == [{"kind": "tuna", "seed": 0}, {"kind": "iid", "seed": 0}]
    assert next(todo(["tuna"], 1, 3, lines)) == {"kind": "tuna", "way": NAMES[-1], "split": 2}


def test_each_way_is_the_method_of_its_command() -> None:
    alone, one, tuned, contexts, personal = (method_of(c, 0.3, 100) for c in CANDIDATES)
    assert [m.name for m in (alone, one, tuned, contexts, personal)] == [
        *("local", "fedavg", "fedavg-ft", "cgpfl-auto", "cgpfl-auto")
    ]
    assert (tuned.rate, tuned.tune_rate) == (0.3, 0.3)
    assert (contexts.prox, contexts.inner_steps, contexts.most) == (1e6, 1, 16)
    assert personal.personal_rate == 0.3


def test_a_cut_keeps_every_sample_once() -> None:
    kept, held = cut([np.arange(8), np.arange(8, 11)], 0, 0)
    assert [len(h) for h in held] == [2, 1]
    assert sorted(np.concatenate([*kept, *held]).tolist()) == list(range(11))
