"""The nodes and arrays of an ONNX graph.

``onnx`` and ``onnxruntime`` are the extra ``export``; they are imported when a graph is made or run.
"""

from __future__ import annotations

import hashlib
import importlib
from typing import Any

import numpy as np

from cgpfl.errors import CgpflError


class NoGraphError(CgpflError):
    """Why a model has no graph."""


def optional(name: str) -> Any:
    """A module of the extra ``export``."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CgpflError(
            f"format onnx: needs {name}, which is not installed; pip install 'cgpfl[export]', or use safetensors alone"
        ) from error


class Graph:
    """Nodes in order, and the arrays they read. Each call adds a node and returns its output's name."""

    def __init__(self, helper: Any, numpy_helper: Any) -> None:
        self.helper, self.numpy_helper = helper, numpy_helper
        self.nodes: list[Any] = []
        self.arrays: list[Any] = []
        self.kept: dict[Any, str] = {}

    def constant(self, name: str, values: Any) -> str:
        self.arrays.append(self.numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def array(self, values: Any) -> str:
        """An array of the graph without a name of its own; there once, however often it is read."""
        values = np.asarray(values)
        content = (values.shape, values.dtype.str, hashlib.sha256(values.tobytes()).digest())
        if content not in self.kept:
            self.kept[content] = self.constant(f"array_{len(self.arrays)}", values)
        return self.kept[content]

    def cast(self, x: str, dtype: Any) -> str:
        return self.add("Cast", x, to=self.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def add(self, kind: str, *inputs: str, output: str = "", **settings: Any) -> str:
        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, list(inputs), [name], **settings))
        return name

    def dense(self, x: str, name: str, layer: Any, output: str = "") -> str:
        """x·weightᵀ + bias of ``x [n, in]``."""
        weight = self.constant(f"{name}weight", layer["weight"])
        return self.add("Gemm", x, weight, self.constant(f"{name}bias", layer["bias"]), output=output, transB=1)
