"""A node's own randomness, where its uploads have noise: the server knows the seed, so the seed's keys hide nothing.

Each node draws 32 bytes once and keeps them beside its private states. The key of an upload is a hash of them, of the
round, of all that the server sent and of all that the node trains from: asked the same again, a node answers the same,
at no cost; asked anything else, or from another state or other samples, its noise and its minibatches are new. So no
noise is ever under two uploads. What a private node answered is noted, by the hash of its key, and no more is answered
than was counted: with 32 other bytes the same question is another upload.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.engine.flower.orders import Order, RefusedError
from cgpfl.errors import CgpflError
from cgpfl.files import no_link, write
from cgpfl.tree import is_key

SECRET, LOCK = "noise.key", "noise.lock"
BYTES = 32


@dataclass(frozen=True)
class OwnKeys:
    """Keys of one client's uploads; ``folder`` is that of its private states, ``times`` how many it may send.

    ``times`` None: nobody counts them.
    """

    folder: Path
    times: int | None

    def key(self, order: Order, message: Mapping[str, np.ndarray], plain: Any, own: Any = (), seen: str = "") -> Any:
        """The key of the upload that ``order`` and ``message`` ask for, in the form of the simulation's, ``plain``.

        ``own`` and ``seen``, a tree and words: all else that the upload follows from.
        """
        asked = hashlib.sha256(f"{order.token} {order.train} {order.base}".encode())
        for name, value in sorted(message.items()):
            asked.update(f"{name} {value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        asked.update(seen.encode())
        for leaf in jax.tree.leaves(own):
            value = np.asarray(jax.random.key_data(leaf) if hasattr(leaf, "dtype") and is_key(leaf) else leaf)
            asked.update(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        with self._alone():
            drawn = hashlib.sha256(self._secret() + asked.digest()).digest()
            self._note(order.token, hashlib.sha256(drawn).hexdigest())
        size = jax.random.key_data(plain).size
        return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(drawn[: 4 * size], np.uint32)))

    def spent(self, token: str) -> Path:
        """What was sent in a run: beside its states, for it stays when they are forgotten."""
        return self.folder / f"spent-{token}.json"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process of this client at a time; the system's lock ends with its process."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self.folder / LOCK
        no_link(file)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _secret(self) -> bytes:
        """The node's, made when it is first asked for; on the disk before anything is sent."""
        file = self.folder / SECRET
        if not file.exists():
            write(file, os.urandom(BYTES), mode=0o600)
        found = file.read_bytes()
        if len(found) != BYTES or not any(found):
            what = f"has {len(found)} bytes" if len(found) != BYTES else "has nothing but zeros"
            raise CgpflError(f"{file}: {what}; must have {BYTES} at random: delete it to draw others")
        return found

    def _note(self, token: str, sent: str) -> None:
        """Count the upload, unless it was sent before."""
        if self.times is None:
            return
        file = self.spent(token)
        before: list[str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
        if sent in before:
            return
        if len(before) >= self.times:
            raise RefusedError(f"has sent the {self.times} uploads that its privacy allows")
        write(file, json.dumps([*before, sent]).encode())
