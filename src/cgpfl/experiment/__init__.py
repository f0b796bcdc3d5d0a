"""Experiments: configuration, run folders, checkpoints, results."""

from cgpfl.experiment.compare import compare as compare
from cgpfl.experiment.compared import Compared as Compared
from cgpfl.experiment.config import Experiment as Experiment
from cgpfl.experiment.events import Event as Event
from cgpfl.experiment.experiment import Finished as Finished
from cgpfl.experiment.experiment import resume_experiment as resume_experiment
from cgpfl.experiment.experiment import run as run
from cgpfl.experiment.experiment import run_experiment as run_experiment
from cgpfl.experiment.forget import Forgotten as Forgotten
from cgpfl.experiment.forget import forget as forget
from cgpfl.experiment.result import Contexts as Contexts
from cgpfl.experiment.result import PersonalModel as PersonalModel
from cgpfl.experiment.result import Result as Result
from cgpfl.experiment.run import Interrupted as Interrupted
from cgpfl.experiment.run import Progress as Progress
