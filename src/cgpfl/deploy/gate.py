"""Who may do what at the SuperLink we start, where Flower's own does not ask.

Flower authenticates a request's node and then believes what the message in it says: a known node could answer as
another, or give orders as the server. It reads a request's body before it looks at the key: a stranger could fill its
memory. And its Control and Runtime interfaces, which can run code on every node, ask nobody on loopback. Here:

    answers    a node's messages are its own, and answers to orders it was given
    strangers  a known key's signature is looked for before a byte of the body is read; bodies have a limit
    users      Control and Runtime are for this process's user and root (on Linux, which says whose a connection is)
"""

from __future__ import annotations

import base64
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

FLEET = "/v1/fleet/"
OPEN = ("/health",)
UNKNOWN = 412
"""To a key that nobody registered, as Flower's own: at a 401 a node ends without a word."""
SERVER = 1
"""The number that messages have for the server."""
LARGEST = 16 << 20
"""Bytes of a request of a node: Flower sends arrays in pieces of 5 MB."""
PEOPLE = ("/proc/net/tcp", "/proc/net/tcp6")
"""Where Linux says whose connections are."""
SOCK_DIAG, BY_FAMILY = 4, 20
"""Of whom it can be asked for one (NETLINK_SOCK_DIAG), and how (SOCK_DIAG_BY_FAMILY)."""
ESTABLISHED = 1

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def only_answers(push: Callable[..., Any]) -> Callable[..., Any]:
    """Flower's ``push_messages`` for nodes, for a node's own answers alone."""
    from fastapi import HTTPException

    def checked(request: Any, state: Any) -> Any:
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise HTTPException(403, "one message a request")
        about, tree = request.messages_list[0].metadata, request.message_object_trees[0]
        if about.src_node_id != request.node.node_id:
            raise HTTPException(403, "a message of another node")
        if not about.reply_to_message_id or about.dst_node_id != SERVER:
            raise HTTPException(403, "no answer to an order")
        if tree.object_id != about.message_id:
            raise HTTPException(403, "objects of another message")
        return push(request=request, state=state)

    return checked


def own_task(confirm: Callable[..., Any]) -> Callable[..., Any]:
    """Flower's ``confirm_message_received`` for nodes: it deletes what is confirmed, so that was sent to the node."""
    from fastapi import HTTPException

    def checked(request: Any, state: Any, store: Any) -> Any:
        order = state.get_valid_message_ins(request.message_object_id)
        if order is None or int(order["dst_node_id"]) % 2**64 != request.node.node_id:  # SQLite has signed numbers
            raise HTTPException(403, "no message to this node")
        return confirm(request=request, state=state, store=store)

    return checked


class Gate:
    """In front of Flower's application: what can be refused before a body is read."""

    def __init__(self, app: Callable[..., Awaitable[None]], largest: int = LARGEST) -> None:
        self.app, self.largest = app, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        from starlette.concurrency import run_in_threadpool

        if scope["type"] != "http" or scope["path"] in OPEN:
            await self.app(scope, receive, send)
        elif not scope["path"].startswith(FLEET):
            if is_ours(scope.get("client"), scope.get("server")):
                await self.app(scope, receive, send)
            else:
                await _answer(send, 403, b"for the SuperLink's own user")
        elif status := await run_in_threadpool(_refusal, scope):
            await _answer(send, status, b"not a node of this federation, or at another time")
        elif int(_header(scope, b"content-length") or self.largest + 1) > self.largest:
            await _answer(send, 413, b"larger than a node's request may be")
        else:
            await self.app(scope, receive, send)


async def _answer(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def _header(scope: Scope, name: bytes) -> str:
    found = [value for key, value in scope["headers"] if key.lower() == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _refusal(scope: Scope) -> int:
    """0 where the headers are signed, just now, with a key that the SuperLink knows; else the status of the answer."""
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
    from flwr.superlink.dependencies.linkstate import get_linkstate
    from flwr.superlink.routers.fleet.node_auth import authenticate_node
    from starlette.exceptions import HTTPException
    from starlette.requests import Request

    try:
        key = base64.b64decode(_header(scope, FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode()), validate=True)
        # Flower's own check, of a request that says nothing but the key in its header.
        request = Request({**scope, "state": {"protobuf_request": ActivateNodeRequest(public_key=key)}})
        authenticate_node(request)
    except (HTTPException, ValueError):
        return 401
    return 0 if get_linkstate(request).get_node_id_by_public_key(key) is not None else UNKNOWN


def is_ours(client: Any, server: Any) -> bool:
    """Whether a connection from ``client`` to ``server`` (host, port) is of this process's user, or of root.

    True where the system does not say: only Linux does.
    """
    if not client or not server or not Path(PEOPLE[0]).exists():
        return True
    try:
        wanted = f"{_hex(client)} {_hex(server)}"
    except OSError:  # no addresses
        return False
    found = _user(client, server)
    return found in (os.getuid(), 0) if found is not None else _is_listed(wanted)


def _user(client: Any, server: Any) -> int | None:
    """The user of an established connection, as the kernel says it of this one (sock_diag); None where it does not.

    To look it up in :data:`PEOPLE` is to read all there are: 3.6 ms instead of 0.02, of each request.
    """
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    try:
        hosts = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host in (client[0], server[0]))
        one = struct.pack("!HH", int(client[1]), int(server[1])) + hosts
        asked = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 1 << ESTABLISHED) + one + bytes(4) + b"\xff" * 8
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.connect((0, 0))  # from now on nobody else can answer
            kernel.send(struct.pack("=IHHII", 16 + len(asked), BY_FAMILY, 1, 0, 0) + asked)
            said = kernel.recv(4096)
    except OSError:  # a system without it, or a service that may not ask
        return None
    if len(said) < 16 + 72 or struct.unpack_from("=H", said, 4)[0] != BY_FAMILY:  # an error, such as: there is none
        return None
    if said[17] != ESTABLISHED or said[20 : 20 + len(one)] != one:  # it has found who listens, or what was closed
        return None
    return int(struct.unpack_from("=I", said, 16 + 64)[0])


def _is_listed(wanted: str) -> bool:
    """Whether the kernel's list has such a connection, of this process's user or of root."""
    for file in PEOPLE:
        if not Path(file).exists():
            continue
        for line in Path(file).read_text().splitlines()[1:]:
            fields = line.split()
            if f"{fields[1]} {fields[2]}" == wanted:
                # One that its user has closed is nobody's, which the system writes as 0: that is not root.
                return int(fields[3], 16) == ESTABLISHED and int(fields[7]) in (os.getuid(), 0)
    return False


def _hex(address: Any) -> str:
    """Host and port as the kernel writes them."""
    host, port = address[0], int(address[1])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def install() -> None:
    """Put it in place before Flower's SuperLink is made; an error where Flower is no longer what it was."""
    from flwr.superlink import main
    from flwr.superlink.servicer.fleet import fleet_handlers
    from starlette.middleware import Middleware

    flower, handlers = main, fleet_handlers
    for place, name in (
        (flower, "_get_middleware"),
        (handlers, "push_messages"),
        (handlers, "confirm_message_received"),
    ):
        if not hasattr(place, name):
            raise ImportError(f"flwr: {name} is not where it was in 1.41.0")
    before: Any = flower._get_middleware
    flower._get_middleware = lambda: [Middleware(Gate), *before()]
    handlers.push_messages = only_answers(handlers.push_messages)
    handlers.confirm_message_received = own_task(handlers.confirm_message_received)
