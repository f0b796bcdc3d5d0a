"""The methods, one file each, and the contract they keep."""

from __future__ import annotations

from typing import Any

from cgpfl.algorithms.apfl import APFL
from cgpfl.algorithms.base import Algorithm, ClientData, Cohort, Method, Task
from cgpfl.algorithms.cfl import CFL
from cgpfl.algorithms.cgpfl import CGPFL
from cgpfl.algorithms.cgpfl_auto import CGPFLAuto
from cgpfl.algorithms.dapper import DAPPER
from cgpfl.algorithms.ditto import Ditto
from cgpfl.algorithms.fedavg import FedAvg
from cgpfl.algorithms.fedavg_ft import FedAvgFT
from cgpfl.algorithms.fedmd import FedMD
from cgpfl.algorithms.fedopt import FedOpt
from cgpfl.algorithms.fedper import FedPer
from cgpfl.algorithms.fedprox import FedProx
from cgpfl.algorithms.flhc import FLHC
from cgpfl.algorithms.hypcluster import HypCluster
from cgpfl.algorithms.ifca import IFCA
from cgpfl.algorithms.l2sgd import L2SGD, L2SGDPlus
from cgpfl.algorithms.local import Local
from cgpfl.algorithms.mapper import MAPPER
from cgpfl.algorithms.mocha import MOCHA
from cgpfl.algorithms.perfedavg import PerFedAvg
from cgpfl.algorithms.pfedme import PFedMe
from cgpfl.algorithms.scaffold import SCAFFOLD
from cgpfl.algorithms.wrapper import Seamed, Wrapper
from cgpfl.batch import Batch
from cgpfl.hyperparameters import (
    algorithm,
    allowed,
    build,
    component,
    from_values,
    hyper,
    hyper_parameters,
    normalised,
    replace,
    validate,
)
from cgpfl.registry import Registry

METHODS: Registry = Registry(
    "method",
    {
        "local": Local(),
        "fedavg": FedAvg(),
        "fedavg-ft": FedAvgFT(),
        "fedprox": FedProx(),
        "fedavgm": FedOpt(optimizer="momentum", server_rate=0.3),
        "fedadagrad": FedOpt(optimizer="adagrad", momentum=0.0, server_rate=0.1),
        "fedadam": FedOpt(optimizer="adam"),
        "fedyogi": FedOpt(optimizer="yogi"),
        "scaffold": SCAFFOLD(),
        "fedper": FedPer(),
        "apfl": APFL(),
        "apfl-fixed": APFL(adaptive=False),
        "l2sgd": L2SGD(),
        "l2sgd-plus": L2SGDPlus(),
        "per-fedavg": PerFedAvg(),
        "per-fedavg-fo": PerFedAvg(order="fo"),
        "ditto": Ditto(),
        "pfedme": PFedMe(),
        "mapper": MAPPER(),
        "dapper": DAPPER(),
        "fedmd": FedMD(),
        "mocha": MOCHA(),
        "cfl": CFL(),
        "fl-hc": FLHC(),
        "ifca": IFCA(),
        "hypcluster": HypCluster(),
        "cgpfl": CGPFL(),
        "cgpfl-heur": CGPFL(contexts="auto"),
        "cgpfl-auto": CGPFLAuto(),
    },
)
"""Method names, each with the settings the name stands for."""

from cgpfl.algorithms.parts import Parts  # noqa: E402 - around any of these

METHODS["parts"] = Parts()


def get_method(name: str, settings: dict[str, Any] | None = None) -> Any:
    """The method called ``name`` (one of ``METHODS``, or package.module:Name) with some hyper-parameters changed."""
    return build(METHODS, {"name": name, **(settings or {})}, name)


def describe(method: Any) -> str:
    """What a method does, in a line; where a name stands for other settings than the class's own, those."""
    line = (type(method).__doc__ or "").splitlines()[0].rstrip(".")
    own = {n: f.default for n, f in hyper_parameters(method).items()}
    other = [f"{n} = {getattr(method, n)}" for n in own if getattr(method, n) != own[n]]
    return f"{line}; {', '.join(other)}" if other else line


__all__ = [
    "APFL",
    "CFL",
    "CGPFL",
    "DAPPER",
    "FLHC",
    "IFCA",
    "L2SGD",
    "MAPPER",
    "METHODS",
    "MOCHA",
    "SCAFFOLD",
    "Algorithm",
    "Batch",
    "CGPFLAuto",
    "ClientData",
    "Cohort",
    "Ditto",
    "FedAvg",
    "FedAvgFT",
    "FedMD",
    "FedOpt",
    "FedPer",
    "FedProx",
    "HypCluster",
    "L2SGDPlus",
    "Local",
    "Method",
    "PFedMe",
    "Parts",
    "PerFedAvg",
    "Seamed",
    "Task",
    "Wrapper",
    "algorithm",
    "allowed",
    "component",
    "describe",
    "from_values",
    "get_method",
    "hyper",
    "hyper_parameters",
    "normalised",
    "replace",
    "validate",
]
