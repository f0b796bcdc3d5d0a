"""The methods, one file each, and the contract they keep."""

from __future__ import annotations

from typing import Any

from cgpfl.algorithms.apfl import APFL as APFL
from cgpfl.algorithms.base import Algorithm as Algorithm
from cgpfl.algorithms.base import ClientData as ClientData
from cgpfl.algorithms.base import Cohort as Cohort
from cgpfl.algorithms.base import Method as Method
from cgpfl.algorithms.base import Task as Task
from cgpfl.algorithms.cfl import CFL as CFL
from cgpfl.algorithms.cgpfl import CGPFL as CGPFL
from cgpfl.algorithms.cgpfl_auto import CGPFLAuto as CGPFLAuto
from cgpfl.algorithms.dapper import DAPPER as DAPPER
from cgpfl.algorithms.ditto import Ditto as Ditto
from cgpfl.algorithms.fedavg import FedAvg as FedAvg
from cgpfl.algorithms.fedavg_ft import FedAvgFT as FedAvgFT
from cgpfl.algorithms.fedmd import FedMD as FedMD
from cgpfl.algorithms.fedopt import FedOpt as FedOpt
from cgpfl.algorithms.fedper import FedPer as FedPer
from cgpfl.algorithms.fedprox import FedProx as FedProx
from cgpfl.algorithms.flhc import FLHC as FLHC
from cgpfl.algorithms.hypcluster import HypCluster as HypCluster
from cgpfl.algorithms.ifca import IFCA as IFCA
from cgpfl.algorithms.l2sgd import L2SGD as L2SGD
from cgpfl.algorithms.l2sgd import L2SGDPlus as L2SGDPlus
from cgpfl.algorithms.local import Local as Local
from cgpfl.algorithms.mapper import MAPPER as MAPPER
from cgpfl.algorithms.mocha import MOCHA as MOCHA
from cgpfl.algorithms.perfedavg import PerFedAvg as PerFedAvg
from cgpfl.algorithms.pfedme import PFedMe as PFedMe
from cgpfl.algorithms.scaffold import SCAFFOLD as SCAFFOLD
from cgpfl.algorithms.wrapper import Seamed as Seamed
from cgpfl.algorithms.wrapper import Wrapper as Wrapper
from cgpfl.batch import Batch as Batch
from cgpfl.hyperparameters import algorithm as algorithm
from cgpfl.hyperparameters import allowed as allowed
from cgpfl.hyperparameters import build
from cgpfl.hyperparameters import component as component
from cgpfl.hyperparameters import from_values as from_values
from cgpfl.hyperparameters import hyper as hyper
from cgpfl.hyperparameters import hyper_parameters as hyper_parameters
from cgpfl.hyperparameters import normalised as normalised
from cgpfl.hyperparameters import replace as replace
from cgpfl.hyperparameters import validate as validate
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

from cgpfl.algorithms.parts import Parts as Parts  # noqa: E402 - around any of these

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
