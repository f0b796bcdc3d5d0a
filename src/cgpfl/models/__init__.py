"""Models: MLR, DNN, CNN, ResNet, GRU, Transformer, any of yours, and LoRA around them."""

from cgpfl.models.adapt import MODELS as MODELS
from cgpfl.models.adapt import Functions as Functions
from cgpfl.models.adapt import as_model as as_model
from cgpfl.models.base import Model as Model
from cgpfl.models.lora import LoRA as LoRA
from cgpfl.models.nets import CNN as CNN
from cgpfl.models.nets import DNN as DNN
from cgpfl.models.nets import MLR as MLR
from cgpfl.models.resnet import ResNet as ResNet
from cgpfl.models.sequence import GRU as GRU
from cgpfl.models.sequence import Transformer as Transformer
from cgpfl.models.torch import to_state_dict as to_state_dict
