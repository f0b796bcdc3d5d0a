"""An export folder: one model and all it takes to use it, without the run it comes from.

model.safetensors   its parameters, as named arrays
card.json           architecture, inputs and their scaling, classes, where it comes from, how good it is
model.onnx          the same model as a graph, where the architecture has one
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from cgpfl.data import Form
from cgpfl.errors import CgpflError, DamagedError
from cgpfl.experiment.folder import finite, parameters
from cgpfl.experiment.reload import Published
from cgpfl.experiment.result import PersonalModel
from cgpfl.files import a_path, check_new, load_arrays, save_arrays, write
from cgpfl.inference.graph import GRAPHS, OPSET, check_graph, onnx_bytes
from cgpfl.inference.nodes import optional
from cgpfl.inference.score import Score
from cgpfl.models import MODELS, LoRA, as_model
from cgpfl.tree import Tree, size

FORMATS = ("safetensors", "onnx")
ARRAYS, CARD, GRAPH = "model.safetensors", "card.json", "model.onnx"
CHECKED = 512
"""Samples at most on which a graph is compared with the model."""


class Exported(NamedTuple):
    """A folder that was written."""

    path: Path
    files: tuple[str, ...]
    difference: float | None
    """Largest difference of the ONNX graph's logits from JAX's, where there is a graph."""
    note: str | None
    """Why something that was asked for is not there."""


@dataclass(frozen=True)
class Loaded(PersonalModel):
    """An exported model, ready to use, with its card."""

    card: dict[str, Any] = dataclasses.field(default_factory=dict)


def check_formats(formats: tuple[str, ...]) -> None:
    """Formats must be known, and what they need installed."""
    for name in formats or ("",):
        if name not in FORMATS:
            raise CgpflError(f"format {name!r}: must be {' or '.join(FORMATS)}, or both separated by a comma")
    if "onnx" in formats:
        optional("onnx")
        optional("onnxruntime")


def check_out(out: Path) -> None:
    """A folder that exists is never touched."""
    check_new(out)
    if os.path.lexists(out):
        raise CgpflError(f"out {out}: exists already; choose another")


def write_export(
    out: Path,
    model: PersonalModel,
    published: Published,
    facts: dict[str, Any],
    score: Score | None,
    shared: Score | None,
    *,
    samples: np.ndarray,
    formats: tuple[str, ...],
) -> Exported:
    """Write the new folder ``out``, whole or not at all. ``samples``: raw ones to check a graph on; ``score``: None
    where nobody here has samples to score on.

    The arrays and the card are always there; ``formats`` says whether a graph is, too.
    """
    check_formats(formats)
    check_out(out)
    content = _card(model, published, facts, score, shared)
    part = out.with_name(f".{secrets.token_hex(8)}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
        save_arrays(part / ARRAYS, {name: np.asarray(leaf) for name, leaf in _named(model.params)}, {})
        difference, note = None, None
        if "onnx" in formats:
            some = samples[:CHECKED]
            difference, note = _graph(part / GRAPH, model, some)
        if difference is not None:
            checked = {"samples": len(some), "difference": difference}
            content["onnx"] = {"opset": OPSET, "input": "x, float32", "output": "logits", "checked": checked}
        write(part / CARD, (json.dumps(finite(content), indent=2, allow_nan=False, default=str) + "\n").encode())
        files = tuple(sorted(p.name for p in part.iterdir()))
        part.rename(out)
    except OSError as error:
        raise CgpflError(f"out {out}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Exported(out, files, difference, note)


def _graph(path: Path, model: PersonalModel, samples: np.ndarray) -> tuple[float | None, str | None]:
    """Write the model's graph and compare it on samples → (how far it is, None), or (None, why there is none)."""
    try:
        write(path, onnx_bytes(model))
        return check_graph(path, model, samples), None
    except Exception as error:
        if type(model.model) in GRAPHS or isinstance(error, OSError):
            raise
        path.unlink(missing_ok=True)  # of somebody's own program anything may be wrong: the rest is good without
        reason = " ".join((str(error) or type(error).__name__).split())
        return None, f"no {GRAPH}: {_name(model.model)} cannot be written as a graph: {reason}"


def _card(
    model: PersonalModel, published: Published, facts: dict[str, Any], score: Score | None, shared: Score | None
) -> dict[str, Any]:
    """The content of ``card.json``."""
    from cgpfl import __version__

    method, data = published.method, published.data
    source = {k: v for k, v in data.items() if k in ("source", "split", "clients", "split_hash")}
    if "source" in source:
        source["source"] = Path(source["source"]).name  # a file's folder is nobody else's business
    return {
        "cgpfl": __version__,
        "model": {
            "name": _name(model.model),
            "settings": parameters(model.model.settings()),
            "parameters": size(model.params),
            "arrays": {name: list(leaf.shape) for name, leaf in _named(model.params)},
        },
        "input": {
            **{k: v for k, v in model.form.facts().items() if k != "classes"},
            "meaning": "raw samples x; the model sees x * scale + shift (model.onnx scales by itself)",
        },
        "classes": model.model.classes,
        "of": facts,
        "metrics": {
            "meaning": "on test samples, never trained on",
            **({} if score is None else {_kind(facts): score._asdict()}),
            **({} if shared is None else {"shared": shared._asdict()}),
        },
        "training": {
            "method": getattr(method, "name", "") or type(method).__name__,
            "label": published.label,
            "hyper_parameters": parameters(method) if dataclasses.is_dataclass(method) else {},
            "rounds": published.rounds,
            "seed": published.seed,
            "data": source,
        },
    }


def _kind(facts: dict[str, Any]) -> str:
    """What kind of a model it is."""
    return "personal" if "client" in facts else "context" if "context" in facts else "shared"


def load_model(folder: str | Path, model: Any = None) -> Loaded:
    """The model of an export folder. ``model``: the architecture, where it is not one of the library's own."""
    folder = a_path(folder, "model")
    card = read_card(folder)
    try:
        name, settings = card["model"]["name"], card["model"]["settings"]
        form = Form.of({**card["input"], "classes": card["classes"], "scale": card["input"]["scale"]})
    except (KeyError, TypeError, ValueError) as error:
        raise CgpflError(f"model {folder}: {CARD} lacks or garbles {error}; export the model again") from error
    if model is None and name not in MODELS:
        raise CgpflError(f"model {folder}: {name}: none of {', '.join(MODELS)}; in Python: load_model(DIR, model=...)")
    what, settings = (name, settings) if model is None else (model, {})
    built = as_model(what, form.shape, form.classes, objective=form.objective, **settings)
    try:
        arrays, _ = load_arrays(folder / ARRAYS, bare=True)
    except DamagedError as error:
        reason = str(error).removeprefix(f"{folder / ARRAYS}: ")
        raise CgpflError(f"model {folder}: {ARRAYS} {reason}; export the model again") from error
    return Loaded(_params(arrays, built, folder), built, form, card)


def read_card(folder: Path) -> dict[str, Any]:
    """The content of a folder's ``card.json``."""
    try:
        content = json.loads((folder / CARD).read_text())
    except FileNotFoundError as error:
        raise CgpflError(f"model {folder}: has no {CARD}; give a folder made by cgpfl export or personalize") from error
    except (OSError, ValueError) as error:
        raise CgpflError(f"model {folder}: {CARD} cannot be read ({type(error).__name__})") from error
    if not isinstance(content, dict):
        raise CgpflError(f"model {folder}: {CARD} is not a model's card; export the model again")
    return content


def _params(arrays: dict[str, np.ndarray], model: Any, folder: Path) -> Tree:
    """Named arrays as the model's parameters."""
    form = jax.eval_shape(model.init, jax.random.key(0))
    wanted = {name: leaf.shape for name, leaf in _named(form)}
    found = {name: array.shape for name, array in arrays.items()}
    for name in wanted | found:
        if wanted.get(name) != found.get(name):
            raise CgpflError(
                f"model {folder}: {ARRAYS}: {name} has shape {found.get(name, 'none')}, the model "
                f"{_name(model)} {wanted.get(name, 'none')}; export the model again"
            )
    return jax.tree.unflatten(jax.tree.structure(form), [arrays[name] for name in wanted])


def _named(params: Tree) -> Iterator[tuple[str, Any]]:
    """The leaves of a tree with their names, such as ``hidden.weight``."""
    for path, leaf in jax.tree.leaves_with_path(params):
        yield jax.tree_util.keystr(path, simple=True, separator=".") or "params", leaf


def _name(model: Any) -> str:
    """The architecture's name on the command line, or its class."""
    made = {**MODELS, "lora": LoRA}
    return next((name for name, cls in made.items() if cls is type(model)), type(model).__name__)
