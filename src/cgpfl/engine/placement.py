"""Where a run's clients live: on a device, on several, or in host memory with a cohort on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from cgpfl.data import FederatedData
from cgpfl.engine.blocks import SHARE_OF_MEMORY, auto_block, client_bytes, memory
from cgpfl.engine.problem import cohort_size, keys_of, make_task, shapes_of, with_public
from cgpfl.engine.processes import several
from cgpfl.engine.simulation import Simulation
from cgpfl.engine.stream import Streamed
from cgpfl.errors import CgpflError
from cgpfl.tree import nbytes, plain


def engine_for(
    method: Any,
    data: FederatedData,
    model: Any,
    *,
    devices: int | str = "auto",
    store: str = "auto",
    folder: Path | None = None,
    **settings: Any,
) -> Simulation | Streamed:
    """The engine of a run.

    ``devices``: how many share the clients, "all", or "auto" (see :func:`enough_devices`). ``store``: where
    personal states are between rounds – "device", "host", "disk" (in ``folder``), or "auto": the host's memory if
    few of many clients take part in a round and all would not fit on the device.
    """
    check_place(devices, store)
    alone = devices in (1, "auto") and not several()
    if store == "auto":
        few = cohort_size(settings.get("participation", 1.0), data.clients) < data.clients
        store = "host" if alone and few and not fits(method, data, model) else "device"
    if store == "device":
        if devices == "auto":
            cohort = cohort_size(settings.get("participation", 1.0), data.clients)
            devices = enough_devices(model, cohort, data.x.nbytes)
        wanted = 0 if devices == "all" or several() else int(devices)
        return Simulation(method, data, model, devices=wanted, **settings)
    if store == "disk" and folder is None:
        raise CgpflError('store = "disk": needs a run folder to keep the file in; give out')
    engine = Streamed(method, data, model, folder=folder if store == "disk" else None, **settings)
    size = nbytes(jax.eval_shape(plain, engine.shapes().server))
    if size > SHARE_OF_MEMORY * memory():
        raise CgpflError(
            f"{getattr(method, 'name', 'method')}: its server keeps {size / 2**30:.1f} GiB for {data.clients} clients, "
            "too much for this device (CGPFL without a warm-up, warmup = 0, keeps little)"
        )
    return engine


def check_place(devices: int | str, store: str) -> None:
    """Raise what speaks against such devices and such a store, before anything is made."""
    there = len(jax.devices())
    if isinstance(devices, int) and not 1 <= devices <= there:
        raise CgpflError(f"devices = {devices}: JAX finds {there}; use 1..{there}, or all")
    if isinstance(devices, int) and several():
        raise CgpflError(f"devices = {devices}: several processes use all their devices; leave it out")
    many = several() or (devices == "all" and there > 1) or (isinstance(devices, int) and devices > 1)
    if many and store in ("host", "disk"):
        raise CgpflError(f'store = "{store}": goes with one device and one process; use "device" with several')


def enough_devices(model: Any, cohort: int, samples: int) -> int:
    """One; on a CPU all cores, one device each, if clients are computed one at a time because little fits a cache.

    XLA divides the work of one client over cores poorly (CNN, 40 clients on two cores: 2.6 → 1.6 s a round). Each
    device has a copy of the ``samples`` (bytes): no more of them than memory allows.
    """
    there = min(len(jax.local_devices()), max(1, int(SHARE_OF_MEMORY * memory() / max(samples, 1))))
    if jax.default_backend() != "cpu":
        return 1
    task = jax.eval_shape(lambda: make_task(model, keys_of(0), cohort))
    one = client_bytes(model, task.initial, frozen=task.frozen)
    return min(there, cohort) if auto_block(one, cohort) == 1 else 1


def fits(method: Any, data: FederatedData, model: Any) -> bool:
    """Whether everybody's state and samples fit on the default device."""
    task, arrays = make_task(model, keys_of(0), data.clients), shapes_of(data)
    client = jax.eval_shape(lambda a: plain(method.init_client(with_public(task, a), jax.random.key(0))), arrays)
    return 3 * data.clients * nbytes(client) + data.x.nbytes <= SHARE_OF_MEMORY * memory()
