"""Our models as PyTorch's, with our parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def net_of(model: str, start: Any) -> torch.nn.Module:
    """The same model as ours with parameters ``start``."""
    values = as_torch(model, start)
    sizes = [v.shape for v in values[::2]]  # of the weights
    nn = torch.nn
    dense = [nn.Linear(s[1], s[0]) for s in sizes if len(s) == 2]
    if model == "cnn":
        convolutions = [(nn.Conv2d(s[1], s[0], s[2]), nn.ReLU(), nn.MaxPool2d(2)) for s in sizes if len(s) == 4]
        layers = [part for parts in convolutions for part in parts]
        net = nn.Sequential(*layers, nn.Flatten(), dense[0], nn.ReLU(), dense[1])
    else:
        net = dense[0] if model == "mlr" else nn.Sequential(dense[0], nn.ReLU(), dense[1])
    with torch.no_grad():
        for p, v in zip(net.parameters(), values, strict=True):
            p.copy_(torch.tensor(v))
    return net


def as_torch(model: str, params: Any) -> list[np.ndarray]:
    """Our parameters (NumPy, with any leading axes) in the order and layout of the torch model's."""
    if model == "mlr":
        layers = [params]
    else:
        layers = [params[name] for name in ("conv1", "conv2", "hidden", "output") if name in params]
    weights = [la["weight"] for la in layers]
    if model == "cnn":
        colours = weights[0].shape[-1] // 25, layers[0]["bias"].shape[-1], layers[1]["bias"].shape[-1]
        weights[:2] = [_channels_first(w, c) for w, c in zip(weights[:2], colours[:2], strict=True)]
        flat = _channels_first(weights[2], colours[2])
        weights[2] = flat.reshape(*flat.shape[:-3], -1)
    return [v for w, la in zip(weights, layers, strict=True) for v in (w, la["bias"])]


def _channels_first(weight: np.ndarray, channels: int) -> np.ndarray:
    """``[..., out, side·side·channels]`` → ``[..., out, channels, side, side]``."""
    side = round((weight.shape[-1] // channels) ** 0.5)
    return np.moveaxis(weight.reshape(*weight.shape[:-1], side, side, channels), -1, -3)


def inputs(model: str, x: np.ndarray, to: torch.device) -> torch.Tensor:
    """Model inputs ``[..., pixels]``, for the CNN ``[..., C, H, W]``."""
    if model == "cnn":
        return torch.tensor(np.moveaxis(x, -1, -3).copy(), device=to)
    return torch.tensor(x.reshape(*x.shape[:-2], -1), device=to)
