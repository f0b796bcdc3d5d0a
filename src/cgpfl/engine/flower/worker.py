"""The process of a node that stays: JAX imported, data loaded, programs compiled; one order at a time.

    python -m cgpfl.engine.flower.worker SOCKET LOADER PARENT

``LOADER``, "module:function", makes a :class:`~cgpfl.engine.flower.node.Node` from an order's facts. The worker ends
when the process ``PARENT`` is gone.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.engine.flower.orders import Order, RefusedError, from_bytes, to_bytes, trouble
from cgpfl.errors import CgpflError


def answer(
    load: Callable[[dict[str, Any]], Any], facts: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Do one order → the reply's facts and arrays; ``problem`` is for the server, ``private`` for this node's log."""
    try:
        reply = load(facts["node"]).work(Order(**facts["order"]), arrays)
    except RefusedError as error:
        return {"problem": str(error)}, {}
    except CgpflError as error:
        return {"private": str(error)}, {}
    except OSError as error:  # its log may be on the same disk
        return {"private": f"{error.filename or 'a file'}: {error.strerror or error}", "problem": trouble(error)}, {}
    return reply.facts(), reply.upload


def main() -> None:
    """Serve orders until the parent is gone."""
    address, loader, parent = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    module, _, name = loader.partition(":")
    address.unlink(missing_ok=True)
    listener = Listener(str(address), "AF_UNIX", backlog=4)
    threading.Thread(target=_watch, args=(parent, address), daemon=True).start()
    load = getattr(importlib.import_module(module), name)
    while True:
        with listener.accept() as connection:
            try:
                connection.send_bytes(to_bytes(*answer(load, *from_bytes(connection.recv_bytes()))))
            except (OSError, EOFError):
                continue  # who asked has gone
            except Exception:
                traceback.print_exc()  # the connection closes without an answer, and that is one


def _watch(parent: int, address: Path) -> None:
    """End this process when ``parent`` has ended (another process with its number is not it)."""
    born = _born(parent)
    while born is not None and _born(parent) == born:
        time.sleep(0.5)
    address.unlink(missing_ok=True)
    os._exit(0)


def _born(pid: int) -> str | None:
    """When a process was started, as the system tells it; "there" where it tells nothing more; None: it has ended."""
    try:
        os.kill(pid, 0)
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return None if Path("/proc/self").exists() else "there"
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


if __name__ == "__main__":
    main()
