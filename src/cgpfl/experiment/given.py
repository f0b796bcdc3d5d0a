"""What is given in Python – objects, modules, arrays – as names that a run folder remembers.

A part that can be imported is written into config.toml by its path, with its settings; samples are kept in the
folder. Of what can be neither, config.toml says so (``python = "why"``): the run goes on in Python alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cgpfl.algorithms import METHODS, Algorithm
from cgpfl.data import FederatedData
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import name_in, normalised, parameters
from cgpfl.models import MODELS, Functions, LoRA, Model
from cgpfl.registry import path_of

MOST_BYTES = 256 << 20
"""Of samples that are kept in a run folder."""
SAMPLES = "samples.safetensors"
PER_SEED = "samples-{seed}.safetensors"
HOW = "go on in Python, with the same parts and resume=True"


def a_method(thing: Any) -> Any:
    """A method's object with its values as its fields mean them; an error where it is none."""
    thing = thing() if isinstance(thing, type) and issubclass(thing, Algorithm) else thing
    if not isinstance(thing, Algorithm):
        raise CgpflError(f"method: {type(thing).__name__} does not keep the contract; see cgpfl.Algorithm")
    return normalised(thing) if dataclasses.is_dataclass(thing) else thing


def label_of(method: Any) -> str:
    """What a method's results are called where nobody says."""
    return getattr(method, "name", "") or type(method).__name__.lower()


def method_section(name: str, method: Any) -> dict[str, Any]:
    """A method as it is written down; ``name``: by which it was asked for, or empty."""
    name = name or name_in(METHODS, method)
    if name not in METHODS and ":" not in name:
        return {"name": name, "python": f"its class {type(method).__qualname__} cannot be imported; {HOW}"}
    return {"name": name, **(parameters(method) if dataclasses.is_dataclass(method) else {})}


def model_section(given: Any, built: Model) -> dict[str, Any]:
    """A model's object as it is written down."""
    if isinstance(given, LoRA):
        inside = model_section(given.of, given.of)
        unknown = {"python": inside["python"]} if "python" in inside else parameters(built.settings())
        return {"name": "lora", **unknown}
    kind = type(given)
    same = [name for name, ours in MODELS.ours.items() if ours is kind]
    name = same[0] if same else path_of(kind)
    if name is None or isinstance(given, tuple | Functions):
        return {"name": kind.__name__, "python": f"{kind.__qualname__} cannot be imported; {HOW}"}
    if isinstance(given, Model):
        return {"name": name, **parameters(built.settings())}
    fields = [f for f in dataclasses.fields(given) if f.init] if dataclasses.is_dataclass(given) else []
    chosen = {f.name: getattr(given, f.name) for f in fields if f.name not in ("parent", "name")}
    settings = parameters(chosen)
    if not fields or not all(_is_plain(v) for v in settings.values()):
        return {"name": name, "python": f"{kind.__qualname__} has settings that cannot be written down; {HOW}"}
    return {"name": name, **settings}


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, bool | int | float | str)


class GivenData:
    """Federations given in Python: one for all seeds, or one a seed."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self.is_one = isinstance(given, FederatedData)
        self._made: dict[int, FederatedData] = {}

    def of(self, seed: int, place: int = 0) -> FederatedData:
        """The federation of a seed, the ``place``-th of a comparison's."""
        if isinstance(self.given, FederatedData):
            return self.given
        if seed not in self._made:
            if isinstance(self.given, Sequence) and place >= len(self.given):
                raise CgpflError(f"data: {len(self.given)} federations for {place + 1} seeds or more; give one a seed")
            found = self.given[place] if isinstance(self.given, Sequence) else self.given(seed)
            if not isinstance(found, FederatedData):
                raise CgpflError(f"data: {type(found).__name__} of seed {seed} is no FederatedData")
            self._made[seed] = found
        return self._made[seed]


def data_section(federations: dict[int, FederatedData]) -> dict[str, Any]:
    """Federations by seed as they are written down; see :func:`keep_samples`."""
    distinct = list({id(d): d for d in federations.values()}.values())
    recipes = [d.recipe for d in distinct]
    if len(distinct) == 1 and recipes[0] is not None:
        return dict(recipes[0])
    if all(r is not None and r["seed"] == seed for r, seed in zip(recipes, federations, strict=False)):
        rest = [{k: v for k, v in r.items() if k != "seed"} for r in recipes if r is not None]
        if len(distinct) == len(federations) and all(r == rest[0] for r in rest):
            return {**rest[0], "seed": "same"}
    first, size = distinct[0], sum(d.nbytes for d in distinct)
    section: dict[str, Any] = {"source": SAMPLES, "split": "own", "clients": first.clients, "seed": 0}
    if len(distinct) > 1:
        section |= {"source": PER_SEED, "seed": "same"}
    if size > MOST_BYTES:
        most = f"{MOST_BYTES >> 20} MiB are kept in a run folder"
        section["python"] = f"samples given in Python take {size >> 20} MiB, at most {most}; {HOW}"
    return section


def keep_samples(folder: Path, section: dict[str, Any], federations: dict[int, FederatedData]) -> None:
    """Save the samples that config.toml's section ``[data]`` promises."""
    if section["source"] not in (SAMPLES, PER_SEED) or "python" in section:
        return
    for seed, data in federations.items():
        path = folder / section["source"].format(seed=seed)
        if not path.exists():
            data.save(path)


def is_data(thing: Any) -> bool:
    """Whether something is a federation, or gives one for each seed."""
    many = isinstance(thing, Sequence) and not isinstance(thing, str | bytes)
    return not isinstance(thing, type) and (isinstance(thing, FederatedData | Callable) or many)
