"""Privacy from an ε: the noise that a run's uploads need, for a method and the clients it is for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms.placed import Placed
from cgpfl.algorithms.wrapper import Seamed, Wrapper, unseamed
from cgpfl.data import FederatedData
from cgpfl.engine.problem import cohort_size, keys_of, round_keys
from cgpfl.engine.settings import Settings
from cgpfl.errors import CgpflError
from cgpfl.rounds import ClientLevel, Encoder, Known, Privacy, SampleLevel, Sampler, WeightedMean
from cgpfl.rounds.account import coarse, noise_of_steps, noise_of_uploads
from cgpfl.rounds.privacy import sends


def protected(method: Any, settings: Settings, federations: Mapping[int, FederatedData]) -> Any:
    """``method`` with the noise that ε needs, for the federations of these seeds; itself where ε is infinite."""
    if math.isinf(settings.epsilon):
        return method
    samples = sorted({int(n) for data in federations.values() for n in data.train.counts})
    return protected_for(method, settings, next(iter(federations.values())).clients, samples, tuple(federations))


def protected_for(
    method: Any, settings: Settings, clients: int, samples: Sequence[int], seeds: Sequence[int] = ()
) -> Any:
    """The same of N ``clients`` that have so many ``samples``; a node knows its own alone, a server none."""
    if math.isinf(settings.epsilon):
        return method
    own, name = unseamed(method), getattr(method, "name", "") or type(method).__name__
    rules: Any = method if isinstance(method, Seamed) else settings  # those that it is run under
    if rules.sampler.by_size or rules.sampler.by_loss:
        raise CgpflError(f"sampler = {rules.sampler.name}: looks at counts or losses, which privacy keeps back")
    asked = (settings.rounds, clients, settings.participation)
    times = max(most_often(rules.sampler, seed, *asked) for seed in seeds or (settings.seed,))
    make = _client_level if settings.privacy == "client" else _sample_level
    level = make(own, str(name), settings, rules, clients, times, samples)
    whole = method if isinstance(method, Seamed) else Seamed(method)
    if isinstance(level, ClientLevel) and level.summed:
        return dataclasses.replace(whole, privacy=level, method=Placed(own, level.placing, times))
    return dataclasses.replace(whole, privacy=level)


def summed(settings: Settings, own: Any) -> bool:
    """Whether a method's contexts move by sums to which the server adds the noise."""
    wanted = settings.epsilon < math.inf and settings.privacy == "client" and settings.trusted == "server"
    return wanted and hasattr(type(unseamed(own)), "placed")


def _client_level(
    own: Any, name: str, settings: Settings, rules: Any, clients: int, times: int, samples: Sequence[int]
) -> ClientLevel:
    together = 1
    if summed(settings, own):
        return _by_sums(own, name, settings, rules, clients, times)
    if settings.trusted == "server":
        if not getattr(own, "only_means", False) and sends(own):
            raise CgpflError(f"{name}: trusted = server: it looks at single uploads; set trusted = nobody")
        if settings.dropout > 0 or type(rules.mean) is not WeightedMean:
            raise CgpflError("trusted = server: needs everybody's noise in a mean; set dropout = 0 and mean = weighted")
        if any(isinstance(rule, Encoder) for rule in rules.outgoing):
            raise CgpflError("trusted = server: noise adds up in sums of plain uploads alone; leave encoders out")
        if rules.attack.active:
            raise CgpflError("trusted = server: needs everybody's noise, and liars add none; set trusted = nobody")
        # One less than the cohort: each of the others knows its own noise, and can take it away.
        together = max(cohort_size(settings.participation, clients) - 1, 1)
    noise = noise_of_uploads(settings.epsilon, settings.delta, times)
    return ClientLevel(settings.clip, noise, settings.delta, times, together)


PLACING = 0.2
"""Of what a run may tell (1/noise², which adds up), the part that placing clients in contexts may."""


def _by_sums(own: Any, name: str, settings: Settings, rules: Any, clients: int, times: int) -> ClientLevel:
    """Contexts, and a server that is trusted: it adds the noise, to each context's sum, and places by noised sums."""
    if isinstance(own.contexts, tuple):
        raise CgpflError(f"{name}: trusted = server: finds contexts itself; say how many, or auto")
    if own.smallest > 1:
        raise CgpflError(f"{name}: trusted = server: smallest looks at who is where; set smallest = 1")
    if own.warmup < 1:
        raise CgpflError(f"{name}: trusted = server: needs a warm-up; set warmup to 1 or more")
    if type(rules.mean) is not WeightedMean:
        raise CgpflError(f"{name}: trusted = server: its contexts are sums with noise; set mean = weighted")
    if getattr(rules.attack, "active", False):
        raise CgpflError(f"{name}: trusted = server: liars who see others' uploads are not counted; set attack = none")
    one, share = noise_of_uploads(settings.epsilon, settings.delta, 1), PLACING if own.slots(clients) > 1 else 0.0
    placing = one / math.sqrt(share) if share else 0.0
    noise = one * math.sqrt(times / (1 - share))
    return ClientLevel(settings.clip, noise, settings.delta, times, summed=True, placing=placing)


def _sample_level(
    own: Any, name: str, settings: Settings, rules: Any, clients: int, times: int, samples: Sequence[int]
) -> Privacy:
    steps = own.noisy_steps(times) if hasattr(own, "noisy_steps") else None
    if steps is None:
        raise CgpflError(f"{name}: privacy = sample: its uploads are made of more than minibatches' gradients")
    if steps and not says_its_own(own):
        raise CgpflError(f"{name}: privacy = sample: has a train of its own; must say in noisy_steps what that takes")
    if rules.attack.poisons:
        raise CgpflError(f"{name}: privacy = sample: no liars that train on lies; take another attack")
    if any(part.folds > 1 for part in steps) and (settings.dropout > 0 or times < settings.rounds):
        raise CgpflError(f"{name}: privacy = sample: needs everybody in every round of its warm-up")
    counts = sorted({coarse(n) for n in samples})
    noises = (
        [noise_of_steps(settings.epsilon, settings.delta, steps, n) for n in counts] if steps else [0.0] * len(counts)
    )
    return SampleLevel(settings.clip, settings.delta, tuple(counts), tuple(noises), steps)


def says_its_own(method: Any) -> bool:
    """Whether ``noisy_steps`` are said of the very ``train`` that a method has, and of the one that it is around."""
    kinds = (k for k in type(method).__mro__ if {"train", "noisy_steps"} & vars(k).keys())
    last = next(kinds, None)
    said = last is not None and (last is Wrapper or "noisy_steps" in vars(last))
    return said and (not isinstance(method, Wrapper) or says_its_own(method.method))


@cache
def most_often(sampler: Sampler, seed: int, rounds: int, clients: int, participation: float) -> int:
    """In how many rounds the client that is asked most often is asked: it follows from the seed."""
    cohort = cohort_size(participation, clients)
    if cohort == clients:
        return rounds
    ids, nothing = jnp.arange(clients), jnp.zeros(clients)
    known, keys = Known(ids, nothing, nothing), keys_of(seed)

    @jax.jit
    def asked(t: jax.Array) -> jax.Array:
        return jnp.zeros(clients, jnp.int32).at[sampler.draw(round_keys(keys, t).cohort, t, known, cohort)].add(1)

    return int(np.asarray(jax.lax.map(asked, jnp.arange(rounds))).sum(axis=0).max())
