"""What a run of one method gives back."""

from __future__ import annotations

from dataclasses import dataclass, field, is_dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from cgpfl.algorithms.wrapper import unseamed
from cgpfl.contexts import membership, spreading, transition
from cgpfl.data import FederatedData, Form
from cgpfl.engine import State
from cgpfl.errors import CgpflError
from cgpfl.experiment.folder import form_of, parameters
from cgpfl.experiment.records import Cost, Records, pull, scores
from cgpfl.files import a_path
from cgpfl.metrics import METRICS, agreement, headline
from cgpfl.models import to_state_dict
from cgpfl.objectives import Classification
from cgpfl.report.choice import Choice, measured
from cgpfl.report.columns import run_table
from cgpfl.rounds import Privacy
from cgpfl.rounds.privacy import described

if TYPE_CHECKING:
    from cgpfl.experiment.saved import Saved


@dataclass(frozen=True, kw_only=True)
class Contexts(Choice):
    """The contexts a method found, how it chose them (see :class:`~cgpfl.report.choice.Choice`), and their past."""

    rounds: np.ndarray
    """Evaluated rounds, ``[E]``."""
    history: np.ndarray
    """``[E, N]``: context of each client in each of them."""
    truth: np.ndarray | None = None
    """``[N]``: the true contexts, where the data knows them."""

    @property
    def ari(self) -> float | None:
        """Adjusted Rand index of honest clients against the true contexts: 1 = the same partition, 0 = chance."""
        return agreement(self.truth, self.assignment, None if self.liar is None else ~self.liar)

    def P(self, e: int = -1) -> np.ndarray:
        """P^t ``[N, K]`` at evaluation ``e``."""
        return membership(self.history[e], self._slots)

    def J(self, e: int = -1) -> np.ndarray:
        """J^t ``[K, N]`` at evaluation ``e``."""
        return spreading(self.history[e], self._slots)

    def Q(self, e: int = -1) -> np.ndarray:
        """Q ``[K, K]`` from the evaluation before ``e`` to ``e``: P^t Q = P^{t+1}."""
        after = range(len(self.history))[e]
        return transition(self.history[max(after - 1, 0)], self.history[after], self._slots)

    @property
    def _slots(self) -> int:
        return max(self.k, int(self.history.max()) + 1)


@partial(jax.jit, static_argnames="model")
def _logits(model: Any, params: Any, x: Any, scale: Any, shift: Any) -> jax.Array:
    return model.apply(params, x.astype(jnp.float32) * scale + shift)


@dataclass(frozen=True)
class PersonalModel:
    """One client's model, ready to use."""

    params: Any
    model: Any
    form: Form
    """How raw samples become inputs, and outputs answers."""

    def logits(self, x: Any) -> np.ndarray:
        """Outputs ``[n, classes]`` of raw samples: arrays ``[n, ...]``, or a frame with the columns of training."""
        found = jax.device_put(self.form.samples(x))
        return np.asarray(_logits(self.model, self.params, found, *self.form.units()))

    def predict(self, x: Any) -> np.ndarray:
        """Answers ``[n]`` for raw samples, in the user's own labels or units."""
        return self.form.said(self.logits(x))

    def state_dict(self) -> dict[str, Any]:
        """The ``state_dict`` of tensors, of a model that came from a PyTorch module."""
        return to_state_dict(self.model, self.params)


MOST_ROWS = 2_000_000
"""Of one method in ``metrics.parquet``: 20 evaluations of 100,000 clients, some 50 MB. All are in its records."""


@dataclass(frozen=True)
class Outcome:
    """What a run folder and a table need of a :class:`Result`: figures, without models and samples' copies."""

    label: str
    name: str
    """Of the method, whatever its label."""
    seed: int
    data: FederatedData
    model: Any
    summary: dict[str, Any]
    history: pd.DataFrame
    clients: pd.DataFrame
    """As :attr:`Result.clients`, in at most MOST_ROWS rows."""
    message: str | None


@dataclass(frozen=True)
class Result:
    """One method's run: figures first, everything behind them on demand."""

    label: str
    method: Any
    data: FederatedData
    model: Any
    simulation: Any
    """Its engine; a simulation's knows personal models."""
    state: State
    records: Records
    rounds: int
    """Rounds completed."""
    seconds: float
    seed: int
    diverged: int | None = None
    """The round in which the method diverged, if it did."""
    message: str | None = None
    problem: Any = field(default=None, repr=False, compare=False)
    """What was run (:class:`~cgpfl.experiment.experiment.Problem`), where it is known."""

    @property
    def task(self) -> str:
        """What is learned."""
        return str(getattr(self.model, "objective", Classification()).task)

    @property
    def scores(self) -> dict[str, float] | None:
        """Accuracy (the task's first metric) of the personal models on the test parts: pooled, mean, …"""
        return self._scores("correct")

    @property
    def shared_scores(self) -> dict[str, float] | None:
        """The same for the shared or context models, where the method has them."""
        return self._scores("shared_correct")

    def _scores(self, name: str) -> dict[str, float] | None:
        values = self.records.values.get(name)
        if values is None or not len(values) or not np.isfinite(values[-1]).any():
            return None
        return scores(values[-1], self.data.test.counts)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Every metric that was measured, after the last round: pooled, mean, worst_tenth, std."""
        usual = getattr(self.model, "objective", Classification()).metrics
        counted = [METRICS[name] for name in usual if METRICS[name].recorded]
        found = {m.name: self.records.scores(m, self.data.test.counts) for m in (*counted, *self.records.metrics())}
        return {name: scores for name, scores in found.items() if scores is not None}

    @property
    def accuracy(self) -> float:
        """Pooled test accuracy of the personal models after the last round (NaN if nothing was recorded)."""
        return float("nan") if self.scores is None else self.scores["pooled"]

    @cached_property
    def privacy(self) -> dict[str, Any] | None:
        """What its uploads cost in privacy: ε, δ, clip, noise, and the parts; None: there is no bound."""
        level = getattr(self.method, "privacy", None)
        if not isinstance(level, Privacy):
            return None
        return level.spent(self.method, self.data.train.counts.tolist())

    @cached_property
    def cost(self) -> Cost:
        """Bytes and gradients of a round."""
        return Cost.of(self.simulation)

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row an evaluated round."""
        prox = pull(getattr(self.method, "prox", 0.0))
        return self.records.history(self.data.test.counts, prox, self.cost)

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row a client and evaluated round."""
        return self.records.clients(self.data.test.counts, self.label)

    @property
    def contexts(self) -> Contexts | None:
        """The contexts found, or None for a method without any."""
        values, own = self.records.values, unseamed(self.method)
        if "context" not in values or not self.records.rounds:
            return None
        for name in values.keys() & {"trust", "heard", "liar"}:  # by client id → by place in the table
            values = values | {name: values[name][:, self.data.ids]}
        return Contexts(
            **measured(values, parameters(own) if is_dataclass(own) else {}),
            rounds=np.asarray(self.records.rounds),
            history=values["context"],
            truth=self.data.context,
        )

    def personal_model(self, client: int | str) -> PersonalModel:
        """The model that a client, by number or name, uses."""
        try:
            i = self.data.place(client)
        except CgpflError as error:
            raise IndexError(str(error)) from error
        params = jax.tree.map(np.asarray, self.simulation.personal(self.state, i))
        return PersonalModel(params, self.model, form_of(self.data, self.model))

    def summary(self) -> dict[str, Any]:
        """The method's entry in ``summary.json``."""
        contexts, measured = self.contexts, self.metrics
        more = {m.name: measured[m.name] for m in self.records.metrics() if m.name in measured}
        private = [] if self.privacy is None else [described(self.privacy)]
        found: dict[str, Any] | None = None
        if contexts is not None:
            found = {"k": contexts.k, "ari": contexts.ari, "assignment": contexts.assignment.tolist()}
            found |= contexts.facts()
        return {
            "accuracy": self.scores,
            "shared_accuracy": self.shared_scores,
            **({"metrics": more} if more else {}),
            "contexts": found,
            **({} if self.privacy is None else {"privacy": self.privacy}),
            "rounds": self.rounds,
            "diverged": self.diverged,
            **self.cost.after(self.rounds, int(self.state.answers)),
            "seconds": round(self.seconds, 3),
            "notes": [*private, *self.records.undefined(), *([] if contexts is None else contexts.edges())],
        }

    def outcome(self) -> Outcome:
        """The figures alone: nothing of it keeps personal states or a device's memory."""
        clients = self.records.at_most(MOST_ROWS).clients(self.data.test.counts, self.label)
        figures = (self.summary(), self.history, clients, self.message)
        name = getattr(self.method, "name", "") or self.label
        return Outcome(self.label, name, self.seed, self.data, self.model, *figures)

    @staticmethod
    def load(folder: str | Path) -> Saved:
        """What a finished run or comparison left in its folder: tables, curves, values of each client, and models.

        >>> saved = cgpfl.Result.load("runs/first")  # doctest: +SKIP
        >>> saved.table  # doctest: +SKIP
        >>> saved["cgpfl-heur"].personal_model(3)  # doctest: +SKIP
        """
        from cgpfl.experiment.saved import open_saved

        return open_saved(a_path(folder, "folder"))

    def save(self, folder: str | Path) -> Path:
        """Write the result as a run folder (which must not exist yet); returns its path."""
        from cgpfl.experiment.folder import RunFolder
        from cgpfl.experiment.lock import writing
        from cgpfl.experiment.run import fingerprint

        known, run = self.problem is not None, RunFolder.create(a_path(folder, "folder"))
        with writing(run.path):
            if known:
                self.problem.begin(run)
            run.write_split(self.data)
            run.save_result(self, fingerprint(self.method, self.model, self.problem.experiment) if known else {})
            run.save_models(self)
            run.finish([self.outcome()])
        return run.path

    def __repr__(self) -> str:
        s = self.scores
        if s is None:
            return f"<{self.label}: nothing recorded>"
        found = "" if self.contexts is None else f", {self.contexts.k} contexts"
        end = f", diverged in round {self.diverged}" if self.diverged else ""
        return (
            f"<{self.label}: {headline(self.task).title} {s['pooled']:.1%} pooled, {s['mean']:.1%} mean, "
            f"{s['worst_tenth']:.1%} worst tenth{found}, {self.rounds} rounds{end}>"
        )

    def _repr_html_(self) -> str:
        found, about = self.contexts, {m.name: m.about() for m in self.records.metrics()}
        notes = [] if self.message is None else [self.message]
        notes += [] if found is None else [found.describe(), *found.edges()]
        table = run_table({self.label: self.summary()}, "table", about, task=self.task)
        return table.notebook([*notes, ". ".join(table.legend()) + "."])
