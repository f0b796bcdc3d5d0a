"""Configuration: one TOML file describes an experiment completely."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cgpfl.algorithms import METHODS, get_method
from cgpfl.data import FederatedData, make_data
from cgpfl.engine.settings import SEAMS, Settings
from cgpfl.errors import CgpflError
from cgpfl.experiment.folder import parameters
from cgpfl.experiment.run import check_label
from cgpfl.hyper import from_values, hyper, validate
from cgpfl.metrics import chosen

DEFAULT_METHODS = ("local", "fedavg", "pfedme", "cgpfl", "cgpfl-heur", "cgpfl-auto")


@dataclass(frozen=True)
class DataConfig:
    """``[data]``: see :func:`cgpfl.make_data`."""

    source: str = hyper("digits", "a data set's name or a .npz file")
    split: str = hyper("rotation", "how samples are given to clients")
    clients: int = hyper(40, "number of clients", low=1)
    contexts: int = hyper(4, "hidden contexts, for rotation, labels and shift", low=1)
    classes_per_client: int = hyper(3, "for cyclic, block and random", low=1)
    alpha: float = hyper(0.5, "of Dirichlet", above=0)
    spread: float = hyper(0.0, "how unequal client sizes are, for cyclic, block and random", low=0)
    smallest: int = hyper(4, "samples every client must get", low=2)
    largest: int = hyper(0, "samples a client may get at most; 0 = any number", low=0)
    share: float = hyper(1.0, "share of the set's samples that is used at all", above=0, high=1)
    test: float = hyper(0.25, "share of a client's samples held out for testing", above=0, high=0.99)
    validation: float = hyper(0.0, "share held out for validation", low=0, high=0.99)
    public: float = hyper(0.0, "share of all samples that everybody has, for dapper and fedmd", low=0, high=0.99)
    seed: int | str = hyper("same", 'seed of the split; "same" = the experiment\'s', kind=int, low=0, words=("same",))

    def build(self, seed: int) -> FederatedData:
        """The federation, split with its own seed or the experiment's."""
        values = dataclasses.asdict(self)
        source, split = values.pop("source"), values.pop("split")
        own = values.pop("seed")
        return make_data(source, split, seed=seed if own == "same" else own, **values)


@dataclass(frozen=True)
class Named:
    """``[model]`` and ``[[method]]``: a name, a label for the results, and settings of that model or method."""

    name: str
    label: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, values: Any, where: str) -> Named:
        """From a TOML table."""
        if not isinstance(values, dict):
            raise CgpflError(f"{where}: must be a section with a name, got {values!r}")
        rest = dict(values)
        name, label = rest.pop("name", None), rest.pop("label", "")
        if not isinstance(name, str) or not isinstance(label, str):
            raise CgpflError(f"{where}: needs a name" if name is None else f"{where}: name and label must be text")
        return cls(name, label or name.rpartition(":")[2].rpartition(".")[2].lower(), rest)


@dataclass(frozen=True)
class Experiment(Settings):
    """An experiment: one federation, one model, some methods, one seed."""

    checkpoint_seconds: float = hyper(10.0, "time between checkpoints", low=0)
    data: DataConfig = DataConfig()
    model: Named = Named("mlr")
    method: tuple[Named, ...] = tuple(Named(n, n) for n in DEFAULT_METHODS)

    def methods(self) -> dict[str, Any]:
        """The methods by label, checked."""
        if not self.method:
            raise CgpflError(f"method: none given; there are {', '.join(METHODS)}")
        built: dict[str, Any] = {}
        for m in self.method:
            if m.label in built:
                raise CgpflError(f"method: {m.label!r} is there twice; give each a label of its own")
            check_label(m.label)
            built[m.label] = get_method(m.name, m.settings)
        return built

    def complete(self, data: FederatedData, model_settings: dict[str, Any]) -> dict[str, Any]:
        """Every setting with every default written out, so that it re-runs whatever defaults become."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.metadata and f.name not in SEAMS}
        values |= {name: value for name, value in parameters(self).items() if name in self.seams()}
        section = dataclasses.asdict(self.data) | {"clients": data.clients}
        if self.data.source.endswith(".npz"):
            section["source"] = str(Path(self.data.source).resolve())
        methods = [
            {"name": m.name, "label": m.label, **parameters(method)}
            for m, method in zip(self.method, self.methods().values(), strict=True)
        ]
        return {
            **values,
            **self.engine(),
            "data": section,
            "model": {"name": self.model.name, **model_settings},
            "method": methods,
        }


def to_toml(values: dict[str, Any]) -> str:
    """Nested values as TOML."""
    import tomli_w

    return tomli_w.dumps(values)


def from_dict(values: dict[str, Any], where: str) -> Experiment:
    """A checked experiment from nested values; ``where`` names their origin in errors."""
    rest = dict(values)
    sections: dict[str, Any] = {}
    if "data" in rest:
        sections["data"] = from_values(DataConfig, rest.pop("data"), f"{where}: data")
    if "model" in rest:
        model = rest.pop("model")
        if isinstance(model, dict):
            if "label" in model:
                raise CgpflError(f"{where}: model: has no label; labels are for methods")
            model = {"name": "mlr", **model}
        sections["model"] = Named.parse(model, f"{where}: model")
    if "method" in rest:
        methods = rest.pop("method")
        if not isinstance(methods, list):
            raise CgpflError(f"{where}: method: must be sections [[method]], got {methods!r}")
        sections["method"] = tuple(Named.parse(m, f"{where}: method {i + 1}") for i, m in enumerate(methods))
    experiment = dataclasses.replace(from_values(Experiment, rest, where), **sections)
    validate(experiment, where)
    chosen(experiment.metrics)
    experiment.methods()
    return experiment


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise CgpflError(f"config {path}: no such file") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = " ".join(str(error).split())
        raise CgpflError(f"config {path}: not valid TOML: {reason}") from error


def parse_value(text: str) -> Any:
    """A value as on the command line: TOML (1, 0.5, true, [1, 2]), else a plain string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def apply_setting(values: dict[str, Any], setting: str) -> None:
    """Put ``key=value`` into nested values: ``rounds=9``, ``data.clients=20``, ``cgpfl.prox=5``, ``a.method.prox=3``.

    What follows a method's label may go on into its components, as in ``fedavg.descent.momentum=0.9``.
    """
    key, equals, text = setting.partition("=")
    section, dot, name = _section(key.strip(), values)
    if not equals or not name or (dot and not section):
        raise CgpflError(f"--set {setting}: must be key=value, section.key=value or method.key=value")
    value = parse_value(text.strip())
    if name in ("data", "model", "method") and not section:
        section = "the method's name" if name == "method" else name
        raise CgpflError(f"--set {setting}: {name} is a section; set KEY=VALUE in it by {section}.KEY=VALUE")
    if not section:
        values[name] = value
        return
    if section in ("data", "model"):
        values.setdefault(section, {})[name] = value
        return
    if section in SEAMS:
        values[section] = _within(section, values.get(section), name, value)
        return
    methods = [m for m in values["method"] if isinstance(m, dict)]
    targets = [m for m in methods if section in (m.get("name"), m.get("label"))]
    if not targets:
        chosen = ", ".join(str(m.get("label") or m.get("name")) for m in methods)
        raise CgpflError(
            f"--set {setting}: no method {section!r} in this run; it has {chosen}, and sections data, model"
        )
    for target in targets:
        target[name] = value


def _section(key: str, values: dict[str, Any]) -> tuple[str, str, str]:
    """A key as (section, dot, name): the longest label of a method that it begins with, else its first word."""
    labels = [str(m.get(of)) for m in values.get("method", []) if isinstance(m, dict) for of in ("label", "name")]
    fitting = [label for label in labels if key.startswith(f"{label}.")]
    if fitting:
        label = max(fitting, key=len)
        return label, ".", key[len(label) + 1 :]
    return (key.partition(".")[0], ".", key.partition(".")[2]) if "." in key else ("", "", key)


def _within(section: str, there: Any, name: str, value: Any) -> Any:
    """A rule of rounds with one setting changed: ``outgoing.clip.norm=1`` changes, or adds, the clip."""
    component, _, rest = name.rpartition(".")
    if section != "outgoing":
        table = {"name": there} if isinstance(there, str) else dict(there or {})
        return {**table, name: value}
    tables = [{"name": one} if isinstance(one, str) else dict(one) for one in there or []]
    found = next((one for one in tables if one["name"] == component), None)
    if found is None:
        tables.append(found := {"name": component})
    found[rest] = value
    return tables
