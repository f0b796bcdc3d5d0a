"""Use an exported model: classes and probabilities, from its folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.data.local import Samples, files_of, read_samples
from cgpfl.errors import CgpflError
from cgpfl.inference.folder import FORMATS, GRAPH, Loaded, load_model
from cgpfl.inference.graph import onnx_logits

CHUNK = 1024
"""Samples at once: bounds memory."""


def predict(folder: str | Path, data: str | Path | np.ndarray, *, using: str = "safetensors") -> pd.DataFrame:
    """Predictions of the model in an export folder: columns sample, class, probability and, where known, label.

    ``data``: raw samples ``[n, ...]``, or a file or folder as in :func:`cgpfl.data.load_local`, labels optional (of a
    folder with a test file, that file). ``using``: the file that computes, "safetensors" (by JAX) or "onnx" (by
    onnxruntime).
    """
    if using not in FORMATS:
        raise CgpflError(f"using {using!r}: must be {' or '.join(FORMATS)}")
    model = load_model(folder)
    x, y = _samples(data, model)
    return table(logits(model, Path(folder), x, using), y)


def to_predict(path: Path) -> Path:
    """The file of a client whose samples are predicted: a folder's test file, or the one there is."""
    train, test = files_of(path)
    return test or train


def logits(model: Loaded, folder: Path, x: np.ndarray, using: str) -> np.ndarray:
    """Logits ``[n, classes]`` of raw samples, computed a chunk at a time."""
    graph = folder / GRAPH
    if using == "onnx" and not graph.exists():
        raise CgpflError(f"model {folder}: has no {GRAPH}; export it with --format safetensors,onnx")
    chunks = [x[start : start + CHUNK] for start in range(0, len(x), CHUNK)]
    return np.concatenate([onnx_logits(graph, c) if using == "onnx" else model.logits(c) for c in chunks])


def table(values: np.ndarray, y: np.ndarray | None) -> pd.DataFrame:
    """Logits ``[n, classes]`` as predictions."""
    z = values.astype(np.float64)
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    chosen = z.argmax(axis=1)
    columns: dict[str, Any] = {
        "sample": np.arange(len(z)),
        "class": chosen,
        "probability": powers[np.arange(len(z)), chosen] / powers.sum(axis=1),
    }
    return pd.DataFrame(columns if y is None else {**columns, "label": y})


def _samples(data: str | Path | np.ndarray, model: Loaded) -> Samples:
    shape = tuple(model.model.shape)
    if isinstance(data, str | Path):
        return read_samples(to_predict(Path(data)), shape, model.model.classes)
    x = np.asarray(data)
    if x.shape[1:] != shape or not len(x):
        raise CgpflError(f"data: x has shape {x.shape}; must be {('n', *shape)}")
    return Samples(x, None)
