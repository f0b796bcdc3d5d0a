"""Write docs/reproduction.md and docs/reproduction/ from the folder of `cgpfl paper all`.

    python docs/reproduce.py RUN

Tables, figures, verdicts and settings are the run's own; the text around them is docs/reproduction.intro.md. The runs
themselves (cells) stay where they are: the CSV files hold every number of the tables, each seed. A part that the folder
does not have stays as it is on the page, and is marked.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

from cgpfl.paper import PARTS
from cgpfl.paper.make import ALL, machines
from cgpfl.paper.section import Section

DOCS = Path(__file__).parent
FOLDER = DOCS / "reproduction"
LEFT = "[FILL"
"""Of the text, a place that waits for what a run comes to."""
EARLIER = "From an earlier run"
"""So begins the first line of a part that was not made anew."""


def collect(run: Path) -> list[Section]:
    """The sections of a run; their pictures and CSV files are copied. Those it does not have are the page's own."""
    sections = []
    for name in PARTS:
        source, target = run / name, FOLDER / name
        if not (source / "section.json").exists():
            if not (target / "section.json").exists():
                raise SystemExit(f"{run}: has no part {name}; make it with: cgpfl paper {name} --out {run}")
            sections.append(kept(Section.load(target)))
            continue
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in sorted(source.iterdir()):
            if file.suffix in (".png", ".csv") or file.name == "section.json":
                shutil.copy(file, target / file.name)
        sections.append(Section.load(source))
    return sections


def kept(section: Section) -> Section:
    """A section of an earlier run, marked as such unless it says so already."""
    if not is_earlier(section):
        section = dataclasses.replace(section, text=[f"{EARLIER}.", *section.text])
    return section


def is_earlier(section: Section) -> bool:
    """Whether a section is marked as of an earlier run."""
    return bool(section.text) and section.text[0].startswith(EARLIER)


def page(sections: list[Section], run: Path) -> str:
    """The page in Markdown."""
    intro = (DOCS / "reproduction.intro.md").read_text().rstrip()
    if LEFT in intro:
        raise SystemExit(
            f"reproduction.intro.md: {intro.count(LEFT)} places are still marked {LEFT}...]; fill them first"
        )
    parts = [intro, "## The claims", claims(sections)]
    for section in sections:
        parts.append(f"## {section.title}")
        text = [f"*{section.text[0]}*", *section.text[1:]] if is_earlier(section) else section.text
        parts += [*text, *(table.markdown().rstrip() for table in section.tables)]
        parts += [f"![{f.caption}](reproduction/{section.name}/{f.name}.png)\n\n*{f.caption}*" for f in section.figures]
    return "\n\n".join([*parts, "## Machine, time, commit", facts(run)]) + "\n"


def claims(sections: list[Section]) -> str:
    """Every verdict; those of an earlier run are marked."""
    lines = ["| claim | verdict | evidence |", "|---|---|---|"]
    for section in sections:
        mark = f"*{EARLIER}:* " if is_earlier(section) else ""
        lines += [f"| {v.claim} | **{v.verdict}** | {mark}{v.evidence} |" for v in section.verdicts]
    return "\n".join(lines)


def facts(run: Path) -> str:
    """What the run says of itself, and the commit of this source."""
    asked, times = (json.loads((run / name).read_text()) for name in ("paper.json", "times.json"))
    times.pop(ALL, None)
    took: dict[str, float] = {}
    for name, seconds in times.items():
        took[kind_of(name)] = took.get(kind_of(name), 0.0) + seconds
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=DOCS, check=False
    )
    longest = sorted(times.items(), key=lambda t: -t[1])[:8]
    if asked["quick"]:
        raise SystemExit(f"{run}: is a quick run; its numbers mean little")
    lines = [
        *(f"- {machine}" for machine in machines(run)),
        f"- `cgpfl paper all --seeds {asked['seeds']}`; seconds of its programs, compilation included: "
        + ", ".join(f"{kind} {seconds:.0f}" for kind, seconds in took.items())
        + ".",
        f"- `python docs/reproduce.py RUN` wrote this page, at commit {commit.stdout.strip() or 'unknown'}.",
        "- the longest programs: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in longest) + ".",
    ]
    return "\n".join(lines)


def kind_of(program: str) -> str:
    """What a program of times.json was run for."""
    if program == "theory":
        return "theorems"
    if program.startswith("watched"):
        return "runs watched round by round"
    if program.startswith("beyond"):
        return "beyond the paper"
    if program.partition(" ")[0].endswith("-tuning"):
        return "choice of rates"
    return "variations" if " varied-" in program else "tables and figures"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Write docs/reproduction.md from a run of cgpfl paper all.")
    parser.add_argument("run", type=Path)
    run = parser.parse_args().run
    sections = collect(run)
    (DOCS / "reproduction.md").write_text(page(sections, run))


if __name__ == "__main__":
    main()
