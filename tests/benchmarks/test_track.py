"""What the guard of speed calls worse, on made-up numbers."""

import json

import pytest

from benchmarks import track

HERE = {"cpu": "c", "cores": 2, "jax": "1", "gpu": None}


def record(commit="a", machine=HERE, **figures):
    figures = {name.replace("_", "-"): values for name, values in figures.items()}
    return {"commit": commit, "date": "2026-01-01", "load": 0.0, "machine": machine, "figures": figures}


def test_a_figure_is_worse_when_it_is_beyond_its_noise():
    before = [record("old", round_ms=[20.0, 20.1, 19.9])]
    assert track.worse(record(round_ms=[20.9, 20.8, 21.0]), before) == []  # less than 5 %
    assert track.worse(record(round_ms=[12.0, 12.1, 12.2]), before) == []  # better
    (line,) = track.worse(record(round_ms=[22.0, 22.1, 21.9]), before)
    assert line == "round-ms: 22, was 20 in old: +10 %, noise 5 %"


def test_timings_that_scatter_say_less():
    before = [record(round_ms=[20.0, 22.0, 18.0])]
    assert track.spread([20.0, 22.0, 18.0]) == pytest.approx(2.965, abs=1e-3)
    assert track.worse(record(round_ms=[28.0, 28.0, 28.0]), before) == []  # three spreads are 8.9
    assert len(track.worse(record(round_ms=[29.0, 29.0, 29.0]), before)) == 1
    assert track.worse(record(round_ms=[29.0, 33.0, 25.0]), before) == []
    assert track.spread([5.0]) == 0
    assert track.spread([1.0, 1.0, 1.0, 100.0]) == 0  # one that was disturbed says nothing


def test_earlier_records_say_how_much_a_machine_differs_from_itself():
    steady = [record(round_ms=[v]) for v in (20.0, 20.0, 20.0)]
    moody = [record(round_ms=[v]) for v in (20.0, 26.0, 23.0, 20.0)]
    now = record(round_ms=[24.0])
    assert len(track.worse(now, steady)) == 1
    assert track.worse(now, moody) == []
    long_ago = [record(round_ms=[v]) for v in (200.0, 20.0, 90.0)]
    assert len(track.worse(now, [*long_ago, *(track.EARLIER * steady)])) == 1


def test_only_the_same_machine_and_figure_are_compared():
    other = [record(machine={**HERE, **more}, round_ms=[1.0]) for more in ({"jax": "2"}, {"cores": 4}, {"gpu": "g"})]
    assert track.worse(record(round_ms=[9.0]), other) == []
    newest_without = [record("has it", round_ms=[5.0]), record("has not", choice_s=[1.0])]
    (line,) = track.worse(record(round_ms=[9.0]), newest_without)
    assert "5 in has it" in line


def test_the_command(tmp_path, monkeypatch, capsys):
    """Measured, kept, compared with what was kept; the exit code says whether something got worse."""
    file, values = tmp_path / "track.jsonl", iter([[10.0, 10.1], [10.2, 10.2], [15.0, 15.0]])
    monkeypatch.setitem(track.FIGURES, "mlr", lambda repeats, large: {"round-mlr-ms": next(values)})
    monkeypatch.setattr(track.os, "sched_setaffinity", lambda *a: None, raising=False)

    def command(*arguments):
        monkeypatch.setattr(track.sys, "argv", ["track", "--records", str(file), *arguments])
        return track.main(), capsys.readouterr().out

    assert command("--show") == (0, "no records yet\n")
    assert command("--figures", "mlr")[0] == 0
    assert command("--figures", "mlr")[0] == 0
    code, out = command("--figures", "mlr", "--quick")
    assert code == 1
    assert "WORSE round-mlr-ms: 15, was 10.2 in " in out
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["figures"]["round-mlr-ms"] for r in kept] == [[10.0, 10.1], [10.2, 10.2], [15.0, 15.0]]
    assert all(r["commit"] and r["machine"]["cores"] >= 1 and r["machine"]["jax"] for r in kept)
    assert command("--show")[1].count("round-mlr-ms") == 3
    with pytest.raises(SystemExit):
        command("--figures", "nothing")


@pytest.mark.slow
def test_small_figures_are_measured(tmp_path):
    """Those of processes, which nothing else tries; the work of the others is that of benchmarks with tests."""
    found = track.first(1, False)
    assert sorted(found) == ["first-cpu-s", "first-s"]
    assert 0.5 < found["first-cpu-s"][0] < 100
    with pytest.raises(SystemExit, match="failed"):
        track.command(tmp_path, "cgpfl.cli", "nothing")
