"""Per-FedAvg: a global model that is good after one step on a client's data (MAML).

Fallah, Mokhtari, Ozdaglar: Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic
Meta-Learning Approach. NeurIPS 2020.

    client i    R times, on fresh minibatches D, D', D'':
                u = w − α ∇f_i(w; D);   g = ∇f_i(u; D')
                FO    w ← w − β g
                HF    h = [∇f_i(w + δg; D'') − ∇f_i(w − δg; D'')] / (2δ)        ≈ ∇²f_i(w) g
                      w ← w − β (g − α h)
    server      Σ_i (m_i / m) w_i
    personal    w − α ∇f_i(w), the gradient over all of the client's training samples

The paper's mean counts clients alike; this one counts samples, as FedAvg's does.
"""

from __future__ import annotations

import jax
from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.steps import Averaging, SGDMethod, full_gradient
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, axpy


@algorithm
class PerFedAvg(Averaging, SGDMethod):
    """A start from which one step on a client's own data gives its model."""

    name = "per-fedavg"
    citation = "Fallah et al., NeurIPS 2020"
    when = "New clients should get a good model after one step on their data, without having taken part."

    order: str = hyper("hf", "hf = Hessian by differences of gradients; fo = first order", words=("hf", "fo"))
    adapt_rate: float = hyper(0.1, "α: rate of the step that personalises", above=0, tune=(0.01, 1.0))
    delta: float = hyper(1e-3, "δ: step of the difference (hf)", above=0)

    def train(
        self, task: Task, message: Tree, client: tuple[()], data: ClientData, key: Array
    ) -> tuple[Tree, tuple[()]]:
        """R meta-gradient steps."""

        def step(w: Tree, step_key: Array) -> tuple[Tree, None]:
            one, two, three = (data.batch(k, self.batch_size) for k in jax.random.split(step_key, 3))
            g = task.grad(axpy(-self.adapt_rate, task.grad(w, one), w), two)
            if self.order == "hf":
                up, down = (task.grad(axpy(sign * self.delta, g, w), three) for sign in (1.0, -1.0))
                curve = jax.tree.map(lambda a, b: (a - b) / (2 * self.delta), up, down)
                g = axpy(-self.adapt_rate, curve, g)
            return axpy(-self.rate, g, w), None

        return jax.lax.scan(step, message, jax.random.split(key, self.local_rounds))[0], ()

    def personal(self, task: Task, message: Tree, client: tuple[()], data: ClientData, key: Array) -> Tree:
        """The global model after one step on the client's own training samples."""
        return axpy(-self.adapt_rate, full_gradient(task, message, data), message)

    def gradients(self) -> float:
        """Two a step, or four with the Hessian's difference."""
        return (4 if self.order == "hf" else 2) * self.local_rounds
