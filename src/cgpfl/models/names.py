"""Parameters by dotted names (``conv1.weight``) and as a nest of dictionaries, one a layer."""

from __future__ import annotations

from typing import Any

from cgpfl.models.base import Params


def nested(arrays: dict[str, Any]) -> Params:
    """``{"a.b": v}`` → ``{"a": {"b": v}}``."""
    tree: Params = {}
    for name, array in arrays.items():
        *above, last = name.split(".")
        layer = tree
        for part in above:
            layer = layer.setdefault(part, {})
        layer[last] = array
    return tree


def flat(params: Params, above: str = "") -> dict[str, Any]:
    """The way back from :func:`nested`."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        found |= flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
    return found
