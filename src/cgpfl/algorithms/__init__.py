"""The methods, one file each, and the contract they keep."""

from __future__ import annotations

from typing import Any

from cgpfl.algorithms.base import Algorithm, ClientData, Cohort, Method, Task
from cgpfl.algorithms.cgpfl import CGPFL
from cgpfl.algorithms.fedavg import FedAvg
from cgpfl.algorithms.local import Local
from cgpfl.algorithms.pfedme import PFedMe
from cgpfl.batch import Batch
from cgpfl.errors import CgpflError
from cgpfl.hyper import algorithm, allowed, from_values, hyper, hyper_parameters, normalised, replace, validate

METHODS: dict[str, Any] = {
    "local": Local(),
    "fedavg": FedAvg(),
    "pfedme": PFedMe(),
    "cgpfl": CGPFL(),
    "cgpfl-heur": CGPFL(contexts="auto"),
}
"""Method names of the command line, each with the settings the name stands for."""


def get_method(name: str, settings: dict[str, Any] | None = None) -> Any:
    """The method called ``name`` with some hyper-parameters changed."""
    if name not in METHODS:
        raise CgpflError(f"no method {name!r}; there are {', '.join(METHODS)}")
    return replace(METHODS[name], settings or {})


__all__ = [
    "CGPFL",
    "METHODS",
    "Algorithm",
    "Batch",
    "ClientData",
    "Cohort",
    "FedAvg",
    "Local",
    "Method",
    "PFedMe",
    "Task",
    "algorithm",
    "allowed",
    "from_values",
    "get_method",
    "hyper",
    "hyper_parameters",
    "normalised",
    "replace",
    "validate",
]
