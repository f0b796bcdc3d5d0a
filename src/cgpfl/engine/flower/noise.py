"""A node's own randomness, where its uploads are private: the server knows the seed, so the seed's keys hide nothing.

Each node draws 32 bytes once and keeps them beside its private states. The key of an upload is a hash of them, of the
round, of all that the server sent and of all that the node trains from: asked the same again, a node answers the same,
at no cost; asked anything else, or from another state or other samples, its noise and its minibatches are new. So no
noise is ever under two uploads. What it answered is noted, and no more is answered than was counted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.engine.flower.orders import Order, RefusedError
from cgpfl.errors import CgpflError
from cgpfl.files import write
from cgpfl.tree import is_key

SECRET, SPENT = "noise.key", "spent.json"
BYTES = 32
NONE = bytes(BYTES)
"""A secret that is none: keys are the simulation's, for tests."""


@dataclass(frozen=True)
class OwnKeys:
    """Keys of one client's uploads; ``folder`` is that of its private states, ``times`` how many it may send."""

    folder: Path
    times: int

    @property
    def secret(self) -> bytes:
        """The node's, made when it is first asked for."""
        file = self.folder / SECRET
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            try:
                with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
                    new.write(os.urandom(BYTES))
            except FileExistsError:
                pass  # another process of this node was faster
        found = file.read_bytes()
        if len(found) != BYTES:
            raise CgpflError(f"{file}: has {len(found)} bytes; must have {BYTES}: delete it to draw another")
        return found

    def key(self, order: Order, message: Mapping[str, np.ndarray], plain: Any, own: Any = (), seen: str = "") -> Any:
        """The key of the upload that ``order`` and ``message`` ask for; ``plain`` is the simulation's.

        ``own`` and ``seen``, a tree and words: all else that the upload follows from.
        """
        asked = hashlib.sha256(f"{order.token} {order.train} {order.base}".encode())
        for name, value in sorted(message.items()):
            asked.update(f"{name} {value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        asked.update(seen.encode())
        for leaf in jax.tree.leaves(own):
            value = np.asarray(jax.random.key_data(leaf) if hasattr(leaf, "dtype") and is_key(leaf) else leaf)
            asked.update(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        self._note(order.token, asked.hexdigest())
        secret = self.secret
        if secret == NONE:
            return plain
        drawn = hashlib.sha256(secret + asked.digest()).digest()
        size = jax.random.key_data(plain).size
        return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(drawn[: 4 * size], np.uint32)))

    def _note(self, token: str, asked: str) -> None:
        """Count the upload, unless it was sent before."""
        file = self.folder / token / SPENT
        before: list[str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
        if asked in before:
            return
        if len(before) >= self.times:
            raise RefusedError(f"has sent the {self.times} uploads that its privacy allows")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(file, json.dumps([*before, asked]).encode())
