"""Models as ONNX graphs: raw samples in, logits out, the scaling inside.

MLR, DNN and CNN are written by hand, all others from their JAX program (:mod:`cgpfl.inference.lowering`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cgpfl.errors import CgpflError
from cgpfl.experiment.result import PersonalModel
from cgpfl.inference.lowering import lower
from cgpfl.inference.nodes import Graph, optional
from cgpfl.models import CNN, DNN, MLR, Model
from cgpfl.objectives import Regression

OPSET, IR = 17, 8
"""Old enough for runtimes since 2022."""
TOLERANCE = 1e-5
"""How far a graph's logits may be from JAX's, where the largest is up to 1; relative to the largest above."""
INPUT, OUTPUT = "x", "logits"
PREDICTION = "prediction"
"""Outputs in the targets' units, in regression."""


def _mlr(graph: Graph, model: Any, params: Any, x: str) -> None:
    graph.dense(graph.add("Flatten", x), "", params, OUTPUT)


def _dnn(graph: Graph, model: Any, params: Any, x: str) -> None:
    hidden = graph.add("Relu", graph.dense(graph.add("Flatten", x), "hidden.", params["hidden"]))
    graph.dense(hidden, "output.", params["output"], OUTPUT)


def _cnn(graph: Graph, model: Any, params: Any, x: str) -> None:
    colours = model.shape[2] if len(model.shape) == 3 else 1
    whole = graph.constant("image", np.array([-1, *model.shape[:2], colours], np.int64))
    x = graph.add("Transpose", graph.add("Reshape", x, whole), perm=[0, 3, 1, 2])
    pad = model.kernel // 2 if min(model.shape[:2]) < 16 else 0
    for name in ("conv1", "conv2"):
        matrix = np.asarray(params[name]["weight"])  # [out, kernel·kernel·in]
        kernel = matrix.reshape(len(matrix), model.kernel, model.kernel, -1).transpose(0, 3, 1, 2)
        weight = graph.constant(f"{name}.weight", kernel)
        x = graph.add("Conv", x, weight, graph.constant(f"{name}.bias", params[name]["bias"]), pads=[pad] * 4)
        x = graph.add("MaxPool", graph.add("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    flat = graph.add("Flatten", graph.add("Transpose", x, perm=[0, 2, 3, 1]))  # colours last, as the dense layer has it
    hidden = graph.add("Relu", graph.dense(flat, "hidden.", params["hidden"]))
    graph.dense(hidden, "output.", params["output"], OUTPUT)


GRAPHS: dict[type[Model], Callable[[Graph, Any, Any, str], None]] = {MLR: _mlr, DNN: _dnn, CNN: _cnn}
"""What is written by hand; a subclass may compute something else, so it is not among them."""


def _answer(model: PersonalModel) -> tuple[int, ...]:
    """The shape of one sample's logits."""
    form = jax.ShapeDtypeStruct((1, *model.model.shape), np.float32)
    return tuple(jax.eval_shape(model.model.apply, model.params, form).shape[1:])


def onnx_bytes(model: PersonalModel) -> bytes:
    """The model as a serialised ONNX graph: ``x`` float32 ``[n, *shape]`` → ``logits`` ``[n, classes]``.

    In regression ``prediction`` is the same in the targets' units. A table's inputs are named in its metadata.
    """
    onnx = optional("onnx")
    graph = Graph(onnx.helper, onnx.numpy_helper)
    scale = graph.constant("scale", model.form.units()[0])
    shift = graph.constant("shift", model.form.units()[1])
    scaled = graph.add("Add", graph.add("Mul", INPUT, scale), shift)
    params = jax.tree.map(np.asarray, model.params)
    if type(model.model) in GRAPHS:
        GRAPHS[type(model.model)](graph, model.model, params, scaled)
    else:
        graph.add("Identity", lower(graph, model.model.apply, params, tuple(model.model.shape), scaled), output=OUTPUT)
    number, info = onnx.TensorProto.FLOAT, onnx.helper.make_tensor_value_info
    outputs = [info(OUTPUT, number, ["n", *_answer(model)])]
    objective = model.form.objective
    if isinstance(objective, Regression):
        spread, centre = (np.asarray(v, np.float32) for v in (objective.spread, objective.centre))
        scaled_back = graph.add("Mul", OUTPUT, graph.constant("spread", spread))
        graph.add("Add", scaled_back, graph.constant("centre", centre), output=PREDICTION)
        outputs.append(info(PREDICTION, number, ["n", *_answer(model)]))
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "cgpfl",
            [info(INPUT, number, ["n", *model.model.shape])],
            outputs,
            graph.arrays,
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="cgpfl",
    )
    if model.form.columns is not None:
        onnx.helper.set_model_props(made, {"inputs": json.dumps(model.form.columns.inputs)})
    onnx.checker.check_model(made)
    content: bytes = made.SerializeToString()
    return content


def onnx_logits(path: Path, x: np.ndarray) -> np.ndarray:
    """Logits ``[n, classes]`` of raw samples ``x [n, *shape]``, by onnxruntime."""
    runtime = optional("onnxruntime")
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise CgpflError(f"model {path}: cannot be read by onnxruntime ({type(error).__name__})") from error
    out: np.ndarray = session.run([OUTPUT], {INPUT: np.asarray(x, np.float32)})[0]
    return out


def check_graph(path: Path, model: PersonalModel, x: np.ndarray) -> float:
    """The largest difference of the graph's logits from JAX's on samples ``x``; more than the tolerance is refused."""
    with jax.default_matmul_precision("highest"):  # an accelerator's quick products have three digits
        wanted = model.logits(x)
    apart = float(np.abs(onnx_logits(path, x) - wanted).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(wanted).max()))
    if not apart <= allowed:  # NaN is too far, too
        raise CgpflError(
            f"format onnx: the graph's logits are {apart:.1e} from the model's on {len(x)} samples, allowed are "
            f"{allowed:.1e}; nothing was written"
        )
    return apart
