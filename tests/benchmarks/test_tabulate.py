"""Tables of a result made up by hand."""

import json

import pytest

from benchmarks.bench.counts import Counts
from benchmarks.bench.files import keep
from benchmarks.bench.grid import Grid
from benchmarks.bench.machine import Rates
from benchmarks.bench.result import Result, Row, Sweep
from benchmarks.bench.tabulate import duration, markdown, own_table, ratio_table, text, times
from benchmarks.bench.work import Case

MACHINE = {"device": "cpu: cpu", "processor": "A Processor", "cpus": 2, "python": "3.12.1", "jax": "0.10", "torch": "2"}
SWEEP = Sweep(45, 200, 2.0, 1.0, 16.0, 12.0, 10.0, 1e-6)


def row(clients=40, ours=0.05, rivals=True, **more):
    others = {"rivals": {"loop": 8 * ours, "vmap": 2.5 * ours}, "timed": {"loop": 40, "vmap": 40}} if rivals else {}
    case = Case("cgpfl", "mlr", clients)
    # 10⁹ operations at 10¹¹ a second: 10 ms; the bytes take 1 ms.
    return Row(
        case,
        ours,
        1.2 * ours,
        10,
        1.5,
        10**9,
        Counts(10**9, 10**7),
        **others,
        difference=1e-6,
        times={"ours": [ours]},
        **more,
    )


def result(*rows, **more):
    return Result(Grid(), MACHINE, Rates(1e11, 1e10), rows, **more)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0.00 µs"), (1.5e-5, "15.0 µs"), (0.0421, "42.1 ms"), (0.9996, "1000 ms"), (1.234, "1.23 s"), (345, "345 s")],
)
def test_durations_have_three_digits(value, shown):
    assert duration(value) == shown


def test_ratios_are_short():
    assert [times(v) for v in (0.123, 1.04, 45.2, 1359)] == ["0.12x", "1.0x", "45.2x", "1359x"]


def test_ratios_come_first():
    table = ratio_table(result(row()))
    (cells,) = table.rows
    assert table.columns == ["method", "model", "clients", "loop/us", "vmap/us", "us/floor", "us", "loop", "vmap"]
    assert cells == ["cgpfl", "mlr", "40", "8.0x", "2.5x", "5.0x", "50.0 ms", "400 ms", "125 ms"]
    assert own_table(result(row())).rows == [
        ["cgpfl", "mlr", "40", "10.0 ms", "60.0 ms", "10", "1", "1.50 s", "1000", "1e-06"]
    ]


def test_scaled_times_are_marked_and_explained():
    shown = text(result(row(), row(4000, 4.0)))
    assert "32.0 s*" in shown
    assert "400 ms*" not in shown
    assert "*: timed with 40 of the clients, then scaled to all of them." in shown
    assert "*:" not in text(result(row()))


def test_eighty_columns_are_enough():
    notes = ("cgpfl cnn, 4000 clients: left out, a round would take some 300 s; raise --limit to time it",)
    rows = [row(n, s) for n, s in ((40, 0.0456), (400, 0.999), (4000, 123.4))]
    shown = text(result(*rows, sweep=SWEEP, notes=notes))
    assert max(map(len, shown.splitlines())) <= 80


def test_without_pytorch_its_columns_are_left_out():
    shown = result(row(rivals=False), notes=("PyTorch is not installed",))
    assert ratio_table(shown).columns == ["method", "model", "clients", "us/floor", "us"]
    assert "loop" not in text(shown)
    assert text(shown).endswith("PyTorch is not installed")


def test_the_sweep_is_held_against_its_bar():
    assert "cost 8.0x one run" in text(result(sweep=SWEEP))
    assert "; below the bar of 10x), and 12.0x without" in text(result(sweep=SWEEP))
    slow = Sweep(45, 200, 1.0, 1.0, 16.0, 12.0, 10.0, 1e-6)
    assert "not below the bar of 10x" in text(result(sweep=slow))


def test_markdown():
    page = markdown(result(row(), row(4000, 4.0), sweep=SWEEP, notes=("a note",)))
    assert "| method | model | clients | loop/us |" in page
    assert "| cgpfl | mlr | 4000 | 8.0x |" in page
    assert "32.0 s\\*" in page
    assert page.endswith("- a note\n")


def test_files(tmp_path):
    paths = keep(result(row(), row(400, 0.6), sweep=SWEEP), tmp_path / "new")
    assert [p.name for p in paths] == ["bench.json", "bench.md", "bench.png"]
    kept = json.loads(paths[0].read_text())
    assert kept["rows"][0]["ratios"] == pytest.approx({"loop/ours": 8.0, "vmap/ours": 2.5, "ours/floor": 5.0})
    assert kept["rows"][1]["case"] == {"method": "cgpfl", "model": "mlr", "clients": 400, "samples": 60_000}
    assert kept["sweep"]["ratio"] == 8.0
    assert kept["machine"]["rates"] == {"operations": 1e11, "bytes": 1e10}
    assert kept["grid"]["repeats"] == 5
    assert paths[2].read_bytes()[:4] == b"\x89PNG"


def test_no_case_no_picture(tmp_path):
    assert [p.name for p in keep(result(), tmp_path)] == ["bench.json", "bench.md"]
