"""How a client takes its steps: the optimizer of one round on one client.

The method says from where, how many minibatches and at which rate η; a descent says what becomes of the gradients. The
optimizer's state begins anew in every round: what a client keeps over rounds is the method's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.registry import Registry, imported
from cgpfl.rounds.outgoing import norm
from cgpfl.tree import Tree, axpy

if TYPE_CHECKING:
    import optax

SCHEDULES = ("constant", "linear", "cosine")


@algorithm
class Descent:
    """A rule of descent. A subclass writes ``transform``; clipping, schedule and epochs are everybody's."""

    name = ""

    clip: float | str = hyper("none", "largest norm of a minibatch's gradient", kind=float, above=0, words=("none",))
    schedule: str = hyper("constant", "of the rate over the steps of a round", words=SCHEDULES)
    epochs: float | str = hyper(
        "none", "passes over the client's samples, instead of R steps", kind=float, above=0, high=1000, words=("none",)
    )

    def transform(self) -> optax.GradientTransformation | None:
        """Gradients → directions, to be multiplied by −η; None: the gradient itself."""
        return None

    def is_plain(self) -> bool:
        """Whether a step is w ← w − η·g and nothing else."""
        return type(self) is SGD and (self.schedule, self.clip, self.epochs) == ("constant", "none", "none")

    def steps(self, steps: int, samples: float, batch_size: int) -> float:
        """How many steps a client with so many samples takes, where the method takes ``steps``."""
        if isinstance(self.epochs, str):
            return steps
        return max(1.0, round(float(self.epochs) * -(-samples // (batch_size or samples))))

    def begin(self, params: Tree) -> Any:
        """The optimizer's state before the first step."""
        rule = self.transform()
        return () if rule is None else rule.init(params)

    def step(
        self, params: Tree, state: Any, gradient: Tree, rate: Array | float, progress: Array | float
    ) -> tuple[Tree, Any]:
        """One step; ``progress`` in [0, 1) is how much of the round's steps has been taken."""
        if not isinstance(self.clip, str):
            length = norm(gradient)
            shrink = jnp.where(length > self.clip, self.clip / jnp.maximum(length, 1e-30), 1.0)
            gradient = jax.tree.map(lambda g: shrink * g, gradient)
        rule = self.transform()
        if rule is not None:
            gradient, state = rule.update(gradient, state, params)
        return axpy(-rate * self.factor(progress), gradient, params), state

    def factor(self, progress: Array | float) -> Array | float:
        """What the schedule leaves of the rate."""
        if self.schedule == "linear":
            return 1.0 - progress
        if self.schedule == "cosine":
            return 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
        return 1.0


@algorithm
class SGD(Descent):
    """w ← w − η g."""

    name = "sgd"


@algorithm
class Momentum(Descent):
    """u ← β u + g;  w ← w − η u."""

    name = "momentum"

    momentum: float = hyper(0.9, "β: how much of the last direction is kept", low=0, high=0.9999)

    def transform(self) -> optax.GradientTransformation:
        import optax

        return optax.trace(decay=self.momentum)


@algorithm
class Adam(Descent):
    """Adam (Kingma, Ba, ICLR 2015), begun anew in each round."""

    name = "adam"

    b1: float = hyper(0.9, "β₁: of the first moment", low=0, high=0.9999)
    b2: float = hyper(0.999, "β₂: of the second moment", low=0, high=0.99999)
    eps: float = hyper(1e-8, "ε: floor of the second moment's root", above=0)

    def transform(self) -> optax.GradientTransformation:
        import optax

        return optax.scale_by_adam(b1=self.b1, b2=self.b2, eps=self.eps)


@algorithm
class Optax(Descent):
    """Any optax transformation: a function without arguments that returns one, with its learning rate left to η."""

    name = "optax"

    rule: str = hyper("", "package.module:function → optax.GradientTransformation that ascends (scale_by_…)")

    def transform(self) -> optax.GradientTransformation:
        make: Callable[[], optax.GradientTransformation] = imported(self.rule, "optax rule")
        return make()


DESCENTS = Registry("descent", {"sgd": SGD(), "momentum": Momentum(), "adam": Adam(), "optax": Optax()}, Descent)
