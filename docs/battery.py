"""Write docs/battery.md and docs/battery/ from the folder of a finished `cgpfl battery`.

    python docs/battery.py [RUN]

Tables and picture are the run's own; the text before them is docs/battery.intro.md. Without a run the page
has the problems and no results.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
from pathlib import Path

from cgpfl.battery.problems import PROBLEMS

DOCS = Path(__file__).parent
FOLDER = DOCS / "battery"
FILES = ("battery.png", "battery.csv", "regrets.csv", "contexts.csv")


def problems() -> str:
    """The problems as a table."""
    lines = ["| problem | kind | clients | contexts | what it is |", "|---|---|--:|--:|---|"]
    for p in PROBLEMS.values():
        lines.append(f"| {p.name} | {p.kind} | {p.form.clients} | {p.contexts or '–'} | {p.about} |")
    return "\n".join([*lines, "", "–: clients just differ; there are no true contexts to be found."])


def results(run: Path) -> str:
    """BATTERY.md without its title, its picture in docs/battery."""
    asked = json.loads((run / "battery.json").read_text())
    if asked["quick"]:
        raise SystemExit(f"{run}: is a quick run; its numbers mean little")
    text = (run / "BATTERY.md").read_text()
    missing = [name for name in PROBLEMS if f"**{name}**: " not in text]
    if missing:
        raise SystemExit(f"{run}: has no results on {', '.join(missing)}; make them with: cgpfl battery --out {run}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for name in FILES:
        shutil.copy(run / name, FOLDER / name)
    text = re.sub(r"\]\(battery\.png\)", "](battery/battery.png)", text.partition("\n")[2].strip())
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, cwd=DOCS, check=False).stdout.strip()
    made = f"`cgpfl battery --seeds {asked['seeds']} --rounds {asked['rounds']}`"
    return f"{text}\n- {made}; `python docs/battery.py RUN` wrote this page, at commit {commit or 'unknown'}."


def page(run: Path | None) -> str:
    """The page in Markdown."""
    intro = (DOCS / "battery.intro.md").read_text().rstrip()
    parts = [intro, "## The problems", problems()]
    return "\n\n".join([*parts, *([] if run is None else [results(run)])]) + "\n"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Write docs/battery.md from a run of cgpfl battery.")
    parser.add_argument("run", type=Path, nargs="?")
    (DOCS / "battery.md").write_text(page(parser.parse_args().run))


if __name__ == "__main__":
    main()
