"""Latent contexts: clustering models, keeping labels stable, choosing how many."""

from cgpfl.contexts.choose import Choice, choose_k
from cgpfl.contexts.crossfit import CrossFit, cross_fit, placed
from cgpfl.contexts.evidence import Evidence, add, no_evidence
from cgpfl.contexts.kmeans import KMeans, Points, best_of, kmeans, lloyd, members_of, prepare, search, seed, seedings
from cgpfl.contexts.labels import match, membership, spreading, transition
from cgpfl.contexts.linkage import LINKAGES, METRICS, Agglomeration, agglomerate, distances

__all__ = [
    "LINKAGES",
    "METRICS",
    "Agglomeration",
    "Choice",
    "CrossFit",
    "Evidence",
    "KMeans",
    "Points",
    "add",
    "agglomerate",
    "best_of",
    "choose_k",
    "cross_fit",
    "distances",
    "kmeans",
    "lloyd",
    "match",
    "members_of",
    "membership",
    "no_evidence",
    "placed",
    "prepare",
    "search",
    "seed",
    "seedings",
    "spreading",
    "transition",
]
