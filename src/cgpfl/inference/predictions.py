"""Use an exported model: classes and probabilities, from its folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.data import Form
from cgpfl.data.local import Samples, files_of, read_samples
from cgpfl.errors import CgpflError
from cgpfl.files import a_path
from cgpfl.inference.folder import FORMATS, GRAPH, Loaded, load_model
from cgpfl.inference.graph import onnx_logits

CHUNK = 1024
"""Samples at once: bounds memory."""


def predict(folder: str | Path, data: Any, *, using: str = "safetensors") -> pd.DataFrame:
    """Predictions of the model in an export folder: sample, class, probability and, where known, label.

    In regression "prediction" stands for class and probability, with several labels a column each. ``data``: raw
    samples ``[n, ...]``, a frame with the columns of training, or a file or folder as in
    :func:`cgpfl.data.load_local`, labels optional (of a folder with a test file, that file). ``using``: the file that
    computes, "safetensors" (by JAX) or "onnx" (by onnxruntime).
    """
    if using not in FORMATS:
        raise CgpflError(f"using {using!r}: must be {' or '.join(FORMATS)}")
    model = load_model(folder)
    x, y = _samples(data, model)
    return table(logits(model, a_path(folder, "model"), x, using), y, model.form)


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


def table(values: np.ndarray, y: np.ndarray | None, form: Form) -> pd.DataFrame:
    """Outputs ``[n, classes]`` as predictions; ``y``: labels as codes."""
    task, said = form.objective.task, form.said(values)
    columns: dict[str, Any] = {"sample": np.arange(len(values))}
    if task == "classification":
        z = values.astype(np.float64)
        powers = np.exp(z - z.max(axis=1, keepdims=True))
        columns |= {"class": said, "probability": powers.max(axis=1) / powers.sum(axis=1)}
        truth = y if y is None or not form.labels else np.array(form.labels)[y]
    elif task == "next-token":
        columns["next"], truth = said[:, -1], None
    elif said.ndim == 1:
        columns["prediction"], truth = said, None if y is None else y[:, 0]
    else:
        names = form.labels or [f"prediction {k}" for k in range(said.shape[1])]
        columns |= {str(name): said[:, k] for k, name in enumerate(names)}
        truth = None
    return pd.DataFrame(columns if truth is None else {**columns, "label": truth})


def _samples(data: Any, model: Loaded) -> Samples:
    if isinstance(data, str | Path):
        return read_samples(to_predict(a_path(data, "data")), model.form)
    return Samples(model.form.samples(data), None)
