"""Models: MLR, DNN, CNN, and any of yours."""

from cgpfl.models.adapt import MODELS, Functions, as_model
from cgpfl.models.base import Model
from cgpfl.models.nets import CNN, DNN, MLR

__all__ = ["CNN", "DNN", "MLR", "MODELS", "Functions", "Model", "as_model"]
