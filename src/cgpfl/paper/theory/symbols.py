"""A method in the symbols of the paper's theorems.

G is the clients' objective for the context models. Algorithm 1's step ω̃ ← ω̃ − β·(2/N)(ω̃ − θ) is a step along
∇G_i for

    G_i(ω) = (1/N)‖θ_i − ω‖²,   G_k(ω_k) = mean of G_i(ω_k) over i ∈ C_k,   ∇G_k(ω_k) = (2/N)(ω_k − mean of θ_i)

so this is the scale of G everywhere here. (The paper's Assumption 2 has r = ½‖θ_i − ω‖² instead, which is N/2 times
as large; :class:`cgpfl.paper.theory.StepCondition` shows what that changes.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms import CGPFL, PFedMe
from cgpfl.errors import CgpflError
from cgpfl.tree import Tree, mix, norms, take


@dataclass(frozen=True)
class Symbols:
    """The step sizes and counts that the theorems speak of."""

    alpha: float  # α, the server's rate
    beta: float  # β, of Algorithm 1: the client's rate is 2β/N
    prox: float  # λ
    local_rounds: int  # R
    inner_steps: int  # S
    clients: int  # N

    @property
    def alpha_hat(self) -> float:
        """α̂ = αβR, the step of a whole round."""
        return self.alpha * self.beta * self.local_rounds


def symbols(method: Any, clients: int) -> Symbols:
    """The symbols of CGPFL, or of pFedMe, which is CGPFL with K = 1."""
    if not isinstance(method, CGPFL | PFedMe):
        raise CgpflError(f"{getattr(method, 'name', method)}: the theorems are about cgpfl and pfedme")
    rate = method.context_rate if isinstance(method, CGPFL) else method.global_rate
    return Symbols(
        alpha=float(method.server_rate),
        beta=float(rate) * clients / 2,
        prox=float(method.prox),
        local_rounds=method.local_rounds,
        inner_steps=method.inner_steps,
        clients=clients,
    )


def contexts_of(method: Any, server: Any, ids: Array) -> tuple[Tree, Array]:
    """Ω ``[K, ...]`` and the context ``[N]`` of each of the clients ``ids [N]``."""
    if isinstance(method, CGPFL):
        return server.models, server.assignment[ids]
    if isinstance(method, PFedMe):
        return server, jnp.zeros(ids.shape[0], jnp.int32)
    raise CgpflError(f"{getattr(method, 'name', method)}: the theorems are about cgpfl and pfedme")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Spread:
    """Where the personal models lie around their contexts' models. K counts the contexts with members."""

    k: Array  # contexts with members
    gradient: Array  # (1/K) Σ_k ‖∇G_k(ω_k)‖²
    objective: Array  # (1/K) Σ_k G_k(ω_k)
    omega: Array  # ‖Ω‖², over contexts with members
    diversity: Array  # max over k of (1/|C_k|) Σ_i ‖θ_i − mean θ‖²
    gap: Array  # [N] ‖θ_i − ω_k(i)‖


def spread(models: Tree, labels: Array, personal: Tree) -> Spread:
    """G, ∇G and the rest of what Theorem 4.1 speaks of, for Ω ``[K, ...]``, contexts ``[N]`` and θ ``[N, ...]``."""
    clients, slots = labels.shape[0], jax.tree.leaves(models)[0].shape[0]
    one_hot = jax.nn.one_hot(labels, slots)
    sizes = one_hot.sum(axis=0)
    p = one_hot / jnp.maximum(sizes, 1.0)
    used = (sizes > 0).astype(jnp.float32)
    k = used.sum()
    means = mix(personal, p)
    squares = norms(jax.tree.map(jnp.subtract, personal, take(models, labels))) ** 2
    within = norms(jax.tree.map(jnp.subtract, personal, take(means, labels))) ** 2
    away = used * norms(jax.tree.map(jnp.subtract, models, means)) ** 2
    return Spread(
        k=k,
        gradient=(2 / clients) ** 2 * away.sum() / k,
        objective=(squares @ p).sum() / clients / k,
        omega=(used * norms(models) ** 2).sum(),
        diversity=(within @ p).max(),
        gap=jnp.sqrt(squares),
    )
