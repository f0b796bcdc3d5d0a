"""Any model through one interface: a name, a Model, a module of flax, equinox or PyTorch, or an (init, apply) pair."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.errors import CgpflError, one_line
from cgpfl.models.base import GIVEN, Model, Params
from cgpfl.models.lora import lora
from cgpfl.models.nets import CNN, DNN, MLR
from cgpfl.models.resnet import ResNet
from cgpfl.models.sequence import GRU, Transformer
from cgpfl.objectives import Classification, NextToken, Objective
from cgpfl.registry import Registry

MODELS = Registry(
    "model",
    {"mlr": MLR, "dnn": DNN, "cnn": CNN, "resnet": ResNet, "gru": GRU, "transformer": Transformer, "lora": lora},
)

MODULES = {
    "flax.linen": ("flax", "from_linen"),
    "flax.nnx": ("flax", "from_nnx"),
    "equinox": ("equinox", "from_equinox"),
    "torch.nn": ("torch", "from_torch"),
}
"""Packages whose modules are models, and what makes one of them; none of these need be installed."""


@dataclass(frozen=True)
class Functions(Model):
    """A model from two functions: ``start(key) -> params`` and ``forward(params, x) -> logits``."""

    start: Callable[[Array], Params] | None = None
    forward: Callable[..., Array] | None = None
    stochastic: bool = False
    """Whether it is ``forward(params, x, key)``, with None for a key where nothing is drawn."""

    def init(self, key: Array) -> Params:
        assert self.start is not None
        return self.start(key)

    def apply(self, params: Params, x: Array, key: Array | None = None) -> Array:
        assert self.forward is not None
        return self.forward(params, x, key) if self.stochastic else self.forward(params, x)

    def settings(self) -> dict[str, Any]:
        """Functions cannot be written down; their regulariser can."""
        return {"l2": self.l2}


def as_model(
    model: Any,
    shape: tuple[int, ...],
    classes: int,
    *,
    objective: Objective | None = None,
    frozen: str = "",
    **settings: Any,
) -> Model:
    """Turn what the user gave into a :class:`Model` for inputs of ``shape`` with ``classes`` outputs.

    ``objective``: what the outputs are trained for (None: the model's own; a class, where it says nothing).
    ``frozen``: patterns of parameters that nobody trains ("": the model's own).
    ``model`` is a name ("mlr", "dnn", "cnn", "resnet", "gru", "transformer"), a :class:`Model`, a module of flax (linen
    or nnx), equinox or PyTorch, or a pair ``(init, apply)`` with ``init(key)`` and ``apply(params, x)``, or
    ``apply(params, x, key)`` where it has dropout. ``settings`` go to a named model.
    """
    if isinstance(model, str):
        steps = isinstance(objective, NextToken) and model in ("gru", "transformer")
        built = _named(
            model, shape, classes, {"vocabulary": classes, "per_step": True} | settings if steps else settings
        )
    elif settings:
        raise CgpflError(f"model settings ({', '.join(settings)}) only go with a model's name, one of {_names()}")
    elif isinstance(model, Model):
        built = model
    elif package := next((package for package in MODULES if _is_a(model, package)), ""):
        name, function = MODULES[package]
        built = getattr(importlib.import_module(f"cgpfl.models.{name}"), function)(model, shape, classes)
    elif isinstance(model, tuple) and len(model) == 2 and all(callable(f) for f in model):
        drawing = _takes(model[1], "key")
        built = Functions(shape, classes, start=model[0], forward=model[1], stochastic=drawing)
    else:
        raise CgpflError(
            f"model: {type(model).__name__} is not a model; give one of {_names()}, "
            "a cgpfl Model, a module of flax, equinox or PyTorch, or a pair (init, apply)"
        )
    if objective is not None:
        built = dataclasses.replace(built, objective=objective)
    if frozen:
        built = dataclasses.replace(built, frozen=frozen)
    _check(built, shape, classes)
    return built


def _named(name: str, shape: tuple[int, ...], classes: int, settings: dict[str, Any]) -> Model:
    cls = MODELS.find(name)
    if not (isinstance(cls, type) and issubclass(cls, Model)):
        return _brought(name, cls, shape, classes, settings)
    known = [p for p in inspect.signature(cls).parameters if p not in GIVEN]
    for key in settings:
        if key not in known:
            raise CgpflError(f"model {name}: no setting {key!r}; it has {', '.join(known)}")
    if name == "cnn" and not (len(shape) in (2, 3) and min(shape[:2]) >= 4):
        raise CgpflError(f"model cnn: inputs of shape {shape} are not images [H, W] or [H, W, C] of at least 4x4")
    for key, value in settings.items() if name in MODELS.ours else ():
        must = _must_be(next(f.default for f in dataclasses.fields(cls) if f.name == key), value)
        if must:
            raise CgpflError(f"model {name}: {key} = {value!r}: must be a {must}")
    chosen: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    return cls(shape, classes, **chosen)


def _must_be(default: Any, value: Any) -> str:
    """What a setting of a model of ours must be, from its default; empty where ``value`` is."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "truth value, true or false"
    numbers = value if isinstance(value, list | tuple) else [value]
    low = not all(isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < 1e9 for v in numbers)
    if isinstance(default, float):
        return "number >= 0" if low or numbers is value else ""
    if low or not all(isinstance(v, int) and (v > 0 or default == 0) for v in numbers) or not numbers:
        return "positive integer" if default != 0 else "whole number >= 0"
    if isinstance(default, tuple) != (numbers is value):
        return "list of positive integers" if isinstance(default, tuple) else "positive integer"
    return ""


def _brought(name: str, thing: Any, shape: tuple[int, ...], classes: int, settings: dict[str, Any]) -> Model:
    """A model of somebody else's: an object, a module's class, or a function of ``(shape, classes, **settings)``."""
    if isinstance(thing, str):
        raise CgpflError(f"model {name}: is text, not a model")
    if isinstance(thing, type) or (callable(thing) and inspect.isroutine(thing)):
        try:
            with _steady():
                thing = thing(**settings) if isinstance(thing, type) else thing(shape, classes, **settings)
        except CgpflError:
            raise
        except Exception as error:
            made = settings or "no settings"
            raise CgpflError(f"model {name}: cannot be made with {made}: {one_line(error)}") from error
    elif settings:
        raise CgpflError(f"model {name}: is an object; {', '.join(settings)} cannot be set")
    return as_model(thing, shape, classes)


@contextmanager
def _steady() -> Iterator[None]:
    """PyTorch draws a module's parameters where it is made: the same ones in every process."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of that name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # of some built-in ones nothing is known
        return False


def _names() -> str:
    return ", ".join(MODELS)


def _is_a(model: Any, package: str) -> bool:
    """Whether ``model`` is a Module of a package that need not be installed."""
    return any(
        c.__name__ == "Module" and (c.__module__ == package or c.__module__.startswith(package + "."))
        for c in type(model).__mro__
    )


def _check(model: Model, shape: tuple[int, ...], classes: int) -> None:
    """The model must take the data's inputs and answer with one logit a class."""
    if (tuple(model.shape), model.classes) != (tuple(shape), classes):
        raise CgpflError(
            f"model: built for inputs {tuple(model.shape)} and {model.classes} classes; "
            f"the data has {tuple(shape)} and {classes}"
        )
    if type(model).apply is Model.apply:
        return  # a model with a loss of its own need not have logits
    try:
        params = jax.eval_shape(model.init, jax.random.key(0))
        logits = jax.eval_shape(model.apply, params, jax.ShapeDtypeStruct((2, *shape), jnp.float32))
    except CgpflError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CgpflError(f"model: does not take inputs of shape {tuple(shape)}: {reason}") from error
    wanted = model.objective.form(classes, shape[0] if shape else 1)
    if logits.shape[1:] != wanted:
        kind = f"{classes} logits, one a class" if isinstance(model.objective, Classification) else f"shape {wanted}"
        raise CgpflError(f"model: answers {logits.shape[1:]} for one input; must be {kind}")
