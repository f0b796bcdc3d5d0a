"""What the server keeps to itself: its key for orders, which key is which client's, names of runs.

Files of one user alone (mode 600): ``keys/orders.key`` and ``keys/members.json``, ``server.json`` in a run folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cgpfl.engine.flower.seal import Sign, make_key, signer
from cgpfl.errors import CgpflError
from cgpfl.files import write

if TYPE_CHECKING:
    from flwr.serverapp import Grid

FOLDER = "CGPFL_KEYS"
"""Variable of the server's environment: its folder of keys. A bundle that Flower unpacks has none."""
ORDERS = "orders.key"
MEMBERS = "members.json"
LEDGER = "server.json"


def keys_of(app: Path) -> Path:
    """Where the server's keys are."""
    return Path(os.environ.get(FOLDER) or app / "keys")


def write_secret(path: Path, content: bytes) -> Path:
    """A file for its user alone, whole or not at all."""
    write(path, content, mode=0o600)  # before there is anything to read
    return path


def make_orders(keys: Path) -> str:
    """A key for orders in ``keys``, unless there is one → its public half."""
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (keys / ORDERS).exists():
        return signer((keys / ORDERS).read_bytes(), str(keys / ORDERS))[1]
    pem, public = make_key()
    write_secret(keys / ORDERS, pem)
    return public


def orders_of(keys: Path, public: str, where: str) -> Sign:
    """What signs orders; nodes know its key by ``public``, of the experiment ``where``."""
    if not public:
        raise CgpflError(f"{where}: deploy: orders: is missing; make it by: cgpfl deploy keys")
    file = keys / ORDERS
    try:
        sign, own = signer(file.read_bytes(), str(file))
    except OSError as error:
        raise CgpflError(
            f"{file}: cannot be read ({error.strerror}); nodes take orders signed with it alone"
        ) from error
    if own != public:
        raise CgpflError(f"{file}: is another key than {where} says; remove orders there, then: cgpfl deploy keys")
    return sign


def public_key(content: bytes) -> str:
    """A public key, of whatever form, as one text."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    load = serialization.load_pem_public_key if content.startswith(b"-----") else serialization.load_ssh_public_key
    try:
        found: Any = load(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CgpflError("is no public key that can be read") from error
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return found.public_bytes(serialization.Encoding.DER, form).hex()


def members(keys: Path) -> dict[str, int]:
    """Public keys, and the client that each is registered for."""
    file = keys / MEMBERS
    try:
        return {key: int(client) for client, key in json.loads(file.read_text()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise CgpflError(f"{file}: cannot be read; remove it, then: cgpfl deploy register") from error


def bind(keys: Path, client: int, public: Path) -> None:
    """From now on ``client`` is the node with this public key and no other, and the key is no other client's."""
    try:
        key = public_key(public.read_bytes())
    except (OSError, CgpflError) as error:
        raise CgpflError(f"{public}: is no public key that can be read") from error
    known = {other: at for other, at in members(keys).items() if at != client}
    if key in known:
        raise CgpflError(f"{public}: is registered for client {known[key]}; a key is of one client")
    rest = {str(at): other for other, at in {**known, key: client}.items()}
    write_secret(keys / MEMBERS, json.dumps(dict(sorted(rest.items())), indent=1).encode())


def membership(grid: Grid, keys: Path) -> Callable[[int], int | None] | None:
    """Which client a node is registered for, by its key; None of a grid that knows no keys (in one process)."""
    if not hasattr(type(grid), "_runtime_client"):
        return None

    def member(node: int) -> int | None:
        known = members(keys)
        for one in grid.get_nodes():
            if one.node_id == node and one.public_key:
                return known.get(public_key(one.public_key))
        return None

    return member


class Ledger:
    """What a run's server must know again when it goes on, and nobody else need: what its methods' runs are called."""

    def __init__(self, out: Path) -> None:
        self._file = out / LEDGER
        self._tokens: dict[str, str] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def token(self, label: str) -> str | None:
        """What a method's run is called on nodes."""
        return self._tokens.get(label)

    def note(self, label: str, token: str) -> None:
        """Written before a round is saved: a checkpoint without its name would be of no use."""
        if self._tokens.get(label) != token:
            self._tokens = {**self._tokens, label: token}
            write_secret(self._file, json.dumps(self._tokens).encode())
