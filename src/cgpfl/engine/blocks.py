"""How many clients are computed at once, and how a function is mapped over them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import Mesh, PartitionSpec

from cgpfl.batch import Batch, chunk_size
from cgpfl.objectives import Classification
from cgpfl.tree import Tree, merged, nbytes

CACHE_BLOCK = 9 << 19
"""On a CPU, clients are mapped in blocks whose models together fit in this many bytes (near caches)."""
DEVICE_BLOCK = 2 << 30
"""On an accelerator, bytes of models in one block; gradients and copies take a few times that."""


SHARE_OF_MEMORY = 0.25
"""Of the machine's or the device's memory, for the states of a program (copies take as much again)."""


WAITING = 1.25
"""How many times the clients' own chunks of samples evaluation may read before they are read without gaps."""


def over_clients(f: Callable[..., Any], args: Any, block: int) -> Any:
    """Map ``f`` over the leading axis: all at once, or ``block`` at a time where memory is short."""
    n = jax.tree.leaves(args)[0].shape[0]
    if block >= n:
        return jax.vmap(f)(*args)
    if block == 1:  # without an axis of one (CNN on two cores: 4.3 → 3.5 s a round)
        return jax.lax.map(lambda a: f(*a), args)
    return jax.lax.map(lambda a: f(*a), args, batch_size=block)


def over_devices(f: Callable[..., Any], shared: Any, args: Any, block: int, mesh: Mesh | None) -> Any:
    """Map ``f(shared, ...)`` over the leading axis of ``args``; with a ``mesh`` each device its own part of it."""

    def here(shared: Any, *own: Any) -> Any:
        return over_clients(lambda *one: f(shared, *one), own, block)

    if mesh is None:
        return here(shared, *args)
    own, same = PartitionSpec(*mesh.axis_names), PartitionSpec()
    each: Any = jax.shard_map(here, mesh=mesh, in_specs=(same, *[own] * len(args)), out_specs=own, check_vma=False)
    return each(shared, *args)


def over_servers(f: Callable[..., Any], args: Any) -> Any:
    """Map ``f`` over the leading axis, of runs.

    On an accelerator all at once: a server's work is many small steps, mostly waiting (100 runs of CGPFL
    with MLR: 368 → 29 ms a round on an H200). On a CPU one after the other is as fast and compiles in half the time.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda a: f(*a), args)
    return jax.vmap(f)(*args)


def record_capacity(rounds: int, eval_every: int, clients: int) -> int:
    """Evaluations one call can record: 16, 32 or 64, enough for the run's if they can be, and what 32 MB hold.

    In such steps, because it is a shape of the program: runs that are somewhat longer or shorter share a compiled one.
    """
    evaluations = -(-rounds // eval_every)
    return max(1, min(max(16, 1 << (evaluations - 1).bit_length()), 64, (32 << 20) // (48 * clients)))


def auto_block(client_bytes: int, cohort: int) -> int:
    """How many clients to map at once: all that fit; evenly divided if that costs little."""
    limit = CACHE_BLOCK if jax.default_backend() == "cpu" else DEVICE_BLOCK
    fit = min(max(1, limit // max(client_bytes, 1)), cohort)
    even = next(b for b in range(fit, 0, -1) if cohort % b == 0)
    return even if 2 * even > fit else fit


def is_ragged(*federations: Any) -> bool:
    """Whether evaluation would mostly wait for the largest clients, were all evaluated side by side."""
    size = chunk_size()
    every = [t for d in federations for t in (d.train, d.test, d.validation) if t is not None]
    chunks = [-(-np.asarray(t.counts) // size) for t in every]
    return sum(len(c) * int(c.max()) for c in chunks) > WAITING * sum(int(c.sum()) for c in chunks)


def client_bytes(model: Any, params: Tree, samples: int = 20, *, frozen: Tree = ()) -> int:
    """What one client's step has to hold: its model, or on a CPU twice the largest array made on the way to the loss.

    What a convolution unfolds of a minibatch is many times its input: few clients' fit in a cache (CNN,
    20 clients on two cores: 1.7 → 0.9 s a round). An array no larger than the minibatch does not count. With frozen
    parameters the model is small beside what is made on the way, on an accelerator, too.
    """
    if jax.default_backend() != "cpu" and not jax.tree.leaves(frozen):
        return nbytes(params)
    inputs = jnp.zeros((samples, *model.shape))
    aim = getattr(model, "objective", Classification())
    one = aim.label(getattr(model, "classes", 1), *model.shape[:1])
    batch = Batch(inputs, jnp.zeros((samples, *one.shape), one.dtype), jnp.ones(samples))
    made = _made(jax.make_jaxpr(model.loss)(merged(params, frozen), batch).jaxpr)
    largest = max((math.prod(aval.shape) * 4 for aval in made), default=0)
    return max(nbytes(params), 2 * largest if largest > inputs.nbytes else 0)


def _made(program: Jaxpr) -> Iterator[Any]:
    """The forms of all arrays that a program makes, those inside its loops, branches and calls included."""
    for step in program.eqns:
        yield from (v.aval for v in step.outvars)
        for param in step.params.values():
            for inner in param if isinstance(param, tuple) else (param,):
                if isinstance(inner, ClosedJaxpr | Jaxpr):
                    yield from _made(inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner)


def memory() -> int:
    """Bytes of memory of the default device."""
    device = jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
