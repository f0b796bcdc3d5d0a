"""Any model through one interface: a name, a Model, a flax module, or an (init, apply) pair."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.errors import CgpflError
from cgpfl.models.base import GIVEN, Model, Params
from cgpfl.models.lora import lora
from cgpfl.models.nets import CNN, DNN, MLR
from cgpfl.objectives import Classification, Objective
from cgpfl.registry import Registry

MODELS = Registry("model", {"mlr": MLR, "dnn": DNN, "cnn": CNN, "lora": lora})


@dataclass(frozen=True)
class Functions(Model):
    """A model from two functions: ``start(key) -> params`` and ``forward(params, x) -> logits``."""

    start: Callable[[Array], Params] | None = None
    forward: Callable[[Params, Array], Array] | None = None

    def init(self, key: Array) -> Params:
        assert self.start is not None
        return self.start(key)

    def apply(self, params: Params, x: Array) -> Array:
        assert self.forward is not None
        return self.forward(params, x)

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
    ``model`` is a name ("mlr", "dnn", "cnn"), a :class:`Model`, a flax linen or nnx module, or a pair
    ``(init, apply)`` with ``init(key)`` and ``apply(params, x)``. ``settings`` go to a named model.
    """
    if isinstance(model, str):
        built = _named(model, shape, classes, settings)
    elif settings:
        raise CgpflError(f"model settings ({', '.join(settings)}) only go with a model's name, one of {_names()}")
    elif isinstance(model, Model):
        built = model
    elif _is_a(model, "flax.linen"):
        built = _linen(model, shape, classes)
    elif _is_a(model, "flax.nnx"):
        built = _nnx(model, shape, classes)
    elif isinstance(model, tuple) and len(model) == 2 and all(callable(f) for f in model):
        built = Functions(shape, classes, start=model[0], forward=model[1])
    else:
        raise CgpflError(
            f"model: {type(model).__name__} is not a model; give one of {_names()}, "
            "a cgpfl Model, a flax module or a pair (init, apply)"
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
        numbers = value if isinstance(value, list | tuple) else [value]
        positive = all(isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < 1e9 for v in numbers)
        if not positive or (key != "l2" and not all(isinstance(v, int) and v > 0 for v in numbers)):
            raise CgpflError(
                f"model {name}: {key} = {value!r}: must be a {'number >= 0' if key == 'l2' else 'positive integer'}"
            )
    chosen: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    return cls(shape, classes, **chosen)


def _brought(name: str, thing: Any, shape: tuple[int, ...], classes: int, settings: dict[str, Any]) -> Model:
    """A model of somebody else's: an object, a module's class, or a function of ``(shape, classes, **settings)``."""
    if isinstance(thing, str):
        raise CgpflError(f"model {name}: is text, not a model")
    if isinstance(thing, type) or (callable(thing) and inspect.isroutine(thing)):
        try:
            thing = thing(**settings) if isinstance(thing, type) else thing(shape, classes, **settings)
        except CgpflError:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise CgpflError(f"model {name}: cannot be made with {settings or 'no settings'}: {reason}") from error
    elif settings:
        raise CgpflError(f"model {name}: is an object; {', '.join(settings)} cannot be set")
    return as_model(thing, shape, classes)


def _names() -> str:
    return ", ".join(MODELS)


def _is_a(model: Any, package: str) -> bool:
    """Whether ``model`` is a Module of a package that need not be installed."""
    return any(
        c.__name__ == "Module" and (c.__module__ == package or c.__module__.startswith(package + "."))
        for c in type(model).__mro__
    )


def _linen(module: Any, shape: tuple[int, ...], classes: int) -> Model:
    def start(key: Array) -> Params:
        variables = module.init(key, jnp.zeros((1, *shape)))
        extra = [name for name in variables if name != "params"]
        if extra:
            raise CgpflError(
                f"model: flax collections {', '.join(extra)} cannot be averaged as parameters; "
                "use layers without running state (for example GroupNorm for BatchNorm)"
            )
        return variables["params"]

    return Functions(shape, classes, start=start, forward=lambda params, x: module.apply({"params": params}, x))


def _nnx(module: Any, shape: tuple[int, ...], classes: int) -> Model:
    """An nnx module carries its parameters: they are the initial ones, whatever the seed."""
    from flax import nnx  # an optional dependency, here because the user has a flax module

    parts: Any = nnx.split(module, nnx.Param, ...)
    graph, params, rest = parts
    if jax.tree.leaves(rest):
        raise CgpflError("model: nnx state other than Param cannot be averaged; use layers without running state")
    initial, structure = nnx.to_pure_dict(params), jax.tree.structure(params)

    def forward(values: Params, x: Array) -> Array:
        return nnx.merge(graph, jax.tree.unflatten(structure, jax.tree.leaves(values)), rest)(x)

    return Functions(shape, classes, start=lambda key: initial, forward=forward)


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
