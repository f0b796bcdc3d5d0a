"""Experiments: configuration, run folders, checkpoints, results."""

from cgpfl.experiment.compare import compare
from cgpfl.experiment.compared import Compared
from cgpfl.experiment.config import Experiment
from cgpfl.experiment.events import Event
from cgpfl.experiment.experiment import Finished, resume_experiment, run, run_experiment
from cgpfl.experiment.result import Contexts, PersonalModel, Result
from cgpfl.experiment.run import Interrupted, Progress

__all__ = [
    "Compared",
    "Contexts",
    "Event",
    "Experiment",
    "Finished",
    "Interrupted",
    "PersonalModel",
    "Progress",
    "Result",
    "compare",
    "resume_experiment",
    "run",
    "run_experiment",
]
