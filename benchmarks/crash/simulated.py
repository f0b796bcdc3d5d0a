"""Simulations that are killed, resumed, killed again and at last finished: the folder is that of a run left alone."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.crash.equal import differences
from benchmarks.crash.moments import NEVER, Ended, Moment, start

SMALL = """rounds = 8
eval_every = 2
checkpoint_seconds = 0
[data]
source = "digits"
clients = 6
contexts = 2
share = 0.3
"""
PROBLEMS = {
    "run": ("run", SMALL + '[[method]]\nname = "fedavg"\n[[method]]\nname = "cgpfl"\ncontexts = 2\n'),
    "off the device": ("run", 'store = "host"\n' + SMALL + '[[method]]\nname = "ditto"\n'),
    "comparison": ("compare", SMALL + '[[method]]\nname = "fedavg"\n[compare]\nseeds = 2\n'),
}
"""What is run: two methods; personal states beside the checkpoint; seeds of a comparison in one program."""
KILLS = 6
"""Of one run, on the way to its end."""
BEING_WRITTEN = "is being written by process"
LONG_AGO = 1e9
"""When a file that was never finished seems to have been begun, for whoever comes next: it removes no recent ones."""


@dataclass
class Count:
    """What was seen."""

    kills: int = 0
    equal: int = 0
    """Kills of runs that came back bit for bit."""
    by: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Bench:
    """Where runs are made and compared."""

    scratch: Path
    draw: random.Random
    seconds: dict[str, float] = field(default_factory=dict)
    """Of an undisturbed run."""
    changes: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """The undisturbed runs: twice, since the first compiles."""
        for name, (command, text) in PROBLEMS.items():
            self._config(name).write_text(text)
            for _ in range(2):
                place = self._reference(name)
                shutil.rmtree(place, ignore_errors=True)
                done = self._go([command, self._config(name), "--out", place, "--quiet"], place)
                if done.code:
                    raise SystemExit(f"{name}: an undisturbed run ends with {done.code}: {done.said}")
            self.seconds[name] = done.seconds
            self.changes[name] = int(done.said.split()[-2])

    def _config(self, name: str) -> Path:
        return self.scratch / f"{name.replace(' ', '-')}.toml"

    def _reference(self, name: str) -> Path:
        return self.scratch / "left-alone" / name.replace(" ", "-")

    def _go(self, arguments: list[object], folder: Path, moment: Moment = NEVER) -> Ended:
        return start(arguments, folder, moment).wait()

    def run(self, name: str, folder: Path, moment: Moment = NEVER) -> Ended:
        """Begin, or go on with what is there."""
        if (folder / "config.toml").exists():
            return self._go(["resume", folder, "--quiet"], folder, moment)
        if folder.exists():  # nothing was kept yet: said in a line, and nothing is lost
            said = self._go(["resume", folder, "--quiet"], folder)
            if not said.is_one_line:
                return said
            shutil.rmtree(folder)
        return self._go([PROBLEMS[name][0], self._config(name), "--out", folder, "--quiet"], folder, moment)

    def moment(self, name: str) -> Moment:
        """One of all of a run's."""
        kind = self.draw.choice(["time", "between", "inside"])
        if kind == "time":
            return Moment(kind, self.draw.uniform(0, 1.1 * self.seconds[name]))
        size = int(10 ** self.draw.uniform(0, 5.5))
        return Moment(kind, self._change(name), size)

    def _change(self, name: str) -> int:
        """The earlier the more often: a resumed run has fewer of them."""
        return 1 + int(self.changes[name] * self.draw.random() ** 2)

    def killed(self, count: Count, kills: int = KILLS) -> None:
        """One run with some kills, compared at its end."""
        name, seen = self.draw.choice(list(PROBLEMS)), list[Moment]()
        folder = self._new(name)
        for _ in range(3 * kills):
            if len(seen) == kills or (folder / "report.html").exists():
                break
            moment = self.moment(name)
            ended = self.run(name, folder, moment)
            if ended.killed:
                seen.append(moment)
            elif ended.code:
                count.wrong.append(f"{name}, {[*seen, moment]}: exit {ended.code}: {ended.said[-500:]}")
                return
        if seen:
            self._compare(name, folder, count, seen)

    def _compare(self, name: str, folder: Path, count: Count, seen: list[Moment]) -> None:
        for part in folder.rglob("*.part"):  # as if found a day later: whoever writes next removes it
            with suppress(FileNotFoundError):
                os.utime(part, (LONG_AGO, LONG_AGO))
        ended = self.run(name, folder)
        found = differences(self._reference(name), folder) if ended.code == 0 else [f"exit {ended.code}: {ended.said}"]
        mine = (folder, folder / "figures")  # where whoever is killed leaves what is recent for a minute
        left = [p for p in folder.rglob("*.part") if p.parent not in mine or p.stat().st_mtime == LONG_AGO]
        found += [f"left behind: {[str(p.relative_to(folder)) for p in left]}"] if left else []
        count.kills += len(seen)
        count.by.update(moment.kind for moment in seen)
        if found:
            count.wrong.append(f"{name}, {seen}: {found}")
        else:
            count.equal += len(seen)
            shutil.rmtree(folder)

    def full(self, count: Count) -> None:
        """A run whose files cannot grow any more from some moment on, then can again."""
        name = self.draw.choice(list(PROBLEMS))
        folder, moment = self._new(name), self.moment(name)
        moment = Moment("full", self._change(name), moment.size)
        ended = self.run(name, folder, moment)
        if ended.code and not ended.is_one_line:
            count.wrong.append(f"{name}, {moment}: exit {ended.code}: {ended.said[-500:]}")
        elif ended.code:
            self._compare(name, folder, count, [moment])

    def read_only(self, count: Count) -> None:
        """A run whose folders become read-only at some moment, and can be written again later."""
        name = self.draw.choice(list(PROBLEMS))
        folder = self._new(name)
        arguments = [PROBLEMS[name][0], self._config(name), "--out", folder, "--quiet"]
        at, closed = self.draw.uniform(0.1, 0.9) * self.seconds[name], list[Path]()
        running = start(arguments, folder, Moment("time", at))

        def close() -> None:
            for place in [folder, *(p for p in folder.rglob("*") if p.is_dir())]:
                if place.exists():
                    place.chmod(0o555)
                    closed.append(place)

        ended = running.wait(close)
        for place in closed:
            place.chmod(stat.S_IRWXU | 0o055)
        if ended.code and not ended.is_one_line:
            count.wrong.append(f"{name}, read-only after {at:.2f} s: exit {ended.code}: {ended.said[-500:]}")
        elif ended.code:
            self._compare(name, folder, count, [Moment("read-only", at)])

    def writers(self, count: Count) -> None:
        """A second writer at some moment: it is told who is first, or finds all done; no round is lost."""
        name = self.draw.choice(list(PROBLEMS))
        folder = self._new(name)
        arguments = [PROBLEMS[name][0], self._config(name), "--out", folder, "--quiet"]
        at, second = self.draw.uniform(0.2, 1.0) * self.seconds[name], list[Ended]()
        first = start(arguments, folder, Moment("time", at))
        ended = first.wait(lambda: second.append(self._go(["resume", folder, "--quiet"], folder)))
        for other in second:
            told = other.is_one_line and (BEING_WRITTEN in other.said or "config.toml" in other.said)
            count.by["told" if told else "ended before"] += 1
            if not told and other.code:
                count.wrong.append(f"{name}, second after {at:.2f} s: exit {other.code}: {other.said[-500:]}")
        found = differences(self._reference(name), folder) if ended.code == 0 else [f"exit {ended.code}: {ended.said}"]
        count.kills += 1
        count.equal += not found
        count.wrong += [f"{name}, second after {at:.2f} s: {found}"] if found else []
        shutil.rmtree(folder, ignore_errors=True)

    def _new(self, name: str) -> Path:
        folder = self.scratch / "runs" / f"{name.replace(' ', '-')}-{self.draw.randrange(10**9)}"
        folder.parent.mkdir(exist_ok=True)
        return folder
