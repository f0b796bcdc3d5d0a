"""PyTorch modules: their graph, by ``torch.export``, as a function of JAX arrays.

PyTorch writes down what a module computes as operations of ATen (:mod:`cgpfl.models.aten` has them in JAX). It does so
twice, as it trains and as it is used: dropout is only in the first. torch is an optional dependency: who has a module
has it.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.errors import CgpflError
from cgpfl.models import aten_layers, aten_shapes  # noqa: F401 (their operations enter the table)
from cgpfl.models.adapt import Functions
from cgpfl.models.aten import OPERATIONS, UnsupportedError
from cgpfl.models.aten_random import RANDOM, Draw
from cgpfl.models.base import Params
from cgpfl.models.names import flat, nested

OF_NUMBERS: dict[Any, Callable[..., Any]] = {
    operator.getitem: operator.getitem,
    **{f: f for f in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg)},
    operator.truediv: operator.truediv,
}
"""What is computed of shapes, and parts of what an operation returns."""
IGNORED = ("device", "pin_memory", "layout", "memory_format", "non_blocking", "generator")
"""Settings of where and how an array lies in memory."""
WAY_OUT = "write that part in flax, or with operations that the guide on PyTorch modules lists"


@dataclass(frozen=True, eq=False)
class TorchModel(Functions):
    """A PyTorch module as a model; parameters by the names of its ``state_dict``, one dictionary a submodule."""

    constants: dict[str, np.ndarray] = field(default_factory=dict)
    """Buffers and frozen parameters."""
    shared: dict[str, str] = field(default_factory=dict)
    """Names of the ``state_dict`` that are another parameter's (tied weights)."""


def to_state_dict(model: TorchModel, params: Params) -> dict[str, Any]:
    """The ``state_dict`` of a model that came from a PyTorch module, as ``module.load_state_dict`` takes it."""
    import torch

    if not isinstance(model, TorchModel):
        raise CgpflError(f"model: {type(model).__name__} does not come from PyTorch; it has no state_dict")
    arrays = model.constants | {name: np.asarray(value) for name, value in flat(params).items()}
    arrays |= {name: arrays[other] for name, other in model.shared.items()}
    return {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}


def from_torch(module: Any, shape: tuple[int, ...], classes: int) -> TorchModel:
    """A PyTorch module for inputs of ``shape``. It carries its parameters: they are the initial ones.

    Images come channels first, ``[B, C, H, W]``, where the module has convolutions; tokens as integers where it has
    embeddings. If it does not take that, it gets what the data has.
    """
    _check(module)
    was = module.training
    try:
        layout, resting = _exported(module.train(False), shape)
        learning = _graph(module.train(), layout)
    finally:
        module.train(was)
    first: dict[int, str] = {}
    names = [(name, first.setdefault(id(p), name)) for name, p in module.named_parameters(remove_duplicate=False)]
    shared = {name: one for name, one in names if name != one}
    values = {name: _array(p) for name, p in module.named_parameters() if p.requires_grad}
    frozen = {name: _array(p) for name, p in module.named_parameters() if not p.requires_grad}
    written = module.state_dict()
    kept = {name: _array(b) for name, b in module.named_buffers() if name in written}
    using, training = (_Program(graph, shared, frozen) for graph in (resting, learning))
    initial = nested({name: jnp.asarray(v) for name, v in values.items()})
    draw = Draw(jax.random.key(0))
    jax.eval_shape(lambda x: training(flat(initial), layout.arrange(x), draw), jnp.zeros((2, *shape)))

    def forward(params: Params, x: Array, key: Array | None = None) -> Array:
        program = using if key is None else training
        return program(flat(params), layout.arrange(x), Draw(key))

    return TorchModel(
        shape,
        classes,
        start=lambda key: initial,
        forward=forward,
        stochastic=draw.count > 0,
        constants=frozen | kept,
        shared=shared,
    )


def _check(module: Any) -> None:
    """Statistics that run along beside the parameters have no mean over clients."""
    for name, part in module.named_modules():
        kind = type(part).__name__
        if getattr(part, "track_running_stats", False):
            norm = f"nn.GroupNorm(groups, {part.num_features})"
            raise CgpflError(
                f"model: {name or 'the module'} ({kind}) keeps running statistics, which cannot be averaged as "
                f"parameters; replace it by {norm}"
            )
    for name, value in module.named_parameters():
        if value.is_complex():
            raise CgpflError(f"model: parameter {name} is complex; must be real")


@dataclass(frozen=True)
class _Layout:
    """How the data's inputs ``[B, *shape]`` are given to the module."""

    shape: tuple[int, ...]
    images: bool
    tokens: bool

    def arrange(self, x: Array) -> Array:
        """Inputs as the module has them."""
        if self.images:
            x = x[:, None] if len(self.shape) == 2 else jnp.moveaxis(x, 3, 1)
        return jnp.round(x).astype(jnp.int32) if self.tokens else x

    def example(self) -> Any:
        """Two inputs of zeros, as PyTorch has them."""
        import torch

        height_width, colours = self.shape[:2], self.shape[2:] or (1,)
        form = (*colours, *height_width) if self.images else self.shape
        return torch.zeros((2, *form), dtype=torch.int64 if self.tokens else torch.float32)


def _exported(module: Any, shape: tuple[int, ...]) -> tuple[_Layout, Any]:
    """The first way to give inputs that the module takes, and its graph."""
    kinds = {type(part).__name__ for part in module.modules()}
    images = len(shape) in (2, 3) and "Conv2d" in kinds
    tokens = "Embedding" in kinds
    ways = {(images, tokens): None, (False, tokens): None, (images, False): None, (False, False): None}
    layouts = [_Layout(shape, *way) for way in ways]
    reasons = []
    for layout in layouts:
        try:
            return layout, _graph(module, layout)
        except CgpflError:
            raise
        except Exception as error:
            text = [line.strip() for line in str(error).splitlines() if line.strip()]
            reasons.append(text[0] if text else type(error).__name__)
    raise CgpflError(
        f"model: {type(module).__name__} cannot be written down by torch.export for inputs "
        f"{list(layouts[0].example().shape)}: {reasons[0]}"
    )


def _graph(module: Any, layout: _Layout) -> Any:
    """The module's graph: as PyTorch's layers are, or decomposed where one of them is not known here."""
    import torch

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # its fused layers have no gradient
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sizes = ({0: torch.export.Dim.DYNAMIC},)
            made = torch.export.export(module, (layout.example(),), dynamic_shapes=sizes)
            found = made
            tables: tuple[dict[Any, Any] | None, ...] = ({}, None)
            for table in tables:  # without changes in place; of ATen's core
                if _unknown(found):
                    found = made.run_decompositions(table)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    unknown = _unknown(found)
    if not unknown:
        return found
    node = unknown[0]
    raise CgpflError(f"model: {_where(node)}: operation {_name(node.target)} is not supported; {WAY_OUT}")


def _unknown(program: Any) -> list[Any]:
    calls = [node for node in program.graph.nodes if node.op not in ("placeholder", "output")]
    return [
        n for n in calls if n.op != "call_function" or not (n.target in OF_NUMBERS or _name(n.target) in OPERATIONS)
    ]


def _name(target: Any) -> str:
    """``aten.relu.default`` → ``relu.default``."""
    return str(target).removeprefix("aten.")


def _where(node: Any) -> str:
    """The submodule that an operation is of."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = (kind if isinstance(kind, str) else getattr(kind, "__name__", "")).rpartition(".")[2]
    return f"{path or 'the module'} ({kind})" if kind else path or "the module"


def _array(tensor: Any) -> np.ndarray:
    """A tensor as it is computed with here: real numbers in 32 bits."""
    tensor = tensor.detach().cpu()
    return np.array((tensor.float() if tensor.is_floating_point() else tensor).numpy())


class _Program:
    """A graph of ATen's operations, run on JAX arrays."""

    def __init__(self, exported: Any, shared: dict[str, str], frozen: dict[str, np.ndarray]) -> None:
        signature = exported.graph_signature
        self.nodes = list(exported.graph.nodes)
        names = {place: shared.get(name, name) for place, name in signature.inputs_to_parameters.items()}
        self.parameters = {place: name for place, name in names.items() if name not in frozen}
        self.inputs = set(signature.user_inputs)
        if signature.buffers_to_mutate:
            name = next(iter(signature.buffers_to_mutate.values()))
            raise CgpflError(f"model: the module changes its buffer {name} as it computes; it must leave all as it is")
        tensors = {**exported.state_dict, **exported.constants}
        held = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        self.constants = {place: _array(tensors[name]) for place, name in held.items()}
        self.constants |= {place: frozen[name] for place, name in names.items() if name in frozen}

    def __call__(self, params: dict[str, Array], x: Array, draw: Draw) -> Array:
        values: dict[Any, Any] = {}

        def known(arg: Any) -> Any:
            if isinstance(arg, list | tuple):
                return type(arg)(map(known, arg)) if type(arg) in (list, tuple) else [known(a) for a in arg]
            return values[arg] if type(arg).__name__ == "Node" else arg

        for node in self.nodes:
            if node.op == "placeholder":
                values[node] = self._given(node.name, params, x)
            elif node.op == "output":
                answers = known(node.args[0])
                if len(answers) != 1:
                    raise CgpflError(f"model: the module answers {len(answers)} things; must be one, the logits")
                return answers[0]
            elif node.target in OF_NUMBERS:
                values[node] = OF_NUMBERS[node.target](*known(node.args))
            else:
                name = _name(node.target)
                settings = {key: known(value) for key, value in node.kwargs.items() if key not in IGNORED}
                more = {"draw": draw} if name in RANDOM else {}
                try:
                    values[node] = OPERATIONS[name](*known(node.args), **settings, **more)
                except UnsupportedError as error:
                    raise CgpflError(f"model: {_where(node)}: {name.partition('.')[0]} {error}") from error
        raise CgpflError("model: the module answers nothing")

    def _given(self, place: str, params: dict[str, Array], x: Array) -> Any:
        if place in self.parameters:
            return params[self.parameters[place]]
        return jnp.asarray(self.constants[place]) if place in self.constants else x
