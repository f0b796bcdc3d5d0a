"""CFL: FedAvg that splits a group of clients in two when their updates disagree.

Sattler, Müller, Samek: Clustered Federated Learning: Model-Agnostic Distributed Multi-Task Optimization
under Privacy Constraints. IEEE TNNLS 2020.

    client i    FedAvg's, from its group's model;   Δ_i = its update
    server      a group C is split when the mean has come to rest but its members have not:
                    ‖Σ_{i∈C} (m_i/m_C) Δ_i‖ < ε₁   and   max_{i∈C} ‖Δ_i‖ > ε₂
                into the two groups of the dendrogram over −cos(Δ_i, Δ_j);
                then FedAvg inside each group
    personal    the group's model

Complete linkage is what the authors' code uses; their Algorithm 1, which makes the largest similarity
across the cut as small as possible, is ``linkage="single"``. ε₁ and ε₂ are lengths of updates, so
they depend on the model, the rate and R. At most one group is split in a round.
Where only some clients take part, a group is split once all of its members were heard since it exists, or after
``patience`` rounds without a split; who was not heard until then stays in its first half.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.groups import GroupedFedAvg, Groups
from cgpfl.contexts import LINKAGES, agglomerate, distances
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import mix, norms, scale, switch


@algorithm
class CFL(GroupedFedAvg):
    """FedAvg inside groups that are split when their clients pull apart."""

    name = "cfl"
    citation = "Sattler et al., TNNLS 2020"
    original = "ε₁ = 0.4 and ε₂ = 1.6 in the authors' code, for another model and rate"
    when = (
        "Groups of clients that disagree, their number unknown, and FedAvg as a start; two thresholds must "
        "fit the model."
    )

    rest: float = hyper(0.1, "ε₁: a group may be split when its mean update is shorter", above=0, tune=(0.03, 1.0))
    unrest: float = hyper(0.6, "ε₂: … and its longest update is longer", low=0)
    linkage: str = hyper("complete", "how groups of the dendrogram are compared", words=LINKAGES)

    def regroup(self, server: Groups) -> Groups:
        """Split the first group that should be."""
        slots = jax.tree.leaves(server.models)[0].shape[0]
        everyone = jax.nn.one_hot(server.assignment, slots).T  # [K, N]
        members = everyone * server.fresh
        weights = members * server.samples
        total = weights.sum(axis=1)
        mean = mix(server.updates, (weights / jnp.where(total > 0, total, 1.0)[:, None]).T)
        longest = (members * norms(server.updates)).max(axis=1)
        missing = (everyone * ~server.fresh).sum(axis=1) > 0
        waited = ~missing | (server.round - server.changed >= self.patience)
        due = (norms(mean) < self.rest) & (longest > self.unrest) & waited & (members.sum(axis=1) > 1)
        due = due & (server.k < slots)
        branches = [lambda method, s, g: s, lambda method, s, g: method._split(s, g)]
        return switch(due.any().astype(jnp.int32), branches, self, server, jnp.argmax(due))

    def _split(self, server: Groups, g: Array) -> Groups:
        """Group ``g`` in two; the second takes the next free place."""
        inside = (server.assignment == g) & server.fresh
        between = distances(scale(server.updates, inside.astype(jnp.float32)), "cosine")
        side = agglomerate(between, inside, linkage=self.linkage, least=2).labels
        k = server.k
        return replace(
            server,
            models=jax.tree.map(lambda w: w.at[k].set(w[g]), server.models),
            assignment=jnp.where(inside & (side == 1), k, server.assignment),
            k=k + 1,
            fresh=server.fresh & (server.assignment != g),
            changed=server.round,
        )
