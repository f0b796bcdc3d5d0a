"""Latent contexts: clustering models, keeping labels stable, choosing how many."""

from cgpfl.contexts.choose import Choice, choose_k
from cgpfl.contexts.kmeans import KMeans, Points, best_of, kmeans, lloyd, members_of, prepare, seed, seedings
from cgpfl.contexts.labels import match, membership, spreading, transition
from cgpfl.contexts.linkage import LINKAGES, METRICS, Agglomeration, agglomerate, distances

__all__ = [
    "LINKAGES",
    "METRICS",
    "Agglomeration",
    "Choice",
    "KMeans",
    "Points",
    "agglomerate",
    "best_of",
    "choose_k",
    "distances",
    "kmeans",
    "lloyd",
    "match",
    "members_of",
    "membership",
    "prepare",
    "seed",
    "seedings",
    "spreading",
    "transition",
]
