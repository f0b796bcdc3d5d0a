"""After training: a new client's model, models to take away, predictions."""

from cgpfl.serve.exports import export
from cgpfl.serve.folder import Exported, Loaded, load_model
from cgpfl.serve.new_client import Personalized, personalize
from cgpfl.serve.predictions import predict
from cgpfl.serve.score import Score

__all__ = ["Exported", "Loaded", "Personalized", "Score", "export", "load_model", "personalize", "predict"]
