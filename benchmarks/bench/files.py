"""What a benchmark leaves behind: bench.json with everything, bench.md and bench.png."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.bench.draw import draw
from benchmarks.bench.result import Result
from benchmarks.bench.tabulate import markdown


def keep_json(result: Result, path: Path) -> None:
    """Everything that was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result.as_dict(), indent=2, ensure_ascii=False) + "\n")


def keep(result: Result, folder: Path) -> list[Path]:
    """Write all files into ``folder``, in place of an earlier benchmark's; returns them."""
    paths = [folder / "bench.json", folder / "bench.md"]
    keep_json(result, paths[0])
    paths[1].write_text(markdown(result))
    if result.rows:
        paths.append(folder / "bench.png")
        draw(result, paths[-1])
    return paths
