"""Personalized federated learning with contextualized generalization.

>>> import cgpfl
>>> data = cgpfl.make_data("digits", "rotation", clients=40, seed=0)
>>> result = cgpfl.run("cgpfl-auto", data, model="mlr", rounds=50, seed=0)
>>> result.contexts.k
4
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cgpfl.advice import Advice, Inspection, advise, inspect
    from cgpfl.algorithms import (
        APFL,
        CFL,
        CGPFL,
        DAPPER,
        FLHC,
        IFCA,
        L2SGD,
        MAPPER,
        METHODS,
        MOCHA,
        SCAFFOLD,
        Algorithm,
        CGPFLAuto,
        Ditto,
        FedAvg,
        FedAvgFT,
        FedMD,
        FedOpt,
        FedPer,
        FedProx,
        HypCluster,
        L2SGDPlus,
        Local,
        Method,
        Parts,
        PerFedAvg,
        PFedMe,
        Wrapper,
        algorithm,
        component,
        get_method,
        hyper,
    )
    from cgpfl.auditing import Audit, audit
    from cgpfl.data import FederatedData, make_data
    from cgpfl.errors import CgpflError
    from cgpfl.experiment import Event, Experiment, Result, compare, forget, resume_experiment, run, run_experiment
    from cgpfl.inference import export, load_model, personalize, predict
    from cgpfl.metrics import METRICS, Metric, get_metric
    from cgpfl.models import CNN, DNN, GRU, MLR, LoRA, Model, ResNet, Transformer, to_state_dict
    from cgpfl.testing import check_algorithm

__version__ = "0.1.0"

_ROOMS = {
    "advice": "Advice Inspection advise inspect",
    "algorithms": (
        "APFL CFL CGPFL CGPFLAuto DAPPER Ditto FLHC FedAvg FedAvgFT FedMD FedOpt FedPer FedProx HypCluster IFCA L2SGD "
        "L2SGDPlus Local MAPPER MOCHA PFedMe Parts PerFedAvg SCAFFOLD METHODS Algorithm Method Wrapper algorithm "
        "component get_method hyper"
    ),
    "auditing": "Audit audit",
    "data": "FederatedData make_data",
    "errors": "CgpflError",
    "experiment": "Event Experiment Result compare forget resume_experiment run run_experiment",
    "inference": "export load_model personalize predict",
    "metrics": "METRICS Metric get_metric",
    "models": "CNN DNN GRU LoRA MLR Model ResNet Transformer to_state_dict",
    "testing": "check_algorithm",
}
_WHERE = {name: room for room, names in _ROOMS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a room when something of it is first used: ``import cgpfl`` itself stays quick."""
    if name not in _WHERE:
        raise AttributeError(f"module 'cgpfl' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"cgpfl.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_WHERE, "__version__"])


__all__ = [
    "APFL",
    "CFL",
    "CGPFL",
    "CNN",
    "DAPPER",
    "DNN",
    "FLHC",
    "GRU",
    "IFCA",
    "L2SGD",
    "MAPPER",
    "METHODS",
    "METRICS",
    "MLR",
    "MOCHA",
    "SCAFFOLD",
    "Advice",
    "Algorithm",
    "Audit",
    "CGPFLAuto",
    "CgpflError",
    "Ditto",
    "Event",
    "Experiment",
    "FedAvg",
    "FedAvgFT",
    "FedMD",
    "FedOpt",
    "FedPer",
    "FedProx",
    "FederatedData",
    "HypCluster",
    "Inspection",
    "L2SGDPlus",
    "LoRA",
    "Local",
    "Method",
    "Metric",
    "Model",
    "PFedMe",
    "Parts",
    "PerFedAvg",
    "ResNet",
    "Result",
    "Transformer",
    "Wrapper",
    "advise",
    "algorithm",
    "audit",
    "check_algorithm",
    "compare",
    "component",
    "export",
    "forget",
    "get_method",
    "get_metric",
    "hyper",
    "inspect",
    "load_model",
    "make_data",
    "personalize",
    "predict",
    "resume_experiment",
    "run",
    "run_experiment",
    "to_state_dict",
]
