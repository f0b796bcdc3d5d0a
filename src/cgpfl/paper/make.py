"""Every table and figure of the paper, by name, into one folder.

paper.json           what was asked for: quick or full, seeds
cells/               the runs, one file a method and setting: a stopped reproduction goes on with the others
PART/                PART.md, *.csv, *.png, *.svg, *.pdf, section.json
index.html           everything on one page
times.json           seconds of every program, compilation included
machines.json        versions and devices that computed something
"""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax

from cgpfl import __version__
from cgpfl.data import load
from cgpfl.engine.drive import interrupts
from cgpfl.errors import CgpflError
from cgpfl.experiment.run import Progress
from cgpfl.files import keep_wishes, same_wishes, write
from cgpfl.paper.beyond import BEYOND
from cgpfl.paper.bounds import THEORY
from cgpfl.paper.cells import Cells
from cgpfl.paper.figures import FIGURE_K
from cgpfl.paper.heur import FIGURE_HEUR
from cgpfl.paper.page import render, write_page
from cgpfl.paper.plan import NotRunError, Part, Plan
from cgpfl.paper.section import Section
from cgpfl.paper.settings import Setting, settings
from cgpfl.paper.split import SPLIT
from cgpfl.paper.sweep import SWEEP
from cgpfl.paper.table1 import TABLE1
from cgpfl.paper.table2 import TABLE2
from cgpfl.paper.tuning import tuning_cells
from cgpfl.paper.variations import VARIATIONS
from cgpfl.paper.watched import FIGURE_CONTEXTS, FIGURE_DISTANCES, FIGURE_KMEANS
from cgpfl.paper.weight import MU

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        SPLIT,
        TABLE1,
        TABLE2,
        FIGURE_K,
        FIGURE_HEUR,
        MU,
        FIGURE_CONTEXTS,
        FIGURE_DISTANCES,
        FIGURE_KMEANS,
        THEORY,
        SWEEP,
        VARIATIONS,
        BEYOND,
    )
}
"""In the order of the page."""
SETS = dict.fromkeys(("table1", "split", "sweep", "mu"), ("mnist", "fashion-mnist", "cifar10"))
"""The data sets that a part reads; the others read the first two."""
ALL = "all of it, wall clock"
"""Of times.json, beside its programs."""


@dataclass(frozen=True)
class Made:
    """A reproduction, as far as it was asked for."""

    folder: Path
    sections: list[Section]
    """The parts that were made now."""
    skipped: dict[str, str]
    """Those that could not be made of what there is, and why."""
    seconds: float
    """Of this call."""


def make(
    names: Sequence[str],
    out: Path,
    *,
    quick: bool = False,
    seeds: int | None = None,
    only: Sequence[str] = (),
    as_is: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Made:
    """Make the parts ``names`` ("all": every one) into ``out``, going on from what is there.

    ``quick``: small problems, minutes on two cores. ``seeds``: of the tables, 0, 1, …; 5, or 2 if quick.
    ``only``: compute the runs of these settings, whose data sets alone must be there, and draw nothing: a call without
    it does that. ``as_is``: compute nothing, and draw what can be drawn from what has been computed.
    """
    if only and as_is:
        raise CgpflError("paper: only draws nothing, and as_is computes nothing; choose one")
    began = time.perf_counter()
    parts, wanted = chosen(names), _settings(quick, only)
    asked = {"quick": quick, "seeds": (2 if quick else 5) if seeds is None else seeds}
    if asked["seeds"] < 1:
        raise CgpflError(f"seeds = {seeds}: must be at least 1")
    if as_is:  # nothing is fetched where there is nothing to draw
        _open(out, asked, new=False)
    for source in _sources(parts, wanted, whole=not only):
        load(source)  # before anything is written
    _open(out, asked, new=not as_is)
    with interrupts() as stop:
        cells = Cells(out, list(range(asked["seeds"])), on_progress, stop)
        before = cells.seconds()
        plan = Plan(out, quick, wanted, cells, as_is)
        sections, skipped = [], {}
        try:
            if not as_is:  # first the runs that choose rates, then those that have them
                pairs = dict.fromkeys(pair for part in parts for pair in part.tunes(plan))
                cells.finish(cell for setting, label in pairs for cell in tuning_cells(setting, label))
                cells.finish(cell for part in parts for cell in part.needs(plan))
            for part in parts:
                plan.pause(part.name)
                if only:
                    part.prepare(plan)
                    continue
                try:
                    section = _as_is(plan, part) if as_is else part.make(plan)
                except NotRunError as missing:
                    skipped[part.name] = str(missing)
                    continue
                section.save(out / part.name)
                sections.append(section)
        finally:  # what was stopped took its time, too; what is only drawn again does not count
            seconds = time.perf_counter() - began
            if cells.seconds() != before:
                cells.add_seconds(ALL, seconds)
                _note_machine(out)
    if not only:
        _page(plan)
    return Made(out, sections, skipped, seconds)


def _as_is(plan: Plan, part: Part) -> Section:
    """A part of the settings whose runs are all there; what is left out is told with it and with its claims."""
    over = part.over(plan)
    there = [s for s in over if _finished(plan, part, s)]
    if over and not there:
        raise NotRunError("none of its runs is finished")
    section = part.make(dataclasses.replace(plan, settings={s.name: s for s in there}) if over else plan)
    left = [s.title for s in over if s not in there]
    if not left:
        return section
    note = f"Not run yet: {', '.join(left)}."
    verdicts = [dataclasses.replace(v, evidence=f"{v.evidence} {note}") for v in section.verdicts]
    return dataclasses.replace(section, text=[*section.text, note], verdicts=verdicts)


def _finished(plan: Plan, part: Part, setting: Setting) -> bool:
    """Whether everything that a part needs of a setting has been computed."""
    plan = dataclasses.replace(plan, settings={setting.name: setting})
    try:
        part.prepare(plan)
        cells = [c for s, label in part.tunes(plan) for c in tuning_cells(s, label)]
        return all(plan.cells.has(c) for c in [*cells, *part.needs(plan)])
    except NotRunError:
        return False


def _settings(quick: bool, only: Sequence[str]) -> dict[str, Setting]:
    """The settings, or those that are asked for."""
    found = settings(quick)
    for name in only:
        if name not in found:
            raise CgpflError(f"paper: no setting {name!r}; there are {', '.join(found)}")
    return {name: s for name, s in found.items() if not only or name in only}


def _sources(parts: Sequence[Part], wanted: dict[str, Setting], whole: bool) -> list[str]:
    """The data sets that the parts read; not ``whole``: those of the wanted settings among them."""
    there = {s.data.source for s in wanted.values()}
    needed = dict.fromkeys(s for p in parts for s in SETS.get(p.name, ("mnist", "fashion-mnist")))
    return [s for s in needed if whole or s in there]


def chosen(names: Sequence[str]) -> list[Part]:
    """Parts by name, checked, in the order of the page."""
    for name in names:
        if name != "all" and name not in PARTS:
            raise CgpflError(f"paper: no part {name!r}; there are {', '.join(PARTS)}, all")
    return [part for name, part in PARTS.items() if "all" in names or name in names]


def _open(out: Path, asked: dict[str, int], new: bool) -> None:
    """A new folder, where that may be, or one that was made with the same wishes."""
    if same_wishes(out / "paper.json", asked):
        return
    if not new:
        raise CgpflError(f"out {out}: is no folder of cgpfl paper; there is nothing to draw")
    if out.exists() and any(out.iterdir()):
        raise CgpflError(f"out {out}: exists and is no folder of cgpfl paper; choose another")
    keep_wishes(out / "paper.json", asked)


def _page(plan: Plan) -> None:
    """The page of every part that has been made in the folder so far."""
    found = [Section.load(plan.out / name) for name in PARTS if (plan.out / name / "section.json").exists()]
    lead = "Tang, Guo, Guo: Personalized Federated Learning with Contextualized Generalization (IJCAI 2022), run anew. "
    lead += "Local training stands beside every result, since a personalised model is worth what it gains over it."
    if plan.quick:
        lead = "Quick run: small problems and few rounds, to see that everything works. The numbers mean little."
    title = "CGPFL, reproduced" + (" (quick)" if plan.quick else "")
    write_page(plan.out / "index.html", render(title, lead, found, plan.out, facts(plan)))


def machines(out: Path) -> list[str]:
    """With what, and on what, the runs of a folder were computed."""
    note = out / "machines.json"
    return json.loads(note.read_text()) if note.exists() else []


def _note_machine(out: Path) -> None:
    device = jax.devices()[0]
    software = f"cgpfl {__version__}, JAX {jax.__version__}, Python {platform.python_version()}"
    known = [*machines(out), f"{software}, on {device.device_kind} ({device.platform})"]
    write(out / "machines.json", (json.dumps(list(dict.fromkeys(known)), indent=1) + "\n").encode())


def facts(plan: Plan) -> list[str]:
    """On what and how it was made."""
    times = plan.cells.seconds()
    total = times.pop(ALL, 0.0)
    longest = ", ".join(f"{n} {s:.0f} s" for n, s in sorted(times.items(), key=lambda t: -t[1])[:4])
    return [
        *machines(plan.out),
        f"seeds {plan.seeds[0]}..{plan.seeds[-1]}: of the split, the initial model and every random draw",
        f"{total:.0f} s in all, compilation and drawing included",
        f"{len(times)} programs" + (f"; the longest: {longest}" if times else ""),
    ]
