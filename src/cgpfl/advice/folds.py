"""Folds inside each client, the same for every candidate; inside a training fold a part to choose rates on.

    samples of client i    [ fold 0 | fold 1 | ... | fold F-1 ]
    outer run f            trains on all folds but f, is tested on f
    inner run f            trains on most of what outer run f trains on, tested on the rest: to choose rates
    smaller runs f         train on a half and a quarter of what outer run f trains on: alone, for the learning curve

Every sample is tested once in each of several cuts into folds, by models that never saw it and whose rates were chosen
without it. Several cuts, because five folds alone tell little from chance: the differences vary with the cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cgpfl.data import FederatedData, IndexTable
from cgpfl.errors import CgpflError

INNER = 4
"""One of so many samples of a training fold is for choosing rates."""
CUTS = 2
"""Times that a study cuts all samples into folds."""
SHARES = (0.25, 0.5)
"""Of a training fold, for the learning curve."""


@dataclass(frozen=True)
class Folds:
    """The federations of a study, all over the same samples."""

    data: FederatedData
    """The clients that have enough samples."""
    outer: tuple[FederatedData, ...]
    """``[F]``."""
    inner: tuple[FederatedData, ...]
    """``[F]``."""
    smaller: tuple[tuple[FederatedData, ...], ...]
    """``[shares][F]``."""
    left_out: tuple[str, ...] = ()
    """Clients with too few samples."""
    cuts: int = 1
    """Times that all samples were cut: F is as many times the number of folds."""

    @property
    def counts(self) -> np.ndarray:
        """Test samples ``[F, N]``."""
        return np.stack([d.test.counts for d in self.outer])


def everything(data: FederatedData) -> list[np.ndarray]:
    """Positions of all samples of each client, whatever they were for."""
    tables = [t for t in (data.train, data.test, data.validation) if t is not None]
    return [np.concatenate(parts) for parts in zip(*(t.parts() for t in tables), strict=True)]


def make_folds(data: FederatedData, folds: int, seed: int, cuts: int = CUTS) -> Folds:
    """Cut each client's samples into ``folds``, ``cuts`` times; clients with fewer samples than folds are left out."""
    if folds < 3:
        raise CgpflError(f"folds = {folds}: must be at least 3")
    parts = everything(data)
    kept = [i for i, part in enumerate(parts) if len(part) >= folds]
    if len(kept) < 2:
        sizes = sorted((len(p) for p in parts), reverse=True)
        raise CgpflError(
            f"advise: {len(kept)} clients have at least {folds} samples, one a fold; two are needed "
            f"(the largest have {', '.join(map(str, sizes[:3]))})"
        )
    names = tuple(data.name(i) for i in range(data.clients))
    left_out = tuple(names[i] for i in range(data.clients) if i not in set(kept))
    parts = [parts[i] for i in kept]
    kinds = data.y if data.task == "classification" else np.zeros(len(data.y), np.int32)
    dealt = [
        [deal(kinds[part], folds, np.random.default_rng([seed, 11, i, c])) for c in range(cuts)]
        for i, part in zip(kept, parts, strict=True)
    ]
    outer, inner = [], []
    smaller: list[list[FederatedData]] = [[] for _ in SHARES]
    base = _some(data, kept)
    for f in range(cuts * folds):
        train, test, fit, held = [], [], [], []
        few: list[list[np.ndarray]] = [[] for _ in SHARES]
        for i, part, cut in zip(kept, parts, dealt, strict=True):
            draw = np.random.default_rng([seed, 12, f, i])
            left = cut[f // folds] == f % folds
            rest = part[~left]
            order = draw.permutation(rest)
            chosen = deal(kinds[order], min(INNER, len(order)), draw) == 0
            train.append(rest)
            test.append(part[left])
            fit.append(order[~chosen])
            held.append(order[chosen])
            for own, share in zip(few, SHARES, strict=True):
                own.append(order[: max(round(share * len(order)), 1)])
        outer.append(_with(base, train, test))
        inner.append(_with(base, fit, held))
        for listed, own in zip(smaller, few, strict=True):
            listed.append(_with(base, own, test))
    return Folds(base, tuple(outer), tuple(inner), tuple(map(tuple, smaller)), left_out, cuts)


def deal(kinds: np.ndarray, folds: int, draw: np.random.Generator) -> np.ndarray:
    """A fold for each sample ``[n]``, each with equally many, and alike many of each of ``kinds [n]``.

    Samples are sorted by kind, in random order inside, and dealt in turn, so that sizes differ by one at most.
    """
    mixed = draw.permutation(len(kinds))
    order = mixed[np.argsort(kinds[mixed], kind="stable")]
    names = draw.permutation(folds)
    found = np.empty(len(kinds), np.int64)
    found[order] = names[np.arange(len(kinds)) % folds]
    return found


def _some(data: FederatedData, kept: list[int]) -> FederatedData:
    """The federation of these clients alone, who keep their names; ids are counted anew."""
    names = tuple(data.name(i) for i in kept) if data.names or len(kept) < data.clients else ()
    return replace(
        data,
        train=data.train.of_clients(kept),
        test=data.test.of_clients(kept),
        validation=None if data.validation is None else data.validation.of_clients(kept),
        context=None if data.context is None else data.context[kept],
        names=names,
        ids=np.arange(len(kept), dtype=np.int32),
    )


def _with(base: FederatedData, train: list[np.ndarray], test: list[np.ndarray]) -> FederatedData:
    return replace(base, train=IndexTable.of(train), test=IndexTable.of(test), validation=None, public=None)
