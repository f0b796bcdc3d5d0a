"""The campaign: ``python -m benchmarks.crash [--seed 0] [--kills 260] [--deployed 40] [--writers 50] [--full 20] ...``.

Every line that does not come back bit for bit is printed, and the exit code is 1. Figures: docs/reliability.md.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.crash.moments import prepare
from benchmarks.crash.simulated import Bench, Count


def told(what: str, count: Count, began: float) -> None:
    """A line of what was seen so far."""
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(count.by.items()))
    spent = time.monotonic() - began
    print(
        f"{what}: {count.equal} of {count.kills} bit-equal ({kinds}), {len(count.wrong)} wrong, {spent:.0f} s",
        flush=True,
    )


def until(what: str, wanted: int, step: Callable[[Count], None]) -> Count:
    """Trials until so many were counted."""
    count, began, said, shown = Count(), time.monotonic(), 0, 0
    while count.kills < wanted and len(count.wrong) < 20:
        step(count)
        for line in count.wrong[shown:]:
            print(f"WRONG {what}: {line}", flush=True)
        shown = len(count.wrong)
        if count.kills >= said + 20 or count.kills >= wanted:
            said = count.kills
            told(what, count, began)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description="Crashes, and whether all comes back.")
    parser.add_argument("--seed", type=int, default=0)
    for name, default in {"kills": 260, "writers": 50, "full": 20, "read-only": 10, "deployed": 40}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="cgpfl-crash-"))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(scratch / "programs"))
    os.environ |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "OMP_NUM_THREADS": "1"}
    wrong = 0
    if asked.kills + asked.writers + asked.full + asked.read_only:
        prepare()
        bench = Bench(scratch, random.Random(asked.seed))
        bench.begin()
        print(f"an undisturbed run: {bench.seconds} s, {bench.changes} changes of its folder", flush=True)
        for what, wanted, step in (
            ("kills of simulations", asked.kills, bench.killed),
            ("second writers", asked.writers, bench.writers),
            ("full disks", asked.full, bench.full),
            ("read-only folders", asked.read_only, bench.read_only),
        ):
            wrong += len(until(what, wanted, step).wrong)
    if asked.deployed:
        from benchmarks.crash.deployed import Federations

        federations = Federations(scratch, random.Random(asked.seed))
        wrong += len(until("kills of deployments", asked.deployed, federations.killed).wrong)
    if not wrong:
        shutil.rmtree(scratch)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
