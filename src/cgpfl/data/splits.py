"""Splits: which client gets which samples. Each takes labels and a seed and returns positions.

Every client gets at least ``smallest`` and at most ``largest`` samples: rules that draw at random try again a
bounded number of times, then say what to change. FederatedData checks what comes out: no sample twice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cgpfl.errors import CgpflError

Parts = list[np.ndarray]
TRIES = 100


def iid(labels: np.ndarray, clients: int, rng: np.random.Generator) -> Parts:
    """Every sample to a random client, sizes equal to within one."""
    return [np.sort(p) for p in np.array_split(rng.permutation(len(labels)), clients)]


def dirichlet(labels: np.ndarray, clients: int, rng: np.random.Generator, alpha: float) -> Parts:
    """Each class is shared out by a draw from Dirichlet(alpha): small alpha, very different clients.

    Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution. 2019.
    """
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = (np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(rows)).round().astype(int)
        for part, piece in zip(parts, np.split(rows, cuts), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(p)) for p in parts]


def by_class(labels: np.ndarray, holders: list[list[int]], shares: np.ndarray, rng: np.random.Generator) -> Parts:
    """Client i gets samples of the classes ``holders[i]``, in proportion to ``shares[i]`` among a class's holders."""
    parts: list[list[np.ndarray]] = [[] for _ in holders]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        owners = [i for i, classes in enumerate(holders) if label in classes]
        if owners:
            weight = shares[owners] / shares[owners].sum()
            cuts = (np.cumsum(weight)[:-1] * len(rows)).round().astype(int)
            for i, piece in zip(owners, np.split(rows, cuts), strict=True):
                parts[i].append(piece)
    return [np.sort(np.concatenate(p)) if p else np.zeros(0, int) for p in parts]


def cyclic_classes(clients: int, held: int, classes: int) -> list[list[int]]:
    """Client i holds classes i, i+1, … mod C: the rule of the code the paper's line of work shares."""
    return [[(i + j) % classes for j in range(held)] for i in range(clients)]


def block_classes(clients: int, held: int, classes: int) -> list[list[int]]:
    """Disjoint blocks of ``held`` classes, one after the other (the last may be smaller), clients in turn."""
    blocks = [list(range(b, min(b + held, classes))) for b in range(0, classes, held)]
    return [blocks[i % len(blocks)] for i in range(clients)]


def random_classes(clients: int, held: int, classes: int, rng: np.random.Generator) -> list[list[int]]:
    """Any ``held`` classes for each client."""
    return [sorted(rng.choice(classes, held, replace=False).tolist()) for _ in range(clients)]


RULES = ("iid", "cyclic", "block", "random", "dirichlet")


def split(
    labels: np.ndarray,
    rule: str,
    clients: int,
    *,
    seed: int = 0,
    held: int = 3,
    alpha: float = 0.5,
    spread: float = 0.0,
    smallest: int = 4,
    largest: int = 0,
) -> Parts:
    """Split samples with ``labels [n]`` over ``clients`` by ``rule``; one position array a client.

    ``held``: classes a client, for cyclic, block and random. ``alpha``: of Dirichlet. ``spread``: how
    unequal sizes are, as the standard deviation of log-normal shares, for the class rules (0 = equal).
    ``smallest`` and ``largest``: samples every client must get, and may get (0: any number).
    """
    labels = np.asarray(labels)
    classes = int(labels.max()) + 1
    if rule not in RULES:
        raise CgpflError(f"no split {rule!r}; there are {', '.join(RULES)}")
    if clients < 1:
        raise CgpflError(f"clients = {clients}: must be at least 1")
    if clients * smallest > len(labels):
        raise CgpflError(
            f"clients = {clients}: too many for {len(labels)} samples at {smallest} a client; "
            f"at most {len(labels) // smallest}"
        )
    if largest and largest < smallest:
        raise CgpflError(f"largest = {largest}: must be 0, for no limit, or at least smallest, {smallest}")
    if largest and rule in ("iid", "dirichlet") and clients * largest < len(labels):
        raise CgpflError(
            f"largest = {largest}: too few for {clients} clients to hold all {len(labels)} samples; "
            f"at least {-(-len(labels) // clients)}, or use a smaller share of the samples"
        )
    if rule in ("cyclic", "block", "random") and not 1 <= held <= classes:
        raise CgpflError(f"classes_per_client = {held}: must be between 1 and {classes}")
    if alpha <= 0:
        raise CgpflError(f"alpha = {alpha:g}: must be above 0")
    if spread < 0:
        raise CgpflError(f"spread = {spread:g}: must be at least 0")

    def draw(rng: np.random.Generator) -> Parts:
        if rule == "iid":
            return iid(labels, clients, rng)
        if rule == "dirichlet":
            return dirichlet(labels, clients, rng, alpha)
        holders: Callable[[], list[list[int]]] = {
            "cyclic": lambda: cyclic_classes(clients, held, classes),
            "block": lambda: block_classes(clients, held, classes),
            "random": lambda: random_classes(clients, held, classes, rng),
        }[rule]
        return by_class(labels, holders(), np.exp(spread * rng.standard_normal(clients)), rng)

    for attempt in range(TRIES):
        parts = draw(np.random.default_rng([seed, 0, attempt]))
        sizes = [len(p) for p in parts]
        if min(sizes) >= smallest and max(sizes) <= (largest or len(labels)):
            return parts
    limits, changes = f"under {smallest}", "fewer clients, a larger alpha or classes_per_client, or a smaller smallest"
    if largest:
        limits += f" or over {largest}"
        changes = "a smaller spread, a larger alpha or classes_per_client, other limits, or another number of clients"
    raise CgpflError(f"split {rule}: {TRIES} draws left a client with {limits} samples; use {changes}")


def sample(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Positions of a random ``share`` of every class, at least one sample of each, in order. ``[m]``."""
    rng = np.random.default_rng([seed, 4])
    rows = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.sort(np.concatenate([rng.permutation(r)[: max(round(share * len(r)), 1)] for r in rows]))
