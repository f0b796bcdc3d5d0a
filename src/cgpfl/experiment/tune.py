"""A small search over a method's own ranges, of the same size for every method."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import nested_parameters, replace


def space(method: Any) -> dict[str, tuple[float, float]]:
    """The hyper-parameters to search, each with its range (declared by ``hyper(..., tune=(low, high))``)."""
    fields = nested_parameters(method).items()
    return {name: f.metadata["tune"] for name, f in fields if f.metadata.get("tune") is not None}


def candidates(method: Any, budget: int, fits: Callable[[Any], Any]) -> list[Any]:
    """``budget`` settings of a method: its own first, then points spread evenly over its ranges.

    The points are those of a Halton sequence, on a logarithmic scale, the same ones every time. ``fits``
    raises CgpflError for settings that do not go with the problem; those are passed over.
    """
    ranges = space(method)
    found = [method]
    if not ranges:
        return found
    from scipy.stats import qmc

    points = qmc.Halton(d=len(ranges), scramble=False).random(20 * budget)[1:]
    for point in points:
        if len(found) >= budget:
            break
        values = {
            name: float(f"{math.exp(math.log(low) + u * (math.log(high) - math.log(low))):.3g}")
            for u, (name, (low, high)) in zip(point, ranges.items(), strict=True)
        }
        try:
            found.append(fits(replace(method, values)))
        except CgpflError:
            continue
    return found
