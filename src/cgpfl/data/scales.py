"""Whether a model's inputs are of one scale; where they are not, no learning rate suits all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

APART = 100.0
"""How many times the smallest scale the largest may be."""
LOOKED_AT = 10_000
"""Samples at most of which arrays' scales are measured."""


def scale_note(data: Any) -> str | None:
    """A warning where the largest input is more than 100 times the smallest; None where all is well.

    ``data``: a federation, or what a server knows of one. An input's scale is the root of its mean square, of a table
    from its statistics, of flat arrays ``[n, features]`` over the values that are not 0. Images are of one scale.
    """
    form = data.form()
    if form.columns is not None:
        if form.columns.standardise:
            return None
        scales = {c.name: (c.mean**2 + c.std**2) ** 0.5 for c in form.columns.columns if c.is_number}
        how = "say standardise = true in [data], or bring them to one scale"
    elif len(form.shape) == 1 and getattr(data, "x", None) is not None and form.objective.task != "next-token":
        x = np.asarray(data.x[:LOOKED_AT], np.float64) * form.units()[0] + form.units()[1]
        there = np.maximum((x != 0).sum(axis=0), 1)
        scales = {f"input {i}": float(v) for i, v in enumerate(np.sqrt(np.square(x).sum(axis=0) / there))}
        how = "bring them to one scale, by scale and shift for instance"
    else:
        return None
    known = {name: scale for name, scale in scales.items() if scale > 0}
    if len(known) < 2:
        return None
    small, large = min(known, key=lambda n: known[n]), max(known, key=lambda n: known[n])
    if known[large] <= APART * known[small]:
        return None
    return (
        f"inputs differ in scale: {large} is about {known[large]:.2g}, {small} about {known[small]:.2g}; "
        f"no learning rate suits both: {how}"
    )
