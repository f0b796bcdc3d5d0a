"""PyTorch's contestants: a bare loop over clients, and ``torch.func.vmap`` over all of them.

Both do the clients' steps and nothing else: gradients by ``torch.autograd.grad`` or ``torch.func.grad``, updates in
place without temporaries, samples as floats beforehand. No server, no messages. That is the least a library can cost
that works with PyTorch client by client, or on all clients at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch

from benchmarks.bench.ours import ClientRounds
from benchmarks.bench.torch_nets import inputs, net_of
from benchmarks.bench.work import Rule
from cgpfl.data import FederatedData

Tensors = list[torch.Tensor]
Pair = tuple[torch.Tensor, torch.Tensor]
cross_entropy = torch.nn.functional.cross_entropy


def device() -> torch.device | None:
    """Where JAX computes, or None if this build of PyTorch cannot compute there."""
    if jax.default_backend() == "cpu":
        return torch.device("cpu")
    return torch.device("cuda") if torch.cuda.is_available() else None


def precision(reduced: bool) -> None:
    """On a GPU: whether products may be of reduced precision, as JAX's are by default."""
    torch.set_float32_matmul_precision("high" if reduced else "highest")
    torch.backends.cudnn.allow_tf32 = reduced


def step(theta: Tensors, omega: Tensors, gradients: Sequence[torch.Tensor], rule: Rule) -> None:
    """θ ← θ − η(∇f(θ) + λ(θ − ω̃)), in place."""
    shrink = 1 - rule.rate * (rule.prox + rule.l2)
    for i, (p, g) in enumerate(zip(theta, gradients, strict=True)):
        if shrink != 1:
            p.mul_(shrink)
        if rule.prox:
            p.add_(omega[i], alpha=rule.rate * rule.prox)
        p.add_(g, alpha=-rule.rate)


def follow(theta: Tensors, omega: Tensors, gradient: Callable[..., Any], batches: Sequence[Pair], rule: Rule) -> None:
    """A client's round in place, or that of stacked clients: ``gradient(x, y)`` is ∇f at θ."""
    for x, y in batches:
        for _ in range(rule.inner_steps):
            gradients = gradient(x, y)
            with torch.no_grad():
                step(theta, omega, gradients, rule)
        if rule.pull is not None:
            with torch.no_grad():
                for p, w in zip(theta, omega, strict=True):
                    w.lerp_(p, rule.pull)


@dataclass(frozen=True)
class Clients:
    """θ, ω̃ (empty for FedAvg) and the gradient at θ: of one client, or of stacked ones ``[C, ...]``."""

    theta: Tensors
    omega: Tensors
    gradient: Callable[..., Any]

    def follow(self, batches: Sequence[Pair], rule: Rule) -> None:
        """A round, in place."""
        follow(self.theta, self.omega, self.gradient, batches, rule)


def alone(model: str, start: Any, rule: Rule, to: torch.device) -> Clients:
    """One client, as a module of its own."""
    net = net_of(model, start).to(to)
    theta = list(net.parameters())

    def gradient(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.autograd.grad(cross_entropy(net(x), y), theta)

    return Clients(theta, _copies(theta, rule), gradient)


def together(model: str, start: Any, clients: int, rule: Rule, to: torch.device) -> Clients:
    """All clients' parameters stacked, the gradient by ``vmap(grad)``."""
    net = net_of(model, start).to(to)
    names = [name for name, _ in net.named_parameters()]
    theta = [p.detach().expand(clients, *p.shape).clone() for p in net.parameters()]

    def loss(params: Tensors, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(torch.func.functional_call(net, dict(zip(names, params, strict=True)), (x,)), y)

    gradients = torch.func.vmap(torch.func.grad(loss))
    return Clients(theta, _copies(theta, rule), lambda x, y: gradients(theta, x, y))


def _copies(theta: Tensors, rule: Rule) -> Tensors:
    return [] if rule.pull is None else [p.detach().clone() for p in theta]


def results(model: str, expected: ClientRounds, rule: Rule, to: torch.device) -> dict[str, tuple[Any, Any]]:
    """(θ, upload) of the loop and of vmap on the minibatches of ``expected``, leaves ``[C, ...]`` as NumPy arrays."""
    x, y = inputs(model, expected.x, to), torch.tensor(expected.y, device=to).long()
    loop = [alone(model, expected.start, rule, to) for _ in y]
    for i, client in enumerate(loop):
        client.follow([(x[i, r], y[i, r]) for r in range(rule.local_rounds)], rule)
    stacked = together(model, expected.start, len(y), rule, to)
    stacked.follow([(x[:, r], y[:, r]) for r in range(rule.local_rounds)], rule)
    found = {}
    for who, theta, omega in (
        ("loop", [c.theta for c in loop], [c.omega for c in loop]),
        ("vmap", [stacked.theta], [stacked.omega]),
    ):
        join = torch.stack if who == "loop" else torch.cat
        personal, shared = (
            [join([p.detach() for p in leaf]).cpu().numpy() for leaf in zip(*trees, strict=True)]
            for trees in (theta, omega)
        )
        found[who] = (personal, shared if rule.pull is not None else personal)
    return found


@dataclass(frozen=True)
class Held:
    """The samples of the first C clients on the device, client after client."""

    x: torch.Tensor  # [n, ...] model inputs
    y: torch.Tensor  # [n]
    first: torch.Tensor  # [C] where each client's begin
    counts: torch.Tensor  # [C]


def held(model: str, data: FederatedData, clients: int, to: torch.device) -> Held:
    """The training samples of the first ``clients`` clients, as floats."""
    parts = data.train.parts()[:clients]
    rows, counts = np.concatenate(parts), np.array([len(p) for p in parts])
    x = inputs(model, data.x[rows].astype(np.float32) * np.float32(data.scale), to)
    y = torch.tensor(data.y[rows], device=to).long()
    return Held(x, y, torch.tensor(np.cumsum(counts) - counts, device=to), torch.tensor(counts, device=to))


def loop_round(model: str, own: Held, start: Any, rule: Rule, to: torch.device) -> Callable[[], None]:
    """A round of the loop: client after client draws its minibatches and trains."""
    nets = [alone(model, start, rule, to) for _ in own.counts]
    bounds = list(zip(own.first.tolist(), own.counts.tolist(), strict=True))

    def round_() -> None:
        for client, (first, count) in zip(nets, bounds, strict=True):
            picks = [first + torch.randint(count, (rule.batch,), device=to) for _ in range(rule.local_rounds)]
            client.follow([(own.x[i], own.y[i]) for i in picks], rule)
        finish(to)

    return round_


def vmap_round(model: str, own: Held, start: Any, rule: Rule, to: torch.device) -> Callable[[], None]:
    """A round of all clients at once."""
    clients = len(own.counts)
    stacked = together(model, start, clients, rule, to)
    last = own.counts[:, None] - 1

    def round_() -> None:
        for _ in range(rule.local_rounds):
            draws = torch.rand(clients, rule.batch, device=to) * own.counts[:, None]
            at = own.first[:, None] + torch.minimum(draws.long(), last)
            stacked.follow([(own.x[at], own.y[at])], rule)
        finish(to)

    return round_


def finish(to: torch.device) -> None:
    """Wait for what a GPU still computes."""
    if to.type == "cuda":
        torch.cuda.synchronize()


def threads(n: int) -> None:
    """Let PyTorch use ``n`` threads."""
    torch.set_num_threads(n)


def largest(build: Callable[[int], Callable[[], None]], most: int) -> tuple[Callable[[], None], int]:
    """What ``build`` makes for ``most`` clients, or for a tenth of them and so on if a GPU's memory is too small."""
    while True:
        try:
            return build(most), most
        except torch.OutOfMemoryError:
            if most == 1:
                raise
            most = max(1, most // 10)
