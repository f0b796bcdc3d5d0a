"""The client's step of pFedMe and CGPFL, and what makes it unstable."""

from __future__ import annotations

import jax
from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.steps import over_batches
from cgpfl.batch import Batch
from cgpfl.tree import Tree


def moreau_rounds(
    task: Task,
    generalized: Tree,
    personal: Tree,
    data: ClientData,
    key: Array,
    *,
    prox: Array | float,
    personal_rate: Array | float,
    generalized_rate: Array | float,
    local_rounds: int,
    inner_steps: int,
    batch_size: int,
) -> tuple[Tree, Tree]:
    """The client's work in pFedMe and CGPFL → (ω̃, θ).

    R times: draw one minibatch; S times θ ← θ − η(∇f_i(θ) + λ(θ − ω̃)), which approaches the Moreau
    prox of f_i at ω̃; then ω̃ ← ω̃ − rate·(ω̃ − θ).
    """

    def local_round(state: tuple[Tree, Tree], batch: Batch) -> tuple[Tree, Tree]:
        omega, theta = state
        theta = task.proximal_steps(theta, omega, batch, prox, personal_rate, inner_steps)
        omega = jax.tree.map(lambda w, t: w - generalized_rate * (w - t), omega, theta)
        return omega, theta

    return over_batches(local_round, (generalized, personal), data, key, local_rounds, batch_size)


def unstable_prox(prox: float, rate: float) -> str | None:
    """θ ← θ − η·λ(θ − ω) alone diverges once η·λ reaches 2."""
    if float(prox) * float(rate) < 2:
        return None
    return f"prox x personal_rate = {float(prox) * float(rate):g}, and the inner steps need it below 2"
