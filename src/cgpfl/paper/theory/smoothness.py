"""L of the clients' losses: the curvature of f_i at given parameters.

L is the largest |eigenvalue| of the Hessian ∇²f_i, of the training loss with its regulariser over all of a client's
training samples. The Hessian is never formed: Lanczos' recurrence needs its product with a vector, once a step, and
two vectors of memory, as power iteration does. It is used here because it finds both ends of the spectrum at
once (a net's Hessian is indefinite, and a theorem may ask how negative it gets), in fewer products, with a bound on
the error that power iteration does not have. No orthogonalisation: rounding then repeats eigenvalues that were found
already, which does not touch the two ends (Paige 1980).

The curvature at a point is a *lower* bound of the L that holds everywhere, which is the one in the theorems. For MLR
:func:`mlr_bound` is an upper bound of that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.algorithms import ClientData, Task
from cgpfl.algorithms.steps import over_samples
from cgpfl.data import FederatedData
from cgpfl.engine.blocks import auto_block, client_bytes, over_clients
from cgpfl.engine.problem import Arrays, host, on_device
from cgpfl.models.nets import MLR
from cgpfl.tree import Tree, axpy, dot

STEPS = 8
"""Hessian products between two looks at the eigenvalues."""


@dataclass(frozen=True)
class Smoothness:
    """Both ends of each client's Hessian spectrum at a point, ``[N]`` each."""

    largest: np.ndarray  # largest eigenvalue
    smallest: np.ndarray  # smallest, negative where f_i is not convex
    error: np.ndarray  # |eigenvalue found − a true one| is at most this share of L
    iterations: np.ndarray  # Hessian products used
    tolerance: float

    @property
    def each(self) -> np.ndarray:
        """L_i ``[N]``: the larger of the two in magnitude. Never above the true curvature at the point."""
        return np.maximum(np.abs(self.largest), np.abs(self.smallest))

    @property
    def L(self) -> float:
        """The largest L_i."""
        return float(self.each.max())

    @property
    def converged(self) -> bool:
        """Whether every client's error is within the tolerance."""
        return bool((self.error <= self.tolerance).all())

    def explain(self) -> str:
        kind = "convex here" if float(self.smallest.min()) >= -self.tolerance * self.L else "not convex"
        return (
            f"L = {self.L:.3g} at these parameters (clients {self.each.min():.3g} to {self.L:.3g}), {kind}: "
            f"eigenvalues from {self.smallest.min():.3g} to {self.largest.max():.3g}\n"
            f"{int(self.iterations.max())} Hessian products, relative error at most {self.error.max():.1g}"
            f"{'' if self.converged else ' – NOT converged'}; a lower bound of the L that holds everywhere"
        )


class Ends(NamedTuple):
    """Both ends of a spectrum, and how well they are known."""

    largest: Array
    smallest: Array
    error: Array
    iterations: Array


class _Lanczos(NamedTuple):
    previous: Tree
    vector: Tree
    alphas: Array  # [most] diagonal of the tridiagonal matrix
    betas: Array  # [most] beside the diagonal: betas[j] joins j and j + 1
    step: Array
    ends: Ends


def spectrum(
    product: Callable[[Tree], Tree], like: Tree, key: Array, *, most: int = 128, tolerance: Array | float = 1e-3
) -> Ends:
    """Both ends of the spectrum of a symmetric ``product`` on trees shaped as ``like``, by Lanczos.

    Stops when both ends are known to ``tolerance`` (relative to the larger), or after ``most`` products.
    """

    def one(j: Array, state: _Lanczos) -> _Lanczos:
        last = state.betas[j - 1] * (j > 0)
        w = axpy(-last, state.previous, product(state.vector))
        alpha = dot(w, state.vector)
        w = axpy(-alpha, state.vector, w)
        beta = jnp.sqrt(dot(w, w))
        # Nothing left: the space found so far is invariant, and holds both ends (with probability one).
        ended = beta <= 1e-6 * jnp.max(jnp.abs(state.alphas.at[j].set(alpha)))
        beta = jnp.where(ended, 0.0, beta)
        alive = (j == 0) | (last > 0)
        following = jax.tree.map(lambda x: x / jnp.where(beta > 0, beta, jnp.inf), w)
        # After the end every further diagonal entry repeats the first, a value inside the spectrum.
        alphas = state.alphas.at[j].set(jnp.where(alive, alpha, state.alphas[0]))
        return state._replace(
            previous=state.vector,
            vector=following,
            alphas=alphas,
            betas=state.betas.at[j].set(beta),
            step=state.step + alive,
        )

    def look(state: _Lanczos, done: Array) -> Ends:
        index = jnp.arange(most)
        diagonal = jnp.where(index < done, state.alphas, state.alphas[0])
        beside = jnp.where(index < done - 1, state.betas, 0.0)[: most - 1]
        values, vectors = jnp.linalg.eigh(jnp.diag(diagonal) + jnp.diag(beside, 1) + jnp.diag(beside, -1))
        scale = jnp.maximum(jnp.abs(values[0]), jnp.abs(values[-1]))
        bottom = jnp.abs(vectors[done - 1])
        residual = state.betas[done - 1] * jnp.maximum(bottom[0], bottom[-1])
        return Ends(values[-1], values[0], residual / jnp.where(scale > 0, scale, 1.0), state.step)

    def body(carry: tuple[Array, _Lanczos]) -> tuple[Array, _Lanczos]:
        j, state = carry
        state = jax.lax.fori_loop(j, j + STEPS, one, state)
        return j + STEPS, state._replace(ends=look(state, j + STEPS))

    def going(carry: tuple[Array, _Lanczos]) -> Array:
        return (carry[0] < most) & (carry[1].ends.error > tolerance)

    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    start = jax.tree.unflatten(
        structure, [jax.random.normal(k, v.shape, v.dtype) for k, v in zip(keys, leaves, strict=True)]
    )
    length = jnp.sqrt(dot(start, start))
    start = jax.tree.map(lambda x: x / length, start)
    zero = jax.tree.map(jnp.zeros_like, start)
    unknown = Ends(jnp.float32(0), jnp.float32(0), jnp.float32(jnp.inf), jnp.int32(0))
    first = _Lanczos(zero, start, jnp.zeros(most), jnp.zeros(most), jnp.int32(0), unknown)
    return jax.lax.while_loop(going, body, (jnp.int32(0), first))[1].ends


def hessian_product(task: Task, params: Tree, data: ClientData, vector: Tree) -> Tree:
    """∇²f_i(params)·vector over all of a client's samples, a chunk at a time."""
    return over_samples(lambda batch: jax.jvp(lambda p: task.grad(p, batch), (params,), (vector,))[1], data)


@partial(jax.jit, static_argnames=("most", "block"))
def _ends(task: Task, arrays: Arrays, params: Tree, key: Array, tolerance: Array, most: int, block: int) -> Ends:
    def one(client_id: Array, own: Tree, rows: Array, count: Array) -> Ends:
        data = arrays.view(rows, count)
        return spectrum(
            lambda v: hessian_product(task, own, data, v),
            own,
            jax.random.fold_in(key, client_id),
            most=most,
            tolerance=tolerance,
        )

    return over_clients(one, (arrays.ids, params, arrays.train.rows, arrays.train.counts), block)


def smoothness(
    model: Any,
    data: FederatedData,
    params: Tree,
    *,
    most: int = 128,
    tolerance: float = 1e-3,
    seed: int = 0,
    clients_per_block: int = 0,
) -> Smoothness:
    """L_i of every client's training loss at its own parameters, ``params [N, ...]``.

    Take a run's personal models, ``state.clients``, or one model for all, ``repeat(model, N)``. Up to ``most``
    (a multiple of 8) products with the Hessian a client; ``Smoothness.converged`` says whether they were enough.
    """
    one = jax.tree.map(lambda x: x[0], params)
    task = Task(initial=one, model=model, clients=data.clients)
    block = clients_per_block or auto_block(client_bytes(model, one), data.clients)
    most = -(-most // STEPS) * STEPS
    arrays, key = on_device(data), jax.random.key(seed)
    found = host(_ends(task, arrays, params, key, jnp.float32(tolerance), most=most, block=block))
    return Smoothness(found.largest, found.smallest, found.error, found.iterations, tolerance)


def mlr_bound(model: MLR, data: FederatedData) -> np.ndarray:
    """An L_i ``[N]`` for MLR that holds at all parameters: ½·λ_max(X̃ᵀX̃/m_i) + l2, X̃ the inputs with a column of ones.

    The Hessian is the mean of (diag(p) − ppᵀ) ⊗ x̃x̃ᵀ plus l2·I, and diag(p) − ppᵀ is at most ½ for any p.
    """

    def one(i: int) -> float:
        x = data.inputs(i)[0].reshape(int(data.train.counts[i]), -1).astype(np.float64)
        x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        return 0.5 * float(np.linalg.norm(x, 2)) ** 2 / len(x) + model.l2

    return np.array([one(i) for i in range(data.clients)])
