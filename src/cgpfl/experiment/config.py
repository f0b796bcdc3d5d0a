"""Configuration: one TOML file describes an experiment completely."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cgpfl.algorithms import METHODS, get_method
from cgpfl.data import FederatedData, make_data
from cgpfl.errors import CgpflError
from cgpfl.experiment.folder import parameters
from cgpfl.experiment.run import check_settings, default_eval_every

DEFAULT_METHODS = ("local", "fedavg", "pfedme", "cgpfl", "cgpfl-heur")


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, values are not coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DataConfig(Section):
    """``[data]``: see :func:`cgpfl.make_data`."""

    source: str = "digits"
    split: str = "rotation"
    clients: int = Field(40, ge=1)
    contexts: int = Field(4, ge=1)
    classes_per_client: int = Field(3, ge=1)
    alpha: float = Field(0.5, gt=0)
    spread: float = Field(0.0, ge=0)
    smallest: int = Field(4, ge=2)
    test: float = Field(0.25, gt=0, lt=1)
    validation: float = Field(0.0, ge=0, lt=1)
    seed: int | None = Field(None, ge=0)

    def build(self, seed: int) -> FederatedData:
        """The federation, split with its own seed or the experiment's."""
        settings = self.model_dump(exclude={"source", "split", "seed"})
        return make_data(self.source, self.split, seed=seed if self.seed is None else self.seed, **settings)


class ModelConfig(Section):
    """``[model]``: a name and that model's settings."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str = "mlr"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.model_extra or {})


class MethodConfig(Section):
    """``[[method]]``: a name, a label for the results, and that method's hyper-parameters."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str
    label: str = ""

    def build(self) -> Any:
        """The method, checked."""
        return get_method(self.name, dict(self.model_extra or {}))


class Experiment(Section):
    """An experiment: one federation, one model, some methods, one seed."""

    seed: int = 0
    rounds: int = 200
    eval_every: int | None = None
    participation: float = 1.0
    dropout: float = 0.0
    clients_per_block: int = 0
    checkpoint_seconds: float = Field(10.0, ge=0)
    data: DataConfig = DataConfig()  # type: ignore[call-arg]
    model: ModelConfig = ModelConfig()
    method: tuple[MethodConfig, ...] = Field(tuple(MethodConfig(name=n) for n in DEFAULT_METHODS), strict=False)

    @property
    def settings(self) -> dict[str, Any]:
        """The engine's settings."""
        names = ("rounds", "seed", "eval_every", "participation", "dropout", "clients_per_block")
        return {n: getattr(self, n) for n in names}

    def methods(self) -> dict[str, Any]:
        """The methods by label, checked."""
        if not self.method:
            raise CgpflError(f"method: none given; there are {', '.join(METHODS)}")
        built: dict[str, Any] = {}
        for m in self.method:
            label = m.label or m.name
            if label in built:
                raise CgpflError(f"method: {label!r} is there twice; give each a label of its own")
            if not label.replace("-", "").replace("_", "").replace(".", "").isalnum():
                raise CgpflError(f"method: label {label!r}: use letters, digits, '-', '_' and '.'")
            built[label] = m.build()
        return built

    def check(self) -> None:
        """Ranges that need no data."""
        check_settings(**self.settings)
        self.methods()

    def complete(self, model_settings: dict[str, Any]) -> Experiment:
        """The same experiment with every default written out, so that it re-runs whatever defaults become."""
        return self.model_copy(
            update={
                "eval_every": self.eval_every or default_eval_every(self.rounds),
                "data": self.data.model_copy(update={"seed": self.seed if self.data.seed is None else self.data.seed}),
                "model": ModelConfig(name=self.model.name, **_plain(model_settings)),
                "method": tuple(
                    MethodConfig(name=m.name, label=m.label or m.name, **parameters(m.build())) for m in self.method
                ),
            }
        )

    def toml(self) -> str:
        """As TOML."""
        return tomli_w.dumps(_plain(self.model_dump(exclude_none=True)))


def _plain(value: Any) -> Any:
    """Tuples as lists, as TOML has them."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def from_dict(values: dict[str, Any], where: str) -> Experiment:
    """A checked experiment from nested values; ``where`` names their origin in errors."""
    try:
        experiment = Experiment.model_validate(_floats(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(p) for p in first["loc"])
        reason = first["msg"][0].lower() + first["msg"][1:]
        if first["type"] == "extra_forbidden":
            section = {"data": DataConfig}.get(str(first["loc"][0]), Experiment)
            reason = f"unknown key; allowed are {', '.join(section.model_fields)}"
        else:
            reason = f"{reason}, got {first['input']!r}"
        raise CgpflError(f"{where}: {key}: {reason}") from error
    experiment.check()
    return experiment


def _floats(values: dict[str, Any]) -> dict[str, Any]:
    """Integers where a float is meant (TOML's 1 for 1.0)."""

    def convert(section: type[BaseModel], part: dict[str, Any]) -> dict[str, Any]:
        kinds = {n: f.annotation for n, f in section.model_fields.items()}
        return {k: float(v) if kinds.get(k) is float and type(v) is int else v for k, v in part.items()}

    values = convert(Experiment, values)
    if isinstance(values.get("data"), dict):
        values["data"] = convert(DataConfig, values["data"])
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise CgpflError(f"config {path}: no such file") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CgpflError(f"config {path}: not valid TOML: {error}") from error


def parse_value(text: str) -> Any:
    """A value as on the command line: TOML (1, 0.5, true, [1, 2]), else a plain string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def apply_setting(values: dict[str, Any], setting: str) -> None:
    """Put ``key=value`` into nested values: ``rounds=9``, ``data.clients=20``, ``cgpfl.prox=5``."""
    key, equals, text = setting.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts) or len(parts) > 2:
        raise CgpflError(f"--set {setting}: must be key=value, section.key=value or method.key=value")
    value = parse_value(text.strip())
    if len(parts) == 1:
        if key.strip() in ("data", "model", "method"):
            raise CgpflError(f"--set {setting}: {key.strip()} is a section; set {key.strip()}.KEY=VALUE")
        values[key.strip()] = value
        return
    section, name = parts
    if section in ("data", "model"):
        values.setdefault(section, {})[name] = value
        return
    targets = [m for m in values["method"] if section in (m["name"], m.get("label"))]
    if not targets:
        chosen = ", ".join(m.get("label") or m["name"] for m in values["method"])
        raise CgpflError(
            f"--set {setting}: no method {section!r} in this run; it has {chosen}, and sections data, model"
        )
    for target in targets:
        target[name] = value
