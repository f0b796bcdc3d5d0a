"""The metrics: one row each, read by engines, records, tables and the report's page.

A metric adds up statistics over a client's test samples, batch by batch; its value is a function of those sums. So
padding (weight 0) and the size of batches do not matter, and the sums of all clients give the pooled value.

A new one is a row of :data:`METRICS`, or a function of yours (see :func:`get_metric`). Nothing heavy is imported here:
reports and nodes read this, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgpfl.errors import CgpflError
from cgpfl.registry import Registry

Sums = Any
"""A pytree of arrays that may be added up."""


@dataclass(frozen=True)
class Metric:
    """What is measured of a client's model on its test samples."""

    name: str
    """In settings, records, ``summary.json`` and ``history.csv``."""
    statistics: Callable[[Any, Any, Any], Sums]
    """(model outputs ``[B, classes]``, labels ``[B]``, weights ``[B]``, 0 = padding) → sums over the batch, in JAX."""
    value: Callable[[Sums], Any]
    """Those sums, over one client's batches or over all clients' → the value; NaN where it is not defined."""
    title: str
    """In a table's head and on an axis."""
    help: str
    percent: bool = True
    """A share, shown in per cent; else a number."""
    higher: bool = True
    """Whether more is better."""
    recorded: str = ""
    """Counted in every evaluation, as this record: by the objective's own score."""
    tasks: tuple[str, ...] = ()
    """Whose outputs it is for; empty: any task's."""

    def about(self) -> dict[str, Any]:
        """The row as plain data: kept in a run folder, so that whoever shows it needs no function of yours."""
        return {"title": self.title, "help": self.help, "percent": self.percent, "higher": self.higher}


def figure(value: float | None, percent: bool = True, unit: str = "") -> str:
    """A metric's value in a table, shares in per cent."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{100 * value:.1f}{unit}" if percent else f"{value:.3g}"


def ratio(sums: Sums) -> Any:
    """``sum / n``."""
    return sums["sum"] / sums["n"]


def _correct(logits: Any, labels: Any, weights: Any) -> Sums:
    return {"sum": ((logits.argmax(axis=-1) == labels) * weights).sum(), "n": weights.sum()}


def _entropy(logits: Any, labels: Any, weights: Any) -> Sums:
    import jax

    entropy = -jax.nn.log_softmax(logits)[np.arange(len(labels)), labels]
    return {"sum": (entropy * weights).sum(), "n": weights.sum()}


def _answers(logits: Any, labels: Any, weights: Any) -> Sums:
    """Of each class: right answers, answers, samples ``[classes]``."""
    import jax

    def count(of: Any, weight: Any) -> Any:
        return (jax.nn.one_hot(of, logits.shape[-1]) * weight[:, None]).sum(axis=0)

    given = logits.argmax(axis=-1)
    return {
        "right": count(labels, weights * (given == labels)),
        "given": count(given, weights),
        "n": count(labels, weights),
    }


def _over_classes(values: Any, there: Any) -> Any:
    """The mean of ``values [classes]`` over the classes that are ``there``; NaN if none is."""
    import jax.numpy as jnp

    return jnp.where(there, values, 0).sum() / there.sum()


def _recall(sums: Sums) -> Any:
    there = sums["n"] > 0
    return _over_classes(sums["right"] / (sums["n"] + ~there), there)


def _f1(sums: Sums) -> Any:
    there = sums["n"] > 0
    return _over_classes(2 * sums["right"] / (sums["given"] + sums["n"] + ~there), there)


RANKS, FURTHEST = 256, 16.0
"""Bins of log(p / (1 − p)), evenly over ±FURTHEST: float32 tells no probability nearer to 1 than that."""


def _ranks(logits: Any, labels: Any, weights: Any) -> Sums:
    """``[2, classes, RANKS]``: how often each class got a score, of samples that are not and that are of it."""
    import jax
    import jax.numpy as jnp

    log = jax.nn.log_softmax(logits)
    score = log - jnp.log1p(-jnp.minimum(jnp.exp(log), 1 - 2.0**-24))
    place = jnp.clip((score + FURTHEST) * (RANKS / (2 * FURTHEST)), 0, RANKS - 1).astype(jnp.int32)
    classes = jnp.arange(logits.shape[-1])
    own = (labels[:, None] == classes).astype(jnp.int32)
    empty = jnp.zeros((2, len(classes), RANKS))
    return empty.at[own, classes, place].add(jnp.broadcast_to(weights[:, None], own.shape))


def _auc(sums: Sums) -> Any:
    others, own = sums
    pairs = own.sum(axis=-1) * others.sum(axis=-1)
    below = others.cumsum(axis=-1) - others / 2
    return _over_classes((own * below).sum(axis=-1) / (pairs + (pairs == 0)), pairs > 0)


LEVELS = 15
"""Bins of the calibration error."""


def _levels(logits: Any, labels: Any, weights: Any) -> Sums:
    """``[3, LEVELS]``: samples, their confidence and right answers, by confidence."""
    import jax
    import jax.numpy as jnp

    sure = jax.nn.softmax(logits).max(axis=-1)
    place = jnp.clip(jnp.ceil(sure * LEVELS) - 1, 0, LEVELS - 1).astype(jnp.int32)
    each = jnp.stack([jnp.ones_like(sure), sure, (logits.argmax(axis=-1) == labels).astype(sure.dtype)])
    return (each * weights) @ jax.nn.one_hot(place, LEVELS)


def _miscalibration(sums: Sums) -> Any:
    return abs(sums[1] - sums[2]).sum() / sums[0].sum()


def _squares(outputs: Any, labels: Any, weights: Any) -> Sums:
    return {"sum": (((outputs - labels) ** 2).mean(axis=-1) * weights).sum(), "n": weights.sum()}


def _root(sums: Sums) -> Any:
    return ratio(sums) ** 0.5


def _apart(outputs: Any, labels: Any, weights: Any) -> Sums:
    return {"sum": (abs(outputs - labels).mean(axis=-1) * weights).sum(), "n": weights.sum()}


def _exact(outputs: Any, labels: Any, weights: Any) -> Sums:
    return {"sum": (((outputs > 0) == (labels > 0.5)).all(axis=-1) * weights).sum(), "n": weights.sum()}


def _hits(outputs: Any, labels: Any, weights: Any) -> Sums:
    """Labels said and true, said, true."""
    said, true = outputs > 0, labels > 0.5
    return {
        name: (each.sum(axis=-1) * weights).sum()
        for name, each in (("both", said & true), ("said", said), ("true", true))
    }


def _micro(sums: Sums) -> Any:
    return 2 * sums["both"] / (sums["said"] + sums["true"])


def _perplexity(sums: Sums) -> Any:
    import jax.numpy as jnp

    return jnp.exp(ratio(sums))


def _counted(outputs: Any, labels: Any, weights: Any) -> Sums:
    """Of a metric that evaluation counts by itself."""
    raise TypeError("counted by the objective's own score")


OVER = "over the classes among the client's test samples"
CLASSES, NUMBERS, MANY, TOKENS = ("classification",), ("regression",), ("multi-label",), ("next-token",)
_ROWS = (
    Metric("accuracy", _correct, ratio, "accuracy", "share of right answers", recorded="correct", tasks=CLASSES),
    Metric(
        *("log-loss", _entropy, ratio, "log-loss", "mean cross-entropy of the true class, in nats"),
        percent=False,
        higher=False,
        recorded="loss",
        tasks=CLASSES,
    ),
    Metric(
        *("r2", _counted, ratio, "R²"),
        "share of the targets' variance that is explained: 1 − squared error / variance of all clients' training "
        "targets; 0 = no better than their mean, below 0 = worse",
        recorded="correct",
        tasks=NUMBERS,
    ),
    Metric(
        *("rmse", _squares, _root, "RMSE", "root of the mean squared error, in the target's units"),
        percent=False,
        higher=False,
        tasks=NUMBERS,
    ),
    Metric(
        *("mae", _apart, ratio, "MAE", "mean absolute error, in the target's units"),
        percent=False,
        higher=False,
        tasks=NUMBERS,
    ),
    Metric(
        *("label-accuracy", _counted, ratio, "label accuracy", "share of labels, there or not, that are right"),
        recorded="correct",
        tasks=MANY,
    ),
    Metric("exact-match", _exact, ratio, "exact match", "share of samples with every label right", tasks=MANY),
    Metric("micro-f1", _hits, _micro, "micro F1", "F1 over all samples' labels together", tasks=MANY),
    Metric(
        *(
            "token-accuracy",
            _counted,
            ratio,
            "token accuracy",
            "share of next tokens that are right, mean over sequences",
        ),
        recorded="correct",
        tasks=TOKENS,
    ),
    Metric(
        *("perplexity", _entropy, _perplexity, "perplexity", "exp of the mean cross-entropy of a token"),
        percent=False,
        higher=False,
        tasks=TOKENS,
    ),
    Metric(
        *("mean-loss", _counted, ratio, "loss", "mean of the training loss over test samples"),
        percent=False,
        higher=False,
        recorded="loss",
        tasks=(*NUMBERS, *MANY, *TOKENS),
    ),
    Metric(
        "balanced-accuracy", _answers, _recall, "balanced accuracy", f"mean recall {OVER}", tasks=(*CLASSES, *TOKENS)
    ),
    Metric(
        *("macro-f1", _answers, _f1, "macro F1"),
        f"mean F1 {OVER}; an answer of any other class is a wrong one and no more",
        tasks=(*CLASSES, *TOKENS),
    ),
    Metric(
        *("auc", _ranks, _auc, "AUC"),
        "area under the ROC curve, mean of one class against the rest, over classes with samples of both; not "
        f"defined for a client with one class. Scores log(p/(1 − p)) in one of {RANKS} bins are ties: off by at "
        "most half the share of pairs that share a bin",
        percent=False,
        tasks=CLASSES,
    ),
    Metric(
        *("ece", _levels, _miscalibration, "ECE"),
        f"expected calibration error: |confidence − accuracy| in {LEVELS} equal bins of confidence, weighted by "
        "samples",
        higher=False,
        tasks=(*CLASSES, *TOKENS),
    ),
    Metric(
        *("backdoor", _correct, ratio, "backdoor"),
        "share of test samples of other classes that get the attacker's answer once they have the trigger",
        higher=False,
        tasks=("attack = backdoor",),
    ),
)
METRICS = Registry("metric", {m.name: m for m in _ROWS})
"""By name."""
SHIPPED = tuple(METRICS.ours)
DEFAULT = ("accuracy", "log-loss")
"""What is measured where nothing is said."""
TAKEN = (
    *("method", "seed", "round", "client", "n", "mean", "worst_tenth", "std", "loss", "train_loss", "shared_accuracy"),
    *("shared_loss", "correct", "shared_correct", "validation_correct", "distance", "context", "answers", "k", "ari"),
    *("kmeans_iterations", "objective_personal", "objective_context", "bytes_up", "bytes_down", "gradients", "seconds"),
    *("trust", "heard", "liar"),
)
"""What records and tables have under these names."""


def of_samples(each: Callable[[Any, Any], Any], **row: Any) -> Metric:
    """The metric that is the mean over samples of ``each(outputs [B, classes], labels [B])``, values ``[B]``.

    Its name and help are the function's, unless the ``row`` says otherwise.
    """

    def statistics(outputs: Any, labels: Any, weights: Any) -> Sums:
        return {"sum": (each(outputs, labels) * weights).sum(), "n": weights.sum()}

    name = getattr(each, "__name__", "").replace("_", "-")
    about = {"name": name, "title": name, "help": (each.__doc__ or "").strip().partition("\n")[0], **row}
    return Metric(statistics=statistics, value=ratio, **about)


def get_metric(what: str | Metric | Callable[[Any, Any], Any]) -> Metric:
    """The metric of this name, or of yours: a :class:`Metric`, or a function for :func:`of_samples`.

    Yours may be given as ``package.module:Name``, too, and is known by its name from then on.
    """
    if isinstance(what, str):
        what = METRICS.find(what)
    if isinstance(what, Metric):
        found = what
    elif callable(what):
        found = _wrapped.setdefault(what, of_samples(what))
    else:
        raise CgpflError(f"metric {what!r}: must be a Metric or a function of outputs and labels")
    if METRICS.get(found.name) == found:
        return found
    if found.name in (*SHIPPED, *TAKEN) or not re.fullmatch(r"[A-Za-z][\w.-]*", found.name):
        raise CgpflError(f"metric {found.name!r}: this name is taken or none; use letters, digits, '-', '_' and '.'")
    METRICS[found.name] = found
    return found


_wrapped: dict[Any, Metric] = {}


def name_of(what: str | Metric | Callable[[Any, Any], Any]) -> str:
    """What a configuration says for a metric: ``package.module:Name`` if it can be found so, else its name."""
    if isinstance(what, str):
        return what
    found = get_metric(what)
    module = getattr(found.statistics if isinstance(what, Metric) else what, "__module__", "")
    there = {} if module in ("__main__", __name__) or module not in sys.modules else vars(sys.modules[module])
    return next((f"{module}:{name}" for name, value in there.items() if value is what), found.name)


def chosen(names: Iterable[str]) -> tuple[Metric, ...]:
    """The metrics of a setting, each once."""
    return tuple(dict.fromkeys(get_metric(name) for name in names))


def measured(names: Iterable[str], objective: Any = None) -> tuple[Metric, ...]:
    """Those of them that an evaluation computes beside what it always does; an error where one is not for the task.

    Where nothing was chosen, what the ``objective`` (None: classification) is measured by.
    """
    task, usual = ("classification", DEFAULT) if objective is None else (objective.task, objective.metrics)
    found = chosen(usual if tuple(names) == DEFAULT else names)
    for m in found:
        if m.tasks and task not in m.tasks:
            fitting = ", ".join(n for n, other in METRICS.items() if not other.tasks or task in other.tasks)
            raise CgpflError(f"metric {m.name!r}: is for {' and '.join(m.tasks)}; the data's task is {task}: {fitting}")
    return tuple(m for m in found if not m.recorded)


def of_attack(method: Any) -> tuple[Metric, ...]:
    """What is measured where liars teach a trigger."""
    attack = getattr(method, "attack", None)  # or whatever a method of the user's calls so
    return (METRICS["backdoor"],) if getattr(attack, "triggers", False) else ()


def headline(task: str = "classification") -> Metric:
    """The first metric of a task: what methods are ranked by."""
    return next(m for m in _ROWS if m.recorded == "correct" and task in m.tasks)


def reduced(each: np.ndarray, pooled: float, higher: bool = True) -> dict[str, float]:
    """A metric over clients, ``each [N]``; clients of whom it is not known, or not defined (NaN), do not count.

    pooled: over all clients' samples together. mean: over clients. worst_tenth: mean over the worst
    tenth of the clients (at least one). std: over clients.
    """
    each = each[np.isfinite(each)]
    if not len(each):
        return {"pooled": float(pooled), "mean": np.nan, "worst_tenth": np.nan, "std": np.nan}
    ordered = np.sort(each) if higher else np.sort(each)[::-1]
    worst = ordered[: max(1, -(-len(each) // 10))]
    return {
        "pooled": float(pooled),
        "mean": float(each.mean()),
        "worst_tenth": float(worst.mean()),
        "std": float(each.std()),
    }


def agreement(truth: np.ndarray | None, found: np.ndarray, among: np.ndarray | None = None) -> float | None:
    """Adjusted Rand index of two partitions ``[N]``: 1 = the same, 0 = chance; None without a truth.

    ``among [N]``: whose places are compared, where not everybody's are.
    """
    if truth is None or (among is not None and not among.any()):
        return None
    if among is not None:
        truth, found = truth[among], found[among]
    (_, row), (_, column) = (np.unique(part, return_inverse=True) for part in (truth, found))
    shared = row * (column.max() + 1) + column  # no table: everybody may be alone in both
    both, in_truth, in_found = (_pairs(np.unique(of, return_counts=True)[1]) for of in (shared, row, column))
    chance = in_truth * in_found / max(1, _pairs(np.array(len(row))))
    most = (in_truth + in_found) / 2
    return 1.0 if most == chance else float((both - chance) / (most - chance))


def _pairs(counts: np.ndarray) -> int:
    """Of members of one group, over all groups."""
    return int((counts * (counts - 1) // 2).sum())
