"""Operations and bytes of a round, counted by formula: of the method as it is written, step by step.

(Ours may need fewer: of S steps on one minibatch it passes the first layer once, see cgpfl.algorithms.moreau.)

A layer of ``positions`` × ``inputs`` → ``outputs`` costs 2·B·positions·inputs·outputs operations for B samples,
once forward, once for its weights' gradient, and once for its inputs' unless it is the first. A step on d
parameters costs 5·d (θ − η(g + λ(θ − ω))) or 2·d (w − ηg), moving ω̃ 3·d. The server adds up N·d numbers; CGPFL also
compares each upload with K models, 2·N·K·d: one assignment of its k-means, and no seeding.
Biases, activations and the softmax are left out: few, and a floor may be low.

Bytes are those of a round's inputs, read once, and its outputs, written once: the drawn samples (uint8) and labels,
θ_i, uploads (an output of the clients, an input of the server) and the server's models. What is kept inside a round
is taken to stay in a cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from benchmarks.bench.work import Rule

FLOAT = 4  # bytes
LABEL = 4


@dataclass(frozen=True)
class Layer:
    """A matrix ``[outputs, inputs]`` applied at ``positions`` places of a sample."""

    positions: int
    inputs: int
    outputs: int

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return (self.inputs + 1) * self.outputs


@dataclass(frozen=True)
class Counts:
    """Of one round, all clients and the server."""

    operations: int
    bytes: int


def layers_of(model: Any) -> list[Layer]:
    """The layers of an MLR, a DNN or a CNN (images of at least 16 pixels: not padded)."""
    pixels = math.prod(model.shape)
    if not hasattr(model, "hidden"):
        return [Layer(1, pixels, model.classes)]
    if not hasattr(model, "channels"):
        return [Layer(1, pixels, model.hidden), Layer(1, model.hidden, model.classes)]
    layers, (height, width), before = [], model.shape[:2], pixels // math.prod(model.shape[:2])
    for channels in model.channels:
        height, width = height - model.kernel + 1, width - model.kernel + 1
        layers.append(Layer(height * width, before * model.kernel**2, channels))
        height, width, before = height // 2, width // 2, channels
    flat = height * width * before
    return [*layers, Layer(1, flat, model.hidden), Layer(1, model.hidden, model.classes)]


def gradient_operations(layers: list[Layer], batch: int) -> int:
    """Multiplications and additions of one minibatch gradient."""
    each = [2 * batch * la.positions * la.inputs * la.outputs for la in layers]
    return 2 * each[0] + 3 * sum(each[1:])


def count(layers: list[Layer], rule: Rule, clients: int, contexts: int, pixels: int) -> Counts:
    """One round of ``clients`` that follow ``rule``; ``contexts`` K, or 1 where there is one model."""
    d = sum(la.parameters for la in layers)
    moves = rule.pull is not None
    step = gradient_operations(layers, rule.batch) + (5 if moves else 2) * d
    client = rule.local_rounds * (rule.inner_steps * step + (3 * d if moves else 0))
    server = clients * d + (2 * clients * contexts * d if contexts > 1 else 0)
    samples = clients * rule.local_rounds * rule.batch * (pixels + LABEL)
    models = 2 * clients + (2 * clients if moves else 0) + 2 * contexts  # uploads, θ_i, the server's
    return Counts(clients * client + server, samples + models * d * FLOAT)


def floor(counts: Counts, operations_per_second: float, bytes_per_second: float) -> float:
    """Seconds a round cannot undercut: its arithmetic or its traffic, whichever takes longer (both may overlap)."""
    return max(counts.operations / operations_per_second, counts.bytes / bytes_per_second)
