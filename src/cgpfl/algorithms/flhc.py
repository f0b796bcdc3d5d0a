"""FL+HC: FedAvg for a while, then one hierarchical clustering of the updates, then FedAvg in each cluster.

Briggs, Fan, Andras: Federated Learning with Hierarchical Clustering of Local Updates to Improve Training
on Non-IID Data. IJCNN 2020.

    rounds 1..n     FedAvg
    round n + 1     Δ_i = client i's update of the model all share;
                    agglomerative clustering of the Δ_i (metric, linkage) cut at a distance threshold
    from then on    FedAvg inside each cluster
    personal        the cluster's model

Where only some clients take part, the clustering waits until everyone was heard after round n, or ``patience``
more rounds: who was not heard until then stays in the first cluster.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from cgpfl.algorithms.groups import GroupedFedAvg, Groups
from cgpfl.contexts import LINKAGES, METRICS, agglomerate, distances
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import repeat, switch


@algorithm
class FLHC(GroupedFedAvg):
    """FedAvg, one hierarchical clustering of the clients' updates, FedAvg inside the clusters."""

    name = "fl-hc"
    citation = "Briggs et al., IJCNN 2020"
    when = "Groups of clients that disagree, found once and early; a distance threshold says how fine."

    warmup: int = hyper(10, "n: rounds of FedAvg before the clustering", low=0)
    metric: str = hyper("cosine", "distance between updates", words=METRICS)
    linkage: str = hyper("average", "distance between groups of updates", words=LINKAGES)
    threshold: float = hyper(1.0, "distance up to which groups are merged", above=0, tune=(0.5, 1.5))

    def check(self, clients: int, answers: float, rounds: int) -> None:
        """A warm-up that leaves rounds for clusters, and a linkage that goes with the metric."""
        if self.warmup >= rounds:
            raise CgpflError(f"fl-hc: warmup = {self.warmup}: the run has {rounds} rounds; lower it or run more rounds")
        if self.linkage == "ward" and self.metric != "euclidean":
            raise CgpflError(f'fl-hc: linkage = "ward": needs metric = "euclidean", not "{self.metric}"')

    def regroup(self, server: Groups) -> Groups:
        """Cluster once, when the warm-up is over."""
        # Updates from before the end of the warm-up do not count.
        server = replace(server, fresh=server.fresh & (server.round >= self.warmup))
        due = (server.round >= self.warmup) & (server.fresh.all() | (server.round >= self.warmup + self.patience))
        return switch(due.astype(jnp.int32), [lambda method, s: s, lambda method, s: method._cluster(s)], self, server)

    def _cluster(self, server: Groups) -> Groups:
        slots = jax.tree.leaves(server.models)[0].shape[0]
        between = distances(server.updates, self.metric)
        found = agglomerate(between, server.fresh, linkage=self.linkage, threshold=self.threshold, most=slots)
        shared = jax.tree.map(lambda w: w[0], server.models)
        return replace(
            server,
            models=repeat(shared, slots),
            assignment=found.labels,
            k=found.k,
            changed=server.round,
            settled=jnp.bool_(True),
        )
