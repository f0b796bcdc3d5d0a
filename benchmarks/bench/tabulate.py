"""The tables, in text of at most 80 columns and in Markdown: ratios first."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from benchmarks.bench.result import Result, Row
from cgpfl.tables import Table

WIDTH = 80
NAMES = (0, 1)
"""Columns of words: method and model."""


def duration(value: float) -> str:
    """Seconds with a fitting unit and three digits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1 or unit == "µs":
            digits = max(0, 2 - len(str(int(value * factor))) + 1)
            return f"{value * factor:.{digits}f} {unit}"
    raise AssertionError("not reached")


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.0f}x" if value >= 100 else f"{value:.1f}x" if value >= 1 else f"{value:.2f}x"


def ratio_table(result: Result) -> Table:
    """How the contestants compare: others/ours, ours/floor, then the times of a round."""
    rivals = [who for who in ("loop", "vmap") if any(who in row.rivals for row in result.rows)]
    columns = ["method", "model", "clients", *(f"{who}/us" for who in rivals), "us/floor", "us", *rivals]
    rows = []
    for row in result.rows:
        ratios = row.ratios(result.rates)
        rows.append(
            [
                row.case.method,
                row.case.model,
                str(row.case.clients),
                *(times(ratios[f"{who}/ours"]) for who in rivals),
                times(ratios["ours/floor"]),
                duration(row.ours),
                *(duration(row.rivals[who]) + _scaled(row, who) for who in rivals),
            ]
        )
    return Table("", columns, rows, left=NAMES)


def _scaled(row: Row, who: str) -> str:
    return "*" if row.timed[who] < row.case.clients else ""


def own_table(result: Result) -> Table:
    """What else there is to know: the floor's time, ours with one round in a call, compilation, memory, equality."""
    columns = ["method", "model", "clients", "floor", "us, T = 1", "T", "n", "compile", "peak MB", "equal to"]
    rows = [
        [
            row.case.method,
            row.case.model,
            str(row.case.clients),
            duration(row.floor(result.rates)),
            duration(row.alone),
            str(row.rounds),
            str(len(row.times.get("ours", []))),
            duration(row.compile),
            f"{row.memory / 1e6:.0f}",
            f"{row.difference:.0e}",
        ]
        for row in result.rows
    ]
    return Table("", columns, rows, left=NAMES)


def legend(result: Result) -> list[str]:
    """What the columns mean, a short line each."""
    lines = ["us: a round of ours, server included, in calls of T rounds; median of n timings."]
    if any(row.rivals for row in result.rows):
        lines += ["loop: a bare PyTorch loop over clients; vmap: torch.func.vmap over them.", _threads(result)]
    scaled = sorted({row.timed[who] for row in result.rows for who in row.timed if _scaled(row, who)})
    if scaled:
        lines.append(f"*: timed with {' or '.join(map(str, scaled))} of the clients, then scaled to all of them.")
    r = result.rates
    lines += [
        "floor: the larger of operations / the machine's rate and bytes / its bandwidth,",
        f"  as measured here: {r.operations / 1e9:.4g} GFLOP/s in a product, {r.bytes / 1e9:.3g} GB/s in a + s·b.",
        "equal to: largest difference between contestants after a client's round on",
        "  the same minibatches, as a share of how far its model moved.",
    ]
    return [line for line in lines if line]


def _threads(result: Result) -> str:
    if str(result.machine["device"]).startswith("cpu"):
        return f"  Each the better of 1 and {result.machine['cpus']} threads, clients' steps alone."
    return "  Clients' steps alone."


def sweep_lines(result: Result) -> list[str]:
    """The sweep against one run."""
    s = result.sweep
    if s is None:
        return []
    verdict = "below" if s.ratio < s.bar else "not below"
    return [
        f"sweep: {s.runs} runs of CGPFL in one program cost {times(s.ratio)} one run, compilation included",
        f"  ({duration(s.sweep_first)} / {duration(s.single_first)}; {verdict} the bar of {s.bar:.0f}x), "
        f"and {times(s.ratio_again)} without it",
        f"  ({duration(s.sweep_again)} / {duration(s.single_again)}); digits, 40 clients, MLR, {s.rounds} rounds.",
    ]


def where(machine: dict[str, Any]) -> list[str]:
    """The machine and the versions, in two lines."""
    versions = ", ".join(f"{k} {machine[k]}" for k in ("python", "jax", "torch") if machine.get(k))
    device = machine["device"]
    named = machine["processor"] if device.startswith("cpu") and machine["processor"] else device
    return [f"{named}, {machine['cpus']} CPUs"[:WIDTH], versions]


def text(result: Result) -> str:
    """All of it for a terminal."""
    parts = ["\n".join(where(result.machine))]
    if result.rows:
        parts += [ratio_table(result).text(), own_table(result).text(), "\n".join(legend(result))]
    notes = [fill(note, WIDTH, subsequent_indent="  ") for note in result.notes]
    parts += ["\n".join(sweep_lines(result)), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part)


def markdown(result: Result) -> str:
    """All of it as a page."""
    parts = ["# Benchmark", ". ".join(where(result.machine)) + "."]
    if result.rows:
        parts += [*(t.markdown().rstrip().replace("*", "\\*") for t in (ratio_table(result), own_table(result)))]
        parts.append("\n".join(f"- {line}" for line in _whole_sentences(legend(result))))
    parts += [" ".join(map(str.strip, sweep_lines(result))), "\n".join(f"- {note}" for note in result.notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _whole_sentences(lines: list[str]) -> list[str]:
    """Lines that were broken for a terminal, as one again; a star is no markup."""
    whole: list[str] = []
    for line in lines:
        if line.startswith("  "):
            whole[-1] += f" {line.strip()}"
        else:
            whole.append(line.replace("*", "\\*"))
    return whole
