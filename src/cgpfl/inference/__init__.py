"""After training: a new client's model, models to take away, predictions."""

from cgpfl.inference.exports import export
from cgpfl.inference.folder import Exported, Loaded, load_model
from cgpfl.inference.new_client import Personalized, personalize
from cgpfl.inference.predictions import predict
from cgpfl.inference.score import Score

__all__ = ["Exported", "Loaded", "Personalized", "Score", "export", "load_model", "personalize", "predict"]
