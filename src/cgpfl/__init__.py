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
    from cgpfl.advice import Advice as Advice
    from cgpfl.advice import Inspection as Inspection
    from cgpfl.advice import advise as advise
    from cgpfl.advice import inspect as inspect
    from cgpfl.algorithms import APFL as APFL
    from cgpfl.algorithms import CFL as CFL
    from cgpfl.algorithms import CGPFL as CGPFL
    from cgpfl.algorithms import DAPPER as DAPPER
    from cgpfl.algorithms import FLHC as FLHC
    from cgpfl.algorithms import IFCA as IFCA
    from cgpfl.algorithms import L2SGD as L2SGD
    from cgpfl.algorithms import MAPPER as MAPPER
    from cgpfl.algorithms import METHODS as METHODS
    from cgpfl.algorithms import MOCHA as MOCHA
    from cgpfl.algorithms import SCAFFOLD as SCAFFOLD
    from cgpfl.algorithms import Algorithm as Algorithm
    from cgpfl.algorithms import CGPFLAuto as CGPFLAuto
    from cgpfl.algorithms import Ditto as Ditto
    from cgpfl.algorithms import FedAvg as FedAvg
    from cgpfl.algorithms import FedAvgFT as FedAvgFT
    from cgpfl.algorithms import FedMD as FedMD
    from cgpfl.algorithms import FedOpt as FedOpt
    from cgpfl.algorithms import FedPer as FedPer
    from cgpfl.algorithms import FedProx as FedProx
    from cgpfl.algorithms import HypCluster as HypCluster
    from cgpfl.algorithms import L2SGDPlus as L2SGDPlus
    from cgpfl.algorithms import Local as Local
    from cgpfl.algorithms import Method as Method
    from cgpfl.algorithms import Parts as Parts
    from cgpfl.algorithms import PerFedAvg as PerFedAvg
    from cgpfl.algorithms import PFedMe as PFedMe
    from cgpfl.algorithms import Wrapper as Wrapper
    from cgpfl.algorithms import algorithm as algorithm
    from cgpfl.algorithms import component as component
    from cgpfl.algorithms import get_method as get_method
    from cgpfl.algorithms import hyper as hyper
    from cgpfl.auditing import Audit as Audit
    from cgpfl.auditing import audit as audit
    from cgpfl.data import FederatedData as FederatedData
    from cgpfl.data import make_data as make_data
    from cgpfl.errors import CgpflError as CgpflError
    from cgpfl.experiment import Event as Event
    from cgpfl.experiment import Experiment as Experiment
    from cgpfl.experiment import Result as Result
    from cgpfl.experiment import compare as compare
    from cgpfl.experiment import forget as forget
    from cgpfl.experiment import resume_experiment as resume_experiment
    from cgpfl.experiment import run as run
    from cgpfl.experiment import run_experiment as run_experiment
    from cgpfl.inference import export as export
    from cgpfl.inference import load_model as load_model
    from cgpfl.inference import personalize as personalize
    from cgpfl.inference import predict as predict
    from cgpfl.metrics import METRICS as METRICS
    from cgpfl.metrics import Metric as Metric
    from cgpfl.metrics import get_metric as get_metric
    from cgpfl.models import CNN as CNN
    from cgpfl.models import DNN as DNN
    from cgpfl.models import GRU as GRU
    from cgpfl.models import MLR as MLR
    from cgpfl.models import LoRA as LoRA
    from cgpfl.models import Model as Model
    from cgpfl.models import ResNet as ResNet
    from cgpfl.models import Transformer as Transformer
    from cgpfl.models import to_state_dict as to_state_dict
    from cgpfl.testing import check_algorithm as check_algorithm

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


__all__ = list(_WHERE)
