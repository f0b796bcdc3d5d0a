"""Models: MLR, DNN, CNN, ResNet, GRU, Transformer, any of yours, and LoRA around them."""

from cgpfl.models.adapt import MODELS, Functions, as_model
from cgpfl.models.base import Model
from cgpfl.models.lora import LoRA
from cgpfl.models.nets import CNN, DNN, MLR
from cgpfl.models.resnet import ResNet
from cgpfl.models.sequence import GRU, Transformer
from cgpfl.models.torch import to_state_dict

__all__ = [
    "CNN",
    "DNN",
    "GRU",
    "MLR",
    "MODELS",
    "Functions",
    "LoRA",
    "Model",
    "ResNet",
    "Transformer",
    "as_model",
    "to_state_dict",
]
