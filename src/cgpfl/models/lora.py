"""LoRA: a model whose matrices are only trained in a product of two thin ones.

Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang, Chen: LoRA: Low-Rank Adaptation of Large Language Models. ICLR 2022.

    W = base + (alpha / rank)·b·a        a [rank, in], b [out, rank]; b starts at 0

W is never formed where a matrix multiplies something: x·Wᵀ = x·baseᵀ + (alpha / rank)·(x·aᵀ)·bᵀ. With a base that is
frozen, all clients' inputs then meet one base, whatever their adapters are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import JaxprEqn, Literal

from cgpfl.batch import Batch
from cgpfl.errors import CgpflError
from cgpfl.models.base import Model, Params
from cgpfl.registry import path_of
from cgpfl.tree import matching, paths


class LowRank(NamedTuple):
    """The matrix base + left·right, not formed: ``base [m, n]``, ``left [m, r]``, ``right [r, n]``."""

    base: Array
    left: Array
    right: Array

    def formed(self) -> Array:
        """The matrix itself, ``[m, n]``."""
        return self.base + self.left @ self.right


@dataclass(frozen=True)
class LoRA(Model):
    """The model ``of`` with adapters: parameters ``{"base": its own, "lora": {path: {"a", "b"}}}``.

    ``targets`` are patterns of the paths of its matrices. What it minimises is what ``of`` does, regulariser included.
    """

    shape: tuple[int, ...] = dataclasses.field(init=False)
    classes: int = dataclasses.field(init=False)
    l2: float = dataclasses.field(init=False, default=0.0)
    objective: Any = dataclasses.field(default=None, kw_only=True)
    frozen: str = dataclasses.field(default="base.*", kw_only=True)
    of: Model
    rank: int = 4
    alpha: float = 4.0
    targets: str = "*weight"
    name: str = ""
    """By which the model inside is found again; "" = as its class is called."""

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise CgpflError(f"model lora: rank = {self.rank!r}: must be a positive integer")
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, int | float) or not 0 < self.alpha < 1e9:
            raise CgpflError(f"model lora: alpha = {self.alpha!r}: must be a number > 0")
        inside = self.of if self.objective is None else dataclasses.replace(self.of, objective=self.objective)
        for field in ("shape", "classes", "l2", "objective"):
            object.__setattr__(self, field, getattr(inside, field))
        object.__setattr__(self, "of", inside)
        object.__setattr__(self, "name", self.name or _name(inside))

    def init(self, key: Array) -> Params:
        """The base as the model inside starts, and adapters that change nothing yet."""
        base, names = self.of.init(key), self.adapted()
        shapes = dict(zip(paths(base), (v.shape for v in jax.tree.leaves(base)), strict=True))
        lora = {}
        for own, name in zip(jax.random.split(jax.random.fold_in(key, STREAM), len(names)), names, strict=True):
            rows, columns = shapes[name]
            bound = columns**-0.5
            a = jax.random.uniform(own, (self.rank, columns), minval=-bound, maxval=bound)
            lora[name] = {"a": a, "b": jnp.zeros((rows, self.rank))}
        return {"base": base, "lora": lora}

    def adapted(self) -> list[str]:
        """Paths of the matrices that have adapters."""
        base = jax.eval_shape(self.of.init, jax.random.key(0))
        two = [name for name, v in zip(paths(base), jax.tree.leaves(base), strict=True) if len(v.shape) == 2]
        found = matching(self.targets, two, "model lora: targets")
        if not found:
            raise CgpflError(f"model lora: targets = {self.targets!r}: names no matrix; there are {', '.join(two)}")
        return sorted(found)

    def effective(self, params: Params) -> Params:
        """Parameters of the model inside, its matrices formed."""
        leaves, structure = jax.tree.flatten(params["base"])
        return jax.tree.unflatten(structure, [_formed(v) for v in self._lazy(params, leaves)])

    def apply(self, params: Params, x: Array) -> Array:
        return self._through(self.of.apply, params, x)

    def loss(self, params: Params, batch: Batch) -> Array:
        return self._through(self.of.loss, params, batch)

    def score(self, params: Params, batch: Batch) -> tuple[Array, Array]:
        return self._through(self.of.score, params, batch)

    def penalty(self, params: Params) -> Array | float:
        return 0.0 if self.l2 == 0.0 else self._through(self.of.penalty, params)

    def settings(self) -> dict[str, Any]:
        """Its own, and those of the model inside."""
        own = {"of": self.name, "rank": self.rank, "alpha": self.alpha}
        return {**own, "targets": self.targets, **self.of.settings()}

    def _lazy(self, params: Params, leaves: Sequence[Any]) -> list[Any]:
        """The base's leaves, those with adapters as matrices that are not formed."""
        lora, scale = params["lora"], self.alpha / self.rank
        names = paths(params["base"])
        return [
            LowRank(v, scale * lora[name]["b"], lora[name]["a"]) if name in lora else v
            for name, v in zip(names, leaves, strict=True)
        ]

    def _through(self, f: Callable[..., Any], params: Params, *args: Any) -> Any:
        """``f(effective parameters, *args)``, step by step as ``f`` is written."""
        program, out = jax.make_jaxpr(f, return_shape=True)(params["base"], *args)
        values = self._lazy(params, jax.tree.leaves(params["base"]))
        found = _run(program.jaxpr, program.consts, [*values, *jax.tree.leaves(args)])
        return jax.tree.unflatten(jax.tree.structure(out), [_formed(v) for v in found])


STREAM = 0x10A
"""Folded into the key of the initial parameters for the adapters': the base is that of the model alone."""


def lora(
    shape: tuple[int, ...],
    classes: int,
    of: str = "dnn",
    rank: int = 4,
    alpha: float = 4.0,
    targets: str = "*weight",
    **settings: Any,
) -> LoRA:
    """The model by its name on the command line; ``settings`` are those of the model inside."""
    from cgpfl.models.adapt import as_model

    return LoRA(as_model(of, shape, classes, **settings), rank, alpha, targets, of)


def _name(model: Model) -> str:
    from cgpfl.models.adapt import MODELS

    known = [name for name, cls in MODELS.ours.items() if cls is type(model)]
    return known[0] if known else path_of(type(model)) or type(model).__name__


def _formed(value: Any) -> Any:
    return value.formed() if isinstance(value, LowRank) else value


def _run(program: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """A traced program, on values of which some are matrices that are not formed."""
    known: dict[Any, Any] = dict(zip([*program.constvars, *program.invars], [*consts, *args], strict=True))

    def value(of: Any) -> Any:
        return of.val if isinstance(of, Literal) else known[of]

    for step in program.eqns:
        given = [value(v) for v in step.invars]
        found = _unformed(step, given) if any(isinstance(v, LowRank) for v in given) else None
        if found is None:
            bound = step.primitive.get_bind_params(step.params)
            functions, params = bound if isinstance(bound, tuple) else ((), bound)  # before and since JAX 0.10
            with step.ctx.manager:
                found = step.primitive.bind(*functions, *map(_formed, given), **params)
            found = found if step.primitive.multiple_results else [found]
        known.update(zip(step.outvars, found, strict=True))
    return [value(v) for v in program.outvars]


def _unformed(step: JaxprEqn, given: list[Any]) -> list[Any] | None:
    """What a step gives without forming its matrices; None where it needs them formed."""
    kind, params = step.primitive.name, step.params
    if kind in ("jit", "pjit"):
        return _run(params["jaxpr"].jaxpr, params["jaxpr"].consts, given)
    if kind == "transpose":
        return [LowRank(given[0].base.T, given[0].right.T, given[0].left.T)]
    if kind == "dot_general":
        return _product(given[0], given[1], params)
    return None


def _product(x: Any, y: Any, params: dict[str, Any]) -> list[Any] | None:
    """A product with one matrix that is not formed, over one axis of it."""
    (over_x, over_y), (batch_x, batch_y) = params["dimension_numbers"]
    if isinstance(x, LowRank) and isinstance(y, LowRank):
        y = y.formed()
    axes = over_x if isinstance(x, LowRank) else over_y
    if len(axes) != 1 or batch_x or batch_y:
        return None
    how = {k: params[k] for k in ("precision", "preferred_element_type")}

    def times(u: Any, v: Any, over_u: int, over_v: int) -> Any:
        return jax.lax.dot_general(u, v, (((over_u,), (over_v,)), ((), ())), **how)

    matrix, at = (x, over_x[0]) if isinstance(x, LowRank) else (y, over_y[0])
    near, far = (matrix.right, matrix.left) if at == 1 else (matrix.left, matrix.right)
    rank = 1 - at  # near's axis of rank; far's is the other one
    if isinstance(x, LowRank):
        thin = times(near, y, at, over_y[0])  # [r, ...]
        return [times(x.base, y, at, over_y[0]) + times(far, thin, 1 - rank, 0)]
    thin = times(x, near, over_x[0], at)  # [..., r]
    return [times(x, y.base, over_x[0], at) + times(thin, far, thin.ndim - 1, 1 - rank)]
