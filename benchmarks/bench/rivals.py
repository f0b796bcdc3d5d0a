"""PyTorch's contestants for a case, where PyTorch is installed and computes where JAX does."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax

from benchmarks.bench.check import TOLERANCE, TOLERANCE_ON_A_GPU, agree, difference
from benchmarks.bench.machine import seconds
from benchmarks.bench.ours import ClientRounds, Ours
from benchmarks.bench.timing import Contestant
from cgpfl.engine.mesh import cores

SUBSET = 40
"""Clients PyTorch's are timed with at most; a round of more takes that much longer. On a GPU only the loop's."""


TRIAL = 2
"""Clients of the loop on which numbers of threads are tried out."""


@dataclass(frozen=True)
class Rivals:
    """What there is to time beside ours."""

    contestants: list[Contestant]
    clients: dict[str, int]  # how many the loop and vmap are timed with
    difference: float  # from our client's round, as a share of its move
    dropped: tuple[str, ...] = ()  # variants that lost by far in a trial


def why_none() -> str | None:
    """Why PyTorch is not timed, in one line; None if it is."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed, so its columns are left out: pip install torch, or make bench."
    from benchmarks.bench.torch_clients import device

    if device() is None:
        return "This PyTorch has no CUDA, so its columns are left out: install a build that has."
    return None


def rivals(ours: Ours, expected: ClientRounds) -> Rivals:
    """The loop and vmap, checked against our clients' rounds and called once."""
    from benchmarks.bench import torch_clients as pytorch
    from benchmarks.bench.torch_nets import as_torch

    model, rule, to = ours.case.model, ours.rule, pytorch.device()
    assert to is not None
    pytorch.precision(reduced=False)
    pytorch.threads(1)
    start, upload = as_torch(model, expected.start), as_torch(model, expected.upload)
    personal = None if expected.personal is None else as_torch(model, expected.personal)
    worst = 0.0
    tolerance = TOLERANCE_ON_A_GPU if to.type != "cpu" and model == "cnn" else TOLERANCE
    for who, (theta, sent) in pytorch.results(model, expected, rule, to).items():
        for ours_, its in ((upload, sent), (personal, theta)):
            if ours_ is not None:
                off = difference(ours_, its, start)
                worst = max(worst, agree(ours.case.name, f"PyTorch's {who}", off, tolerance))
    pytorch.precision(reduced=True)

    def build(who: str, clients: int) -> Callable[[], None]:
        own = pytorch.held(model, ours.data, clients, to)
        make = pytorch.loop_round if who == "loop" else pytorch.vmap_round
        round_ = make(model, own, expected.start, rule, to)
        round_()
        return round_

    on_cpu, n = jax.default_backend() == "cpu", ours.case.clients
    contestants, clients, dropped = [], {}, []
    for who in ("loop", "vmap"):
        most = n if who == "vmap" and not on_cpu else min(n, SUBSET)
        round_, clients[who] = pytorch.largest(partial(build, who), most)
        trial = build(who, min(n, TRIAL)) if who == "loop" else round_
        worthwhile = _worthwhile(trial, pytorch.threads) if on_cpu else [1]
        dropped += [_named(who, threads) for threads in {1, cores()} - {*worthwhile} if on_cpu]
        for threads in worthwhile:
            run = partial(_with_threads, pytorch.threads, threads, round_)
            contestants.append(Contestant(_named(who, threads) if on_cpu else who, run, clients[who] / n))
    return Rivals(contestants, clients, worst, tuple(dropped))


def _worthwhile(trial: Callable[[], None], use: Callable[[int], None]) -> list[int]:
    """One thread and all, less the all that lose by far in a trial: on a busy machine they wait for each other."""
    once = {n: seconds(partial(_with_threads, use, n, trial)) for n in sorted({1, cores()})}
    return [n for n in once if once[n] <= 3 * min(once.values())]


def _named(who: str, threads: int) -> str:
    return f"{who}, {threads} thread{'s' if threads > 1 else ''}"


def _with_threads(use: Callable[[int], None], threads: int, round_: Callable[[], None]) -> None:
    use(threads)
    round_()


def fastest(medians: dict[str, float], who: str) -> tuple[float, str] | None:
    """Seconds of the best variant of a contestant, and its name."""
    return min(((value, name) for name, value in medians.items() if name.startswith(who)), default=None)
