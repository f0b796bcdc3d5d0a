"""What is wrong with a federation's samples, before anything is trained: what will hurt is said first.

Every check looks at the samples as they are stored and gives findings: a line that says what is, one that says what to
do, and a harm by which they are ordered.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from cgpfl.data.federated import FederatedData
from cgpfl.data.findings import MOST_NAMES, Finding, Table, class_counts, is_id, named, opened
from cgpfl.data.suspects import given_away, missing, scales, unscaled, useless

TINY = 5
"""Fewer samples than this tell nothing about a client."""


def findings(data: FederatedData) -> list[Finding]:
    """Everything that was found, the most harmful first."""
    table = opened(data)
    checks = (given_away, _repeated, _one_class, scales, unscaled, missing, useless, _sizes)
    found = [finding for check in checks for finding in check(data, table)]
    return sorted(found, key=lambda f: -f.harm)


def _keys(data: FederatedData, table: Table) -> np.ndarray:
    """A number for each different sample ``[n]``; ids do not count."""
    kept = [name for name in table.frame.columns if not is_id(table.frame[name])]
    if kept:
        hashes = pd.util.hash_pandas_object(table.frame[kept], index=False).to_numpy()
        return np.unique(hashes, return_inverse=True)[1]
    flat = np.ascontiguousarray(data.x[table.rows].reshape(len(table.rows), -1))
    return np.unique(flat.view([("", f"V{flat.shape[1] * flat.itemsize}")]).ravel(), return_inverse=True)[1]


def _repeated(data: FederatedData, table: Table) -> Iterator[Finding]:
    """Identical samples: in training and test, with several clients, with other labels."""
    key = _keys(data, table)
    many = int(key.max()) + 1
    if many == len(key):
        return
    few = many < 0.5 * len(key)
    why = "; rows repeat so often that columns with few values may be the reason" if few else ""
    trained = np.zeros(many, bool)
    trained[key[~table.test]] = True
    leaked = int(trained[key[table.test]].sum())
    if leaked:
        share = leaked / int(table.test.sum())
        yield Finding(
            40 if few else 90 if share > 0.01 else 60,
            f"{leaked:,} of {int(table.test.sum()):,} test samples ({share:.1%}) are in training, too{why}",
            "remove repeated rows, or the scores are too good",
        )
    pairs = np.unique(np.stack([key, table.owner], axis=1), axis=0)
    holders = np.bincount(pairs[:, 0], minlength=many)
    shared = holders[key] > 1
    if shared.any():
        who = np.bincount(table.owner[shared], minlength=data.clients)
        first = np.argsort(-who, kind="stable")[: int((who > 0).sum())]
        yield Finding(
            30 if few else 55,
            f"{int(shared.sum()):,} samples are with several clients (most: {named(data, first.tolist())}){why}",
            "check whether clients are one and the same, or rows were copied",
        )
    if data.task == "classification":
        labels = np.unique(np.stack([key, data.y[table.rows]], axis=1), axis=0)
        torn = np.bincount(labels[:, 0], minlength=many)[key] > 1
        if torn.any():
            yield Finding(
                45,
                f"{int(torn.sum()):,} samples are identical to one with another label",
                "no model can be right on all of them; look for labels that were mixed up",
            )


def _one_class(data: FederatedData, table: Table) -> Iterator[Finding]:
    """Clients with one label, and labels of few clients."""
    if data.task != "classification":
        return
    counts = class_counts(data, table)
    one = np.flatnonzero((counts > 0).sum(axis=1) == 1)
    if one.size:
        yield Finding(
            75 if one.size > 0.5 * data.clients else 50,
            f"{one.size} of {data.clients} clients have one label only: {named(data, one.tolist())}",
            "their scores say little, and alone they learn nothing; share a model",
        )
    names = data.labels or tuple(range(data.classes))
    total = counts.sum(axis=0)
    rare = [c for c in range(data.classes) if 0 < total[c] < max(0.01 * total.sum(), 5)]
    if rare:
        listed = ", ".join(f"{names[c]} ({total[c]})" for c in rare[:MOST_NAMES])
        yield Finding(30, f"Labels with very few samples: {listed}", "measure balanced-accuracy, too (--metrics)")
    gone = [str(names[c]) for c in range(data.classes) if total[c] == 0]
    if gone:
        yield Finding(15, f"Labels that nobody has: {', '.join(gone[:MOST_NAMES])}", "leave them out")


def _sizes(data: FederatedData, table: Table) -> Iterator[Finding]:
    """Clients with very few samples, or nearly all."""
    sizes = np.bincount(table.owner, minlength=data.clients)
    tiny = np.flatnonzero(sizes < TINY)
    if tiny.size:
        yield Finding(
            45 if tiny.size > 0.2 * data.clients else 20,
            f"{tiny.size} of {data.clients} clients have fewer than {TINY} samples: {named(data, tiny.tolist())}",
            f"leave them out (--set data.smallest={TINY}), or do not trust their scores",
        )
    if data.clients > 2 and sizes.max() > 0.5 * sizes.sum():
        share = sizes.max() / sizes.sum()
        yield Finding(
            35,
            f"{data.name(int(sizes.argmax()))} holds {share:.0%} of all samples",
            "means over samples are mostly its own; look at the worst tenth",
        )
