"""Configuration: one TOML file describes an experiment completely."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cgpfl.algorithms import METHODS, get_method
from cgpfl.algorithms.wrapper import seamed, unseamed
from cgpfl.data import SOURCES, FederatedData, Reading, make_data
from cgpfl.data.sources import is_file
from cgpfl.engine.settings import PRIVACY, SEAMS, Settings
from cgpfl.errors import CgpflError
from cgpfl.experiment.given import (
    PER_SEED,
    SAMPLES,
    GivenData,
    a_method,
    data_section,
    is_data,
    label_of,
    method_section,
    model_section,
)
from cgpfl.experiment.run import check_label
from cgpfl.files import a_path, not_deleted, read_text
from cgpfl.hyperparameters import from_values, hyper, parameters, validate
from cgpfl.metrics import chosen, name_of
from cgpfl.models import Functions, Model, as_model

DEFAULT_METHODS = ("local", "fedavg", "pfedme", "cgpfl", "cgpfl-heur", "cgpfl-auto")


@dataclass(frozen=True)
class DataConfig(Reading):
    """``[data]``: see :func:`cgpfl.make_data`."""

    source: str = hyper("digits", "a data set's name, a file (.csv, .parquet, .npz) or a folder")
    split: str = hyper("auto", "how samples are given to clients; auto = the data's own clients, or rotation")
    clients: int | str = hyper("auto", "number of clients", kind=int, low=1, words=("auto",))
    contexts: int = hyper(4, "hidden contexts, for rotation, labels and shift", low=1)
    classes_per_client: int = hyper(3, "for cyclic, block and random", low=1)
    alpha: float = hyper(0.5, "of Dirichlet", above=0)
    spread: float = hyper(0.0, "how unequal client sizes are, for cyclic, block and random", low=0)
    smallest: int | str = hyper("auto", "samples every client must have", kind=int, low=2, words=("auto",))
    largest: int = hyper(0, "samples a client may get at most; 0 = any number", low=0)
    share: float = hyper(1.0, "share of the set's samples that is used at all", above=0, high=1)
    test: float = hyper(0.25, "share of a client's samples held out for testing", above=0, high=0.99)
    validation: float = hyper(0.0, "share held out for validation", low=0, high=0.99)
    public: float = hyper(0.0, "share of all samples that everybody has, for dapper and fedmd", low=0, high=0.99)
    seed: int | str = hyper("same", 'seed of the split; "same" = the experiment\'s', kind=int, low=0, words=("same",))

    without: tuple[str, ...] = hyper((), "clients that are taken out after the split", kind=tuple, labels=str)

    given: GivenData | None = field(default=None, repr=False, compare=False)
    """What was given in Python instead."""

    @property
    def chosen_split(self) -> str:
        """The split that is meant: data that has clients keeps them."""
        return self.split if self.split != "auto" else "rotation" if self.source in SOURCES.ours else "own"

    def build(self, seed: int, place: int = 0) -> FederatedData:
        """The federation of a seed, the ``place``-th of a comparison's: split with its own seed or that one."""
        if self.given is not None:
            return self.given.of(seed, place)
        if self.source.endswith(".safetensors"):
            return FederatedData.load(Path(self.source.format(seed=seed))).without(*self.without)
        values = parameters(self)
        source, split, own = (values.pop(name) for name in ("source", "split", "seed"))
        del values["given"]
        return make_data(source, split, seed=seed if own == "same" else own, **values)

    def federations(self, seeds: Sequence[int]) -> dict[int, FederatedData]:
        """One a seed; the same object where the split has a seed of its own."""
        if self.seed == "same":
            return {seed: self.build(seed, place) for place, seed in enumerate(seeds)}
        return dict.fromkeys(seeds, self.build(seeds[0]))

    def section(self, federations: dict[int, FederatedData]) -> dict[str, Any]:
        """As it is written down."""
        everybody = next(iter(federations.values())).clients + len(self.without)
        values = parameters(self) | {"clients": everybody}
        del values["given"]
        if self.given is not None:
            values |= data_section(federations)
        source = values["source"]
        if (is_file(source) or source.endswith(".safetensors")) and source not in (SAMPLES, PER_SEED):
            values["source"] = str(Path(source).resolve())
        usual = DataConfig()
        if not values["without"]:
            del values["without"]
        return {k: v for k, v in values.items() if k not in vars(Reading()) or v != getattr(usual, k)}


@dataclass(frozen=True)
class Named:
    """``[model]`` and ``[[method]]``: a name, a label for the results, and settings of that model or method."""

    name: str
    label: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    given: Any = field(default=None, repr=False, compare=False)
    """The object itself, where there is one already."""

    @classmethod
    def parse(cls, values: Any, where: str) -> Named:
        """From a TOML table."""
        if not isinstance(values, dict):
            raise CgpflError(f"{where}: must be a section with a name, got {values!r}")
        rest = dict(values)
        name, label = rest.pop("name", None), rest.pop("label", "")
        if not isinstance(name, str) or not isinstance(label, str):
            raise CgpflError(f"{where}: needs a name" if name is None else f"{where}: name and label must be text")
        if "python" in rest:
            raise CgpflError(f"{where}: {name}: was given in Python: {rest['python']}")
        return cls(name, label or label_in(name), rest)

    @classmethod
    def method(cls, thing: Any, label: str = "", where: str = "method") -> Named:
        """A method from its name, a table with a name and settings, a class or an object."""
        if isinstance(thing, str):
            thing = {"name": thing}
        if isinstance(thing, dict):
            found = cls.parse(thing, where)
            return dataclasses.replace(
                found, label=label or found.label, given=a_method(get_method(found.name, found.settings))
            )
        built = a_method(thing)
        return cls("", label or label_of(built), given=built)


def label_in(name: str) -> str:
    """The label of a method where none is given: its name, of ``package.module:MyMethod`` my-method."""
    if ":" not in name:
        return name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name.rpartition(":")[2].rpartition(".")[2]).lower()


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
            own = get_method(m.name, m.settings) if m.given is None else m.given
            built[m.label] = seamed(own, self.seams())
        return built

    def make_model(self, data: FederatedData) -> Model:
        """The model for this data."""
        wanted = self.model.name if self.model.given is None else self.model.given
        objective = data.form(self.loss).objective
        given = {"objective": objective, "frozen": self.frozen, **self.model.settings}
        return as_model(wanted, data.shape, data.classes, **given)

    def complete(self, federations: dict[int, FederatedData], model: Model) -> dict[str, Any]:
        """Every setting with every default written out, so that it re-runs whatever defaults become."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.metadata and f.name not in SEAMS}
        rules = Settings(**{name: getattr(self, name) for name in SEAMS})
        values |= {name: value for name, value in parameters(rules).items() if name in self.seams()}
        values |= {"frozen": model.frozen}  # its own, too, where it has some
        unsaid = {"loss": "auto", "frozen": "", **PRIVACY}
        values = {name: value for name, value in values.items() if unsaid.get(name) != value}
        made = isinstance(getattr(model, "of", model), Functions)
        own = self.model.settings if made else parameters(model.settings())
        named = {"name": self.model.name, **own}
        pairs = zip(self.method, self.methods().values(), strict=True)
        methods = [{"name": "", "label": m.label, **method_section(m.name, unseamed(built))} for m, built in pairs]
        return {
            **values,
            **self.engine(),
            "data": self.data.section(federations),
            "model": named if self.model.given is None else model_section(self.model.given, model),
            "method": methods,
        }

    @classmethod
    def of(
        cls, methods: Sequence[Any], data: Any, model: Any, settings: dict[str, Any], where: str, label: str = ""
    ) -> Experiment:
        """From names and objects alike, as :func:`cgpfl.run` and :func:`cgpfl.compare` take them."""
        named = tuple(Named.method(m, label, f"{where}: method {i + 1}") for i, m in enumerate(methods))
        if "metrics" in settings:
            asked = settings["metrics"] if isinstance(settings["metrics"], list | tuple) else [settings["metrics"]]
            settings = settings | {"metrics": [name_of(m) for m in asked]}
        model = {"name": model} if isinstance(model, str) else model
        values = {**settings, "model": model} if isinstance(model, dict) else dict(settings)
        if isinstance(data, str | dict):
            values["data"] = {"source": data} if isinstance(data, str) else data
        experiment = from_dict(values, where, named)
        if not isinstance(model, dict):
            experiment = dataclasses.replace(experiment, model=Named("", given=model))
        if not isinstance(data, str | dict):
            if not is_data(data):
                kind = f"the class {data.__name__}" if isinstance(data, type) else type(data).__name__
                raise CgpflError(f"data: {kind} is no FederatedData, name or .npz file")
            given = GivenData(data)
            seed: int | str = 0 if given.is_one else "same"
            experiment = dataclasses.replace(experiment, data=DataConfig(seed=seed, given=given))
        return experiment


def to_toml(values: dict[str, Any]) -> str:
    """Nested values as TOML."""
    import tomli_w

    return tomli_w.dumps(values)


def from_dict(values: dict[str, Any], where: str, methods: tuple[Named, ...] = ()) -> Experiment:
    """A checked experiment from nested values, and perhaps ``methods``; ``where`` names their origin in errors."""
    rest = dict(values)
    sections: dict[str, Any] = {"method": methods} if methods else {}
    if "data" in rest:
        if isinstance(rest["data"], dict) and "python" in rest["data"]:
            raise CgpflError(f"{where}: data: {rest['data']['python']}")
        sections["data"] = from_values(DataConfig, rest.pop("data"), f"{where}: data")
    if "model" in rest:
        model = rest.pop("model")
        if isinstance(model, dict):
            if "label" in model:
                raise CgpflError(f"{where}: model: has no label; labels are for methods")
            model = {"name": "mlr", **model}
        sections["model"] = Named.parse(model, f"{where}: model")
    if "method" in rest:
        listed = rest.pop("method")
        if not isinstance(listed, list):
            raise CgpflError(f"{where}: method: must be sections [[method]], got {listed!r}")
        parsed = [Named.parse(m, f"{where}: method {i + 1}") for i, m in enumerate(listed)]
        sections["method"] = tuple(dataclasses.replace(m, given=get_method(m.name, m.settings)) for m in parsed)
    experiment = dataclasses.replace(from_values(Experiment, rest, where), **sections)
    validate(experiment, where)
    chosen(experiment.metrics)
    experiment.methods()
    return experiment


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; samples that a run folder keeps are found beside it."""
    path = a_path(path, "config")
    try:
        values = tomllib.loads(read_text(path, f"config {path}"))
    except FileNotFoundError as error:
        raise CgpflError(f"config {path}: no such file") from error
    except CgpflError:
        raise
    except (OSError, ValueError, RecursionError) as error:  # of a number of very many digits, or very deep brackets
        reason = " ".join(str(error).split())
        raise CgpflError(f"config {path}: not valid TOML: {reason}") from error
    data = values.get("data")
    if isinstance(data, dict) and data.get("source") in (SAMPLES, PER_SEED):
        data["source"] = str(path.parent / data["source"])
    return values


def read_experiment(path: Path, **changes: Any) -> Experiment:
    """The experiment of a run folder, which must be a run's; with other values for some settings."""
    values = config_of(path)
    if "compare" in values:
        raise CgpflError(f"run {path}: is a comparison, which keeps no models; use the folder of a cgpfl run")
    for name in ("deploy", "form"):  # what real nodes agreed on is in the summary, too
        values.pop(name, None)
    return from_dict(values | changes, str(path / "config.toml"))


def config_of(path: Path) -> dict[str, Any]:
    """The configuration in a run folder."""
    if not path.is_dir():
        raise CgpflError(f"run {path}: no such folder")
    not_deleted(path)
    if not (path / "config.toml").exists():
        raise CgpflError(f"run {path}: has no config.toml; is it a run folder of an earlier version, made in Python?")
    values = read_toml(path / "config.toml")
    if not values.get("method") and not {"compare", "deploy"} & values.keys():
        raise CgpflError(f"run {path}: config.toml names no method, so it is not as a run wrote it; start a new run")
    return values


def parse_value(text: str) -> Any:
    """A value as on the command line: TOML (1, 0.5, true, [1, 2]), else a plain string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):
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
    targets = [m for m in methods if section in _names(m)]
    if not targets:
        chosen = ", ".join(_names(m)[0] for m in methods)
        raise CgpflError(
            f"--set {setting}: no method {section!r} in this run; it has {chosen}, and sections data, model"
        )
    for target in targets:
        target[name] = value


def _names(method: dict[str, Any]) -> list[str]:
    """By what a method of a configuration may be called: its label, its name."""
    name = str(method.get("name", ""))
    return [str(method.get("label") or label_in(name)), name]


def _section(key: str, values: dict[str, Any]) -> tuple[str, str, str]:
    """A key as (section, dot, name): the longest label of a method that it begins with, else its first word."""
    labels = [label for m in values.get("method", []) if isinstance(m, dict) for label in _names(m)]
    fitting = [label for label in labels if key.startswith(f"{label}.")]
    if fitting:
        label = max(fitting, key=len)
        return label, ".", key[len(label) + 1 :]
    return (key.partition(".")[0], ".", key.partition(".")[2]) if "." in key else ("", "", key)


def _within(section: str, there: Any, name: str, value: Any) -> Any:
    """A rule of rounds with one setting changed: ``outgoing.clip.norm=1`` changes, or adds, the clip."""
    component, _, rest = name.rpartition(".")
    rules = there if isinstance(there, list) else [there]
    several = section != "outgoing" and len(rules) > 1
    if several or not all(one is None or isinstance(one, str | dict) for one in rules):
        raise CgpflError(f"{section} = {there!r}: must be a name or a table with a name")
    if section != "outgoing":
        table = {"name": there} if isinstance(there, str) else dict(there or {})
        return {**table, name: value}
    tables = [{"name": one} if isinstance(one, str) else dict(one) for one in rules if one is not None]
    found = next((one for one in tables if one.get("name") == component), None)
    if found is None:
        tables.append(found := {"name": component})
    found[rest] = value
    return tables
