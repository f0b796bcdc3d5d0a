"""What a report shows beside the records, small enough to be kept with every run.

federation.safetensors             who holds which labels: ``labels [N, classes]`` (training samples), ``test [N]``
                                   and, where it is known, ``context [N]``
methods/NAME/models.safetensors    of a method with contexts, after the last round: ``context [K]`` (those in use),
                                   ``distance [K, K]`` between their models (of up to 50); ``client [m]``, and the
                                   first two principal components of these clients' personal models and of the
                                   contexts' models, ``place [m + K, 2]``

Each says what it is among its facts (and of which method), so that a report knows files that changed places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from cgpfl.data import FederatedData
from cgpfl.engine import Simulation

if TYPE_CHECKING:
    from cgpfl.experiment.result import Result

FEDERATION, MODELS = {"file": "federation"}, {"file": "models"}
"""What the two say they are."""
MOST_CELLS = 2**22
"""Clients × classes up to which label counts are kept."""
MOST_MODELS, MOST_NUMBERS = 200, 2**25
"""Models, and parameters in all of them, that are looked at for the projection."""
MOST_DISTANCES = 50
"""Contexts up to which distances between their models are kept: a larger matrix cannot be read."""


def federation(data: FederatedData) -> dict[str, np.ndarray]:
    """Who holds what (see above). Labels are left out of a federation too large to be shown."""
    arrays: dict[str, np.ndarray] = {"test": data.test.counts.astype(np.int32)}
    if data.task == "classification" and data.clients * data.classes <= MOST_CELLS:
        rows = [np.bincount(data.y[part], minlength=data.classes) for part in data.train.parts()]
        arrays["labels"] = np.stack(rows).astype(np.int32)
    return arrays | ({} if data.context is None else {"context": data.context.astype(np.int32)})


def models(result: Result) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Distances and a projection of a method's models (see above), and the share of variance it shows.

    None for a method without contexts, one that diverged, and models too large to be looked at.
    """
    found = result.contexts
    if found is None or result.diverged is not None:
        return None
    size = int(sum(np.size(v) for v in jax.tree.leaves(result.simulation.task.initial)))
    contexts, first = np.unique(found.assignment, return_index=True)
    first = first[:0] if found.alone else first  # their context's model is nobody's
    most = min(MOST_MODELS, MOST_NUMBERS // size - len(first))
    if most < 1:
        return None
    by_context = np.argsort(found.assignment, kind="stable")
    clients = np.sort(by_context[np.unique(np.linspace(0, len(by_context) - 1, most).round().astype(int))])
    if not hasattr(result.simulation, "personal"):  # real nodes keep theirs
        clients = clients[:0]
    simulation = result.simulation.alone() if isinstance(result.simulation, Simulation) else result.simulation
    one = jax.jit(simulation.personal) if isinstance(simulation, Simulation) else getattr(simulation, "personal", None)
    personal = [_flat(one(result.state, int(i))) for i in clients] if one else []
    send = jax.jit(lambda server, i: result.method.shared(result.method.send(server, i)))  # else a program an operation
    shared = [send(result.state.server, result.data.ids[i]) for i in first]
    kept = [] if any(m is None for m in shared) else [_flat(m) for m in shared]
    if not personal + kept:
        return None
    place, share = principal(np.stack(personal + kept))
    arrays = {"context": contexts.astype(np.int32), "client": clients.astype(np.int32), "place": place}
    if 0 < len(kept) <= MOST_DISTANCES:
        arrays["distance"] = distances(np.stack(kept))
    return {k: v.astype(np.float32) if v.dtype == float else v for k, v in arrays.items()}, {"share": share}


def distances(points: np.ndarray) -> np.ndarray:
    """``[K, K]``: Euclidean distances between the rows of ``points [K, d]``, a row at a time: d may be large."""
    return np.stack([np.linalg.norm(points - point, axis=1) for point in points])


def _flat(params: Any) -> np.ndarray:
    return np.concatenate([np.asarray(v, np.float64).ravel() for v in jax.tree.leaves(params)])


def principal(points: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """First two principal components of ``points [n, d]`` → (``[n, 2]``, share of variance of each).

    Signs are chosen so that the largest entry of each component is positive: the same models, the same picture.
    """
    centred = points - points.mean(axis=0)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    place = np.zeros((len(points), 2))
    top = vectors[:, :2] * np.sqrt(values[:2])
    place[:, : top.shape[1]] = top * np.where(top[np.abs(top).argmax(axis=0), range(top.shape[1])] < 0, -1, 1)
    total = values.sum()
    return place, [float(v / total) if total > 0 else 0.0 for v in (*values[:2], 0.0)[:2]]
