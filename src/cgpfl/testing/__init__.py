"""The contract, as tests that any method can be put to.

>>> import cgpfl
>>> cgpfl.check_algorithm(cgpfl.FedAvg())

``check_algorithm`` runs a method on a tiny federation and raises :class:`ContractError`, in one line that says
what was broken, at the first thing that does not hold. What it checks is what the engines rely on: a method that
passes runs vectorised, sampled, interrupted and on real nodes with the same numbers.

    check.py        ``check_algorithm``: the checks by name, and how a failure is told
    suite.py        the tiny federation, and the runs of a method that several checks look at
    running.py      the same numbers however it is run
    privacy.py      what a client may learn from, and what may leave it
"""

from __future__ import annotations

from cgpfl.testing.check import CHECKS, check_algorithm
from cgpfl.testing.suite import SETTINGS, ContractError, tiny_federation

__all__ = ["CHECKS", "SETTINGS", "ContractError", "check_algorithm", "tiny_federation"]
