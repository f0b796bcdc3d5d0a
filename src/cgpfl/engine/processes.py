"""Several processes, on one machine or many, that run one program together (:mod:`jax.distributed`).

All processes do the same in the same order. What depends on a clock or on the user (how long a block is, when to
save, when to stop) is decided by the first and told to the others; only the first writes files.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from cgpfl.engine.mesh import cores
from cgpfl.errors import CgpflError, LostError

PATIENCE = 60
"""Seconds until a process that does not come, or no longer answers, is given up."""


def join(coordinator: str, processes: int | None = None, process: int | None = None) -> None:
    """Become one of several processes, before anything is computed.

    ``coordinator``: host:port of the first process, or "auto" where SLURM, Open MPI or a cloud says who is who.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", 1)  # a process is a device, where there are no accelerators
    given: dict[str, Any] = {}
    if coordinator != "auto":
        if processes is None or process is None:
            raise CgpflError("--coordinator: needs --processes and --process-id, too (or is auto)")
        if processes < 1 or not 0 <= process < processes:
            raise CgpflError(f"--process-id {process}: must be in 0..{processes - 1}, of --processes {processes}")
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise CgpflError(f"--coordinator {coordinator}: must be host:port of process 0, or auto")
        given = {"coordinator_address": coordinator, "num_processes": processes, "process_id": process}
        given["cluster_detection_method"] = "deactivate"  # else a SLURM step's process would see one device
        if host in ("127.0.0.1", "localhost"):  # all on this machine: each with its share of the cores
            os.environ.setdefault("PJRT_NPROC", str(max(1, cores() // processes)))
    try:
        jax.distributed.initialize(
            **given, initialization_timeout=PATIENCE, heartbeat_timeout_seconds=PATIENCE, shutdown_timeout_seconds=5
        )
    except (RuntimeError, ValueError) as error:
        text = str(error).splitlines()[0][:160]
        raise LostError(f"--coordinator {coordinator}: the processes did not come together ({text})") from error


def several() -> bool:
    """Whether there are other processes."""
    return jax.process_count() > 1


def is_first() -> bool:
    """Whether this process writes and talks."""
    return jax.process_index() == 0


def gathered(*numbers: int) -> np.ndarray:
    """Every process's ``numbers``: ``[processes, len(numbers)]``."""
    here = np.array(numbers, np.int32)
    if not several():
        return here[None]
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(here)).reshape(-1, len(numbers))


def agree(what: str, facts: str) -> None:
    """Raise in every process unless all have the same ``facts``; ``what`` names them."""
    if len(set(gathered(zlib.crc32(facts.encode()) & 0x7FFFFFFF)[:, 0])) > 1:
        raise CgpflError(f"{what}: not the same in all processes; give each the same configuration, flags and data")


@contextmanager
def watched(where: Callable[[], str], how: str) -> Iterator[None]:
    """An error of JAX inside means, with several processes, that one of them is gone: say so, and ``how`` to go on."""
    try:
        yield
    except CgpflError:
        raise
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        # Between two blocks JAX says it by a ValueError.
        ours = isinstance(error, ValueError) and not any(name in str(error) for name in ("Gloo", "NCCL"))
        if not several() or ours or "RESOURCE_EXHAUSTED" in str(error):
            raise
        text = " ".join(str(error).split())[:120]
        raise LostError(f"{where()}: another process was lost ({text}); {how}") from error


def by_the_first(f: Callable[[], Any]) -> None:
    """Let the first process do ``f``, the others wait; if it fails there, all stop."""
    if not several():
        f()
        return
    failure: Exception | None = None
    if is_first():
        try:
            f()
        except Exception as error:
            failure = error
    if gathered(failure is not None)[0, 0]:
        raise failure or CgpflError("process 0 could not go on; see what it says")
