"""Experiments: configuration, run folders, checkpoints, results."""

from cgpfl.experiment.compare import compare
from cgpfl.experiment.compared import Compared
from cgpfl.experiment.config import Experiment
from cgpfl.experiment.events import Event
from cgpfl.experiment.experiment import Finished, resume_experiment, run, run_experiment
from cgpfl.experiment.forget import Forgotten, forget
from cgpfl.experiment.result import Contexts, PersonalModel, Result
from cgpfl.experiment.run import Interrupted, Progress

__all__ = [
    "Compared",
    "Contexts",
    "Event",
    "Experiment",
    "Finished",
    "Forgotten",
    "Interrupted",
    "PersonalModel",
    "Progress",
    "Result",
    "compare",
    "forget",
    "resume_experiment",
    "run",
    "run_experiment",
]
