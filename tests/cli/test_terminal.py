"""What is printed while a run goes on."""

import time

from cgpfl.cli.terminal import progress
from cgpfl.experiment.run import Progress


def test_the_wait_for_the_first_round_is_told(capsys, monkeypatch):
    """Of the first method since the command was given, of the next since the last one ended."""
    clock = iter([100.0 + 4.25, 104.5, 110.0, 110.0, 112.5, 112.5])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with progress(began=100.0) as tell:
        tell(Progress("local", 1, 9, 0.25, 0.5, None))
        tell(Progress("local", 9, 9, 0.5, 3.0, 2.0))
        tell(Progress("fedavg", 1, 9, 0.25, 1.0, None))
    assert capsys.readouterr().out.splitlines() == [
        "local        round 1/9  accuracy  25.0%  first round after 4.5 s",
        "local        round 9/9  accuracy  50.0%  2 rounds/s  3.0 s",
        "fedavg       round 1/9  accuracy  25.0%  first round after 2.5 s",
    ]
