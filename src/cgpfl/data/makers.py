"""Context makers: give each client one of K latent contexts, and remember which.

A maker changes a client's samples by a rule of its context: the images are turned, the labels
renamed, or the features shifted. Clients of one context share a problem; the contexts differ.
"""

from __future__ import annotations

import math

import numpy as np

from cgpfl.errors import CgpflError

MAKERS = ("rotation", "labels", "shift")


def contexts_of(clients: int, contexts: int, rng: np.random.Generator) -> np.ndarray:
    """A context for each client, sizes equal to within one, in random order. ``[N]``."""
    return rng.permutation(np.arange(clients) % contexts)


def rotate(x: np.ndarray, angle: float) -> np.ndarray:
    """Turn images ``[n, H, W(, C)]`` by ``angle`` degrees; multiples of 90 are exact on square images."""
    quarter, rest = divmod(angle, 90)
    if rest == 0 and x.shape[1] == x.shape[2]:
        return np.rot90(x, int(quarter), axes=(1, 2)).copy()
    from scipy.ndimage import rotate as turn

    return np.asarray(turn(x, angle, axes=(2, 1), reshape=False, order=1))


def make_contexts(
    maker: str,
    x: np.ndarray,
    y: np.ndarray,
    parts: list[np.ndarray],
    public: np.ndarray | None = None,
    *,
    contexts: int,
    classes: int,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Apply ``maker`` to every client's samples → (x, y, context of each client ``[N]``).

    Context 0 is the data as it is. Rotation k turns by k·360/K degrees; labels k renames the classes
    by a random permutation; shift k adds a random direction, as long as the data's own spread. ``public``
    samples, if any, are shared out equally over the contexts.
    """
    if maker not in MAKERS:
        raise CgpflError(f"no context maker {maker!r}; there are {', '.join(MAKERS)}")
    if not 1 <= contexts <= len(parts):
        raise CgpflError(f"contexts = {contexts}: must be between 1 and the number of clients, {len(parts)}")
    if maker == "rotation" and x.ndim not in (3, 4):
        raise CgpflError(f"split rotation: samples of shape {x.shape[1:]} are not images [H, W] or [H, W, C]")
    rng = np.random.default_rng([seed, 2])
    context = contexts_of(len(parts), contexts, rng)
    rows = [np.concatenate([p for p, c in zip(parts, context, strict=True) if c == k]) for k in range(contexts)]
    if public is not None:
        rows = [np.concatenate(pair) for pair in zip(rows, np.array_split(public, contexts), strict=True)]
    x, y = x.copy(), y.copy()
    if maker == "rotation":
        for k in range(1, contexts):
            x[rows[k]] = rotate(x[rows[k]], 360.0 * k / contexts)
    elif maker == "labels":
        if contexts > math.factorial(min(classes, 20)):
            raise CgpflError(
                f"contexts = {contexts}: {classes} classes can be renamed in {math.factorial(classes)} ways"
            )
        used = {tuple(range(classes))}
        for k in range(1, contexts):
            while (names := tuple(rng.permutation(classes).tolist())) in used:
                pass  # ends: more permutations exist than contexts
            used.add(names)
            y[rows[k]] = np.array(names, y.dtype)[y[rows[k]]]
    else:
        x = x.astype(np.float32)
        spread = float(np.sqrt(np.square(x - x.mean(axis=0)).reshape(len(x), -1).sum(axis=1).mean()))
        for k in range(1, contexts):
            direction = rng.standard_normal(x.shape[1:]).astype(np.float32)
            x[rows[k]] += spread * direction / np.linalg.norm(direction)
    return x, y, context
