"""Models: MLR, DNN, CNN, any of yours, and LoRA around them."""

from cgpfl.models.adapt import MODELS, Functions, as_model
from cgpfl.models.base import Model
from cgpfl.models.lora import LoRA
from cgpfl.models.nets import CNN, DNN, MLR

__all__ = ["CNN", "DNN", "MLR", "MODELS", "Functions", "LoRA", "Model", "as_model"]
