"""The form of a federation's samples: what everybody who uses its models must know – nodes, exports, new clients."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from cgpfl.data.columns import Columns
from cgpfl.data.labels import encode, targets
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import parameters
from cgpfl.objectives import OBJECTIVES, Classification, Objective

Units = float | tuple[float, ...]


@dataclass(frozen=True)
class Form:
    """How raw samples become a model's inputs, and what its outputs mean."""

    shape: tuple[int, ...]
    """Of one encoded sample."""
    classes: int
    """Outputs of a model."""
    scale: Units = 1.0
    """Model inputs are x * scale + shift, one number for all or one a feature."""
    shift: Units = 0.0
    objective: Objective = field(default_factory=Classification)
    labels: tuple[Any, ...] = ()
    """What the classes are called; empty: 0..classes-1."""
    columns: Columns | None = None
    """Of a table."""

    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """``scale`` and ``shift`` as arrays."""
        return np.asarray(self.scale, np.float32), np.asarray(self.shift, np.float32)

    def samples(self, x: Any, where: str = "data") -> np.ndarray:
        """Raw samples as they are stored: a frame by its columns' names, or arrays ``[n, *shape]``."""
        if hasattr(x, "columns") and hasattr(x, "to_numpy"):
            frame = x.to_pandas() if hasattr(x, "to_pandas") else x
            if self.columns is None:
                raise CgpflError(f"{where}: is a table with columns; this model takes arrays of shape {self.shape}")
            return self.columns.encode(frame, where)
        x = np.asarray(x)
        if self.columns is not None and x.dtype == object:
            raise CgpflError(
                f"{where}: has words in an array; give a frame with columns {', '.join(self.columns.names)}"
            )
        if x.shape[1:] != self.shape or not len(x):
            raise CgpflError(f"{where}: x has shape {x.shape}; must be {('n', *self.shape)}")
        return x

    def answers(self, y: Any, where: str = "data") -> np.ndarray:
        """Labels as the user has them → as models are trained on them."""
        if self.objective.task == "classification":
            return encode(y, where, self.labels or tuple(range(self.classes)))[0]
        if self.objective.task == "next-token":
            return np.asarray(y, np.int32)
        return targets(y, where)

    def said(self, outputs: np.ndarray) -> np.ndarray:
        """A model's outputs as answers in the user's own terms: labels, numbers, or 0 and 1 for each label."""
        task = self.objective.task
        if task == "regression":
            found = np.asarray(self.objective.natural(jnp.asarray(outputs)))
            return found[:, 0] if found.shape[-1] == 1 else found
        if task == "multi-label":
            return (outputs > 0).astype(np.int8)
        codes = outputs.argmax(axis=-1)
        return np.array(self.labels)[codes] if self.labels else codes

    def facts(self) -> dict[str, Any]:
        """As plain data, for :meth:`of`."""
        found: dict[str, Any] = {"shape": list(self.shape), "classes": self.classes}
        found |= parameters({"scale": self.scale, "shift": self.shift})
        if self.objective != Classification():
            found["objective"] = {"task": self.objective.task, **parameters(asdict(self.objective))}
        if self.labels:
            found["labels"] = list(self.labels)
        if self.columns is not None:
            found["columns"] = self.columns.plain()
        return found

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Form:
        """What :meth:`facts` gave, perhaps among others."""

        def units(value: Any) -> Units:
            return tuple(map(float, value)) if isinstance(value, list | tuple) else float(value)

        objective: Objective = Classification()
        if "objective" in facts:
            own = dict(facts["objective"])
            kind = OBJECTIVES[own.pop("task")]
            objective = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()})
        return cls(
            shape=tuple(int(n) for n in facts["shape"]),
            classes=int(facts["classes"]),
            scale=units(facts.get("scale", 1.0)),
            shift=units(facts.get("shift", 0.0)),
            objective=objective,
            labels=tuple(facts.get("labels", ())),
            columns=Columns.of_plain(facts["columns"]) if facts.get("columns") else None,
        )
