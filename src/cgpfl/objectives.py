"""Objectives: what a model's outputs are trained for, and how an answer is scored.

An objective turns outputs and labels into a loss of each sample, and into a *score* of each sample whose mean over
samples is the first metric of its task: right answers, right labels, right tokens, or variance explained. More is
better, and scores of clients add up, so every table, search and test of the library works for every task.

    task             labels y          outputs           loss                            score of a sample
    classification   [B] int           [B, classes]      cross-entropy, may be weighted   right or wrong
    regression       [B, k] float      [B, k]            squared or Huber                 1 − squared error / variance
    multi-label      [B, labels] 0/1   [B, labels]       binary cross-entropy             share of right labels
    next-token       [B, T] int, −1    [B, T, classes]   cross-entropy a token            share of right tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.errors import CgpflError


@dataclass(frozen=True)
class Objective:
    """Base: subclasses say what a loss and a score are."""

    task: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]
    """What is measured where nothing is said; the first is the mean score, the second the mean loss."""

    def each(self, outputs: Array, y: Array) -> Array:
        """Loss of each sample ``[B]``."""
        raise TypeError(f"{type(self).__name__} defines no each")

    def trained(self, outputs: Array, y: Array) -> Array:
        """What training minimises the mean of ``[B]``: the loss, unless some samples weigh more."""
        return self.each(outputs, y)

    def score(self, outputs: Array, y: Array) -> Array:
        """Score of each sample ``[B]``; more is better."""
        raise TypeError(f"{type(self).__name__} defines no score")

    def natural(self, outputs: Array) -> Array:
        """Outputs in the labels' own units."""
        return outputs

    def flat(self, outputs: Array, y: Array, weight: Array) -> tuple[Array, Array, Array]:
        """What a metric sees: outputs in natural units, labels and weights, one of each an answer."""
        return self.natural(outputs), y, weight

    def form(self, classes: int, steps: int) -> tuple[int, ...]:
        """Shape of one sample's outputs; ``steps``: the first axis of an input."""
        return (classes,)

    def label(self, classes: int, steps: int) -> jax.ShapeDtypeStruct:
        """Form of one sample's label."""
        return jax.ShapeDtypeStruct((classes,), jnp.float32)


@dataclass(frozen=True)
class Classification(Objective):
    """One of several classes."""

    weights: tuple[float, ...] = ()
    """Of the classes in the training loss; empty: all alike."""
    task: ClassVar[str] = "classification"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "log-loss")

    def each(self, outputs: Array, y: Array) -> Array:
        return cross_entropy(outputs, y)

    def trained(self, outputs: Array, y: Array) -> Array:
        loss = self.each(outputs, y)
        return loss * jnp.asarray(self.weights, outputs.dtype)[y] if self.weights else loss

    def score(self, outputs: Array, y: Array) -> Array:
        return jnp.argmax(outputs, axis=-1) == y

    def label(self, classes: int, steps: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((), jnp.int32)


@dataclass(frozen=True)
class Regression(Objective):
    """One or more numbers. Models learn (y − centre) / spread, so that rates mean the same whatever the units."""

    centre: tuple[float, ...] = (0.0,)
    """``[k]``: of all training targets."""
    spread: tuple[float, ...] = (1.0,)
    """``[k]``: their standard deviation."""
    huber: float = 0.0
    """Beyond so many standard deviations the loss grows linearly; 0: squared everywhere."""
    task: ClassVar[str] = "regression"
    metrics: ClassVar[tuple[str, ...]] = ("r2", "mean-loss", "rmse", "mae")

    def _apart(self, outputs: Array, y: Array) -> Array:
        """``[B, k]``: answers less targets, in standard deviations of the targets."""
        return outputs - (y - jnp.asarray(self.centre, y.dtype)) / jnp.asarray(self.spread, y.dtype)

    def each(self, outputs: Array, y: Array) -> Array:
        apart = self._apart(outputs, y)
        far = jnp.abs(apart)
        loss = 0.5 * apart * apart
        if self.huber:
            loss = jnp.where(far <= self.huber, loss, self.huber * (far - 0.5 * self.huber))
        return loss.mean(axis=-1)

    def score(self, outputs: Array, y: Array) -> Array:
        """1 − squared error over the variance of all training targets: its mean is R² where test varies like train."""
        return 1.0 - jnp.square(self._apart(outputs, y)).mean(axis=-1)

    def natural(self, outputs: Array) -> Array:
        return outputs * jnp.asarray(self.spread, outputs.dtype) + jnp.asarray(self.centre, outputs.dtype)


@dataclass(frozen=True)
class MultiLabel(Objective):
    """Any number of several labels: each is there or not."""

    task: ClassVar[str] = "multi-label"
    metrics: ClassVar[tuple[str, ...]] = ("label-accuracy", "mean-loss", "exact-match", "micro-f1")

    def each(self, outputs: Array, y: Array) -> Array:
        return (jax.nn.softplus(outputs) - outputs * y).mean(axis=-1)

    def score(self, outputs: Array, y: Array) -> Array:
        return ((outputs > 0) == (y > 0.5)).mean(axis=-1)


@dataclass(frozen=True)
class NextToken(Objective):
    """The next token at each place of a sequence; places with label −1 do not count."""

    task: ClassVar[str] = "next-token"
    metrics: ClassVar[tuple[str, ...]] = ("token-accuracy", "mean-loss", "perplexity")

    def _mean(self, values: Array, y: Array) -> Array:
        there = (y >= 0).astype(jnp.float32)
        return (values * there).sum(axis=-1) / jnp.maximum(there.sum(axis=-1), 1.0)

    def each(self, outputs: Array, y: Array) -> Array:
        return self._mean(cross_entropy(outputs, jnp.maximum(y, 0)), y)

    def score(self, outputs: Array, y: Array) -> Array:
        return self._mean((outputs.argmax(axis=-1) == y).astype(jnp.float32), y)

    def flat(self, outputs: Array, y: Array, weight: Array) -> tuple[Array, Array, Array]:
        there = weight[:, None] * (y >= 0)
        return outputs.reshape(-1, outputs.shape[-1]), jnp.maximum(y, 0).reshape(-1), there.reshape(-1)

    def form(self, classes: int, steps: int) -> tuple[int, ...]:
        return (steps, classes)

    def label(self, classes: int, steps: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((steps,), jnp.int32)


OBJECTIVES: dict[str, type[Objective]] = {c.task: c for c in (Classification, Regression, MultiLabel, NextToken)}
TASKS = tuple(OBJECTIVES)
LOSSES = {
    "classification": ("cross-entropy", "balanced"),
    "regression": ("squared", "huber"),
    "multi-label": ("binary",),
    "next-token": ("cross-entropy",),
}
"""Of each task, the default first."""
HUBER = 1.0
"""Standard deviations of the targets from which Huber's loss is linear."""


def objective_of(
    task: str, loss: str = "auto", *, counts: Any = None, centre: tuple[float, ...] = (), spread: tuple[float, ...] = ()
) -> Objective:
    """The objective of a task with a loss by name.

    ``counts [classes]``: training samples of each class, for balanced cross-entropy: a class weighs n / (C n_c).
    ``centre`` and ``spread``: of regression's targets.
    """
    if task not in OBJECTIVES:
        raise CgpflError(f"task {task!r}: must be one of {', '.join(TASKS)}")
    allowed = LOSSES[task]
    if loss not in ("auto", *allowed):
        raise CgpflError(f"loss = {loss!r}: the data's task is {task}; must be auto or {' or '.join(allowed)}")
    if task == "regression":
        return Regression(centre or (0.0,), spread or (1.0,), HUBER if loss == "huber" else 0.0)
    if loss == "balanced":
        there = [float(c) for c in counts]
        known = sum(c > 0 for c in there)
        return Classification(tuple(sum(there) / (known * c) if c else 0.0 for c in there))
    return OBJECTIVES[task]()


def cross_entropy(logits: Array, labels: Array) -> Array:
    """``[...]`` from logits ``[..., classes]``; written with a mask, which vectorises better than a gather."""
    true = jnp.sum(logits * jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype), axis=-1)
    return jax.nn.logsumexp(logits, axis=-1) - true


def weighted_mean(values: Array, weight: Array) -> Array:
    """Over samples ``[B]``; padding has weight 0."""
    return jnp.sum(values * weight) / jnp.maximum(jnp.sum(weight), 1.0)
