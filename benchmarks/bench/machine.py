"""The machine: what it is, and how fast it multiplies and copies, measured beside the rest."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.compilation_cache import compilation_cache

from cgpfl.engine.mesh import cores


@dataclass(frozen=True)
class Rates:
    """What the device reached."""

    operations: float
    """Operations a second in a large float32 matrix product, at JAX's default precision."""
    bytes: float
    """Bytes a second in a + s·b of large arrays: two read, one written."""

    def best(self, other: Rates) -> Rates:
        """The faster of each: another program's turn must not make the floor higher."""
        return Rates(max(self.operations, other.operations), max(self.bytes, other.bytes))


def measure(product: int | None = None, array: int | None = None, repeats: int = 5) -> Rates:
    """Measure both rates, the best of ``repeats``: matrices of ``product`` rows, arrays of ``array`` numbers."""
    on_cpu = jax.default_backend() == "cpu"
    n = product or (2048 if on_cpu else 8192)
    m = array or (1 << 24 if on_cpu else 1 << 28)
    a = jnp.full((n, n), 0.5, jnp.float32)
    u, v = jnp.ones(m, jnp.float32), jnp.ones(m, jnp.float32)
    times = jax.jit(jnp.matmul)
    triad = jax.jit(lambda u, v: u + 0.5 * v)
    return Rates(2 * n**3 / _best(lambda: times(a, a), repeats), 12 * m / _best(lambda: triad(u, v), repeats))


def _best(f: Callable[[], Any], repeats: int) -> float:
    f().block_until_ready()
    return min(seconds(lambda: f().block_until_ready()) for _ in range(repeats))


def seconds(f: Callable[[], Any]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def facts() -> dict[str, Any]:
    """What the numbers were measured on."""
    device = jax.devices()[0]
    names = ("jax", "jaxlib", "numpy", "torch")
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "processor": _processor(),
        "cpus": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in names},
    }


def busy_note() -> str | None:
    """A line of warning where other programs keep the processors busy; before our own do."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load < 0.5 * cores():
        return None
    return f"The machine was busy before this began (load {load:.1f}, {cores()} CPUs): times may be off."


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((li.split(":", 1)[1].strip() for li in lines if li.startswith("model name")), platform.processor())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def program_memory(program: Any) -> int:
    """Bytes of device memory that a compiled program needs to run: inputs, outputs and all between."""
    size = program.memory_analysis()
    held = size.argument_size_in_bytes + size.output_size_in_bytes - size.alias_size_in_bytes
    return int(held + size.temp_size_in_bytes)


def peak_memory() -> int:
    """The most bytes this process held so far, its data and Python included."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak() -> None:
    """Let :func:`peak_memory` start anew, where the system can (Linux); else it is of all so far."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


@contextmanager
def fresh_programs() -> Iterator[None]:
    """As in a process just started and an empty compilation cache: every program is compiled."""
    with TemporaryDirectory() as folder:
        settings = {"jax_compilation_cache_dir": folder, "jax_persistent_cache_min_compile_time_secs": 0.0}
        before = {name: jax.config.values[name] for name in settings}
        _use(settings)
        try:
            yield
        finally:
            _use(before)


def _use(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    jax.clear_caches()
