"""Asking nodes through Flower: who is there, which client each of them is, orders down and answers up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from io import BytesIO
from typing import Any

import httpx
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from cgpfl.engine.flower.apps import to_record
from cgpfl.engine.flower.checks import Answer
from cgpfl.engine.flower.orders import Order, RefusedError, called, cleaned
from cgpfl.engine.flower.pull import MOST, Pulled, pulled
from cgpfl.engine.flower.seal import SIGNATURE, Sign, nonce, summed
from cgpfl.engine.flower.wire import check_form, form

HEADER = 1024
"""Bytes that NumPy's format adds to an array, at most."""
POLL = (0.05, 0.5)
"""Seconds between two looks for answers, at first and at most."""
PATIENCE = 60.0
"""Seconds that a node has to say which client it is, and before one that could not is asked again."""
TROUBLE = 60.0
"""Seconds for which the SuperLink may answer with nothing but errors before the run stops."""
PAUSE = 5.0
"""Seconds after which orders that it could not take are sent again."""
NEWS = 30.0
"""Seconds between two words to whoever waits."""


def from_record(record: ArrayRecord, like: Any) -> dict[str, np.ndarray]:
    """Named arrays of a record. Names, shapes, types and sizes are checked before a byte is decoded."""
    check_form({name: (tuple(a.shape), a.dtype) for name, a in record.items()}, like)
    found = {}
    for name, (shape, dtype) in form(like).items():
        array = record[name]
        if array.stype != "numpy.ndarray" or len(array.data) > int(np.prod(shape)) * dtype.itemsize + HEADER:
            raise RefusedError(f"{name} is not what it says it is")
        try:
            found[name] = _array(array.data, shape, dtype)
        except (ValueError, OSError, EOFError) as error:
            raise RefusedError(f"{name} cannot be read") from error
    return found


def _array(content: bytes, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array in NumPy's format, if it is what it was announced to be; nothing is unpacked or allocated before."""
    file = BytesIO(content)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise ValueError("another format")
    try:
        its_shape, fortran, its_dtype = readers[version](file)
    except Exception as error:  # NumPy reads it as Python's text: whatever that raises
        raise ValueError("another header") from error
    rest = content[file.tell() :]
    if its_shape != shape or its_dtype != dtype or len(rest) != int(np.prod(shape)) * dtype.itemsize:
        raise ValueError("not what was announced")
    return np.frombuffer(rest, dtype).reshape(shape, order="F" if fortran else "C")


class Link:
    """The nodes of a Flower run, by client id.

    Each node is asked once which client it is. ``member`` says which client a node's key is registered for: a node that
    says it is another is refused. Without it, the first node that claims a client keeps it.
    Every order is signed by ``sign`` and carries a nonce, without which an answer is none.
    """

    def __init__(
        self,
        grid: Grid,
        clients: int,
        tell: Callable[[str], None] = lambda line: None,
        names: Sequence[str] = (),
        sign: Sign | None = None,
        member: Callable[[int], int | None] | None = None,
    ) -> None:
        self.sign, self.member = sign, member
        self.most = MOST
        """Bytes that an answer may have."""
        self.grid, self.clients, self.tell, self.names = grid, clients, tell, tuple(names)
        self.claims: dict[int, int] = {}
        """Client id → node id."""
        self.label = ""
        """Which method orders are of."""
        self.form = ""
        """The form of the samples as JSON, where nodes learn it from orders; empty: they know it, or are asked."""
        self._asking: dict[str, tuple[int, float, str]] = {}
        self._refused: set[int] = set()
        self._later: dict[int, float] = {}
        self._online: set[int] = set()
        self._trouble: dict[str, float] = {}

    def wait(self, seconds: float, enough: int) -> list[int]:
        """Wait for all clients, at most ``seconds``, longer only for ``enough`` of them → who is there."""
        began, pause, told = time.monotonic(), POLL[0], time.monotonic()
        while True:
            self._meet()
            there = self.there()
            now = time.monotonic()
            if len(there) == self.clients or (now - began > seconds and len(there) >= enough):
                return there
            if now - told > NEWS:
                told = now
                self.tell(f"waiting for nodes: {len(there)} of {self.clients} are here, {enough} are needed")
            time.sleep(pause)
            pause = min(2 * pause, POLL[1])

    def called(self, client: int) -> str:
        return called(self.names, client)

    def there(self) -> list[int]:
        """Clients whose nodes are online."""
        online = self._nodes()
        return sorted(i for i, node in self.claims.items() if node in online)

    def ask(self, orders: Mapping[int, tuple[Order, Mapping[str, np.ndarray]]], deadline: float) -> dict[int, Answer]:
        """See :class:`cgpfl.engine.flower.server.Nodes`. Nodes that come meanwhile are met for the next round."""
        self._meet()
        waiting = self._send(orders, deadline)
        found: dict[int, Answer] = {}
        began, pause = time.monotonic(), POLL[0]
        while waiting and time.monotonic() - began < deadline:
            time.sleep(pause)
            pause = min(2 * pause, POLL[1])
            for reply in self._pull(list(waiting), deadline - (time.monotonic() - began)):
                client, secret = waiting.pop(reply.to, (-1, ""))
                if client < 0:
                    continue
                if reply.why:
                    self.tell(f"{self.called(client)}: no answer ({cleaned(reply.why)})")
                    continue
                try:
                    if reply.source != self.claims[client]:
                        raise RefusedError("another node answers for it")
                    found[client] = _answer(reply.content, secret)
                except RefusedError as error:
                    self.tell(f"{self.called(client)}: refused, {cleaned(error)}")
                except Exception as error:  # whatever one node sends, the others' round goes on
                    self.tell(f"{self.called(client)}: refused, cannot be used ({type(error).__name__})")
            self._meet()
        for client, _ in waiting.values():
            self.tell(f"{self.called(client)}: no answer within {deadline:g} s")
        return found

    def _send(
        self, orders: Mapping[int, tuple[Order, Mapping[str, np.ndarray]]], deadline: float
    ) -> dict[str, tuple[int, str]]:
        """Orders to those who are there → the message's id, its client and its nonce."""
        while True:
            messages, clients = [], []
            for i in self.there():
                if i in orders:
                    order, arrays = orders[i]
                    facts: dict[str, Any] = {"label": self.label, "form": self.form, "seconds": float(deadline)}
                    facts, record = {**asdict(order), **facts, "nonce": nonce()}, to_record(arrays)
                    signed = {} if self.sign is None else {SIGNATURE: self.sign(summed(facts, record))}
                    content = RecordDict({"order": ConfigRecord({**facts, **signed}), "message": record})
                    kind = MessageType.TRAIN if order.train >= 0 else MessageType.EVALUATE
                    messages.append(self._message(content, kind, self.claims[i], deadline))
                    clients.append((i, facts["nonce"]))
            ids = self._push(messages)
            if ids is not None:
                break
            time.sleep(PAUSE)
        for number, (client, _) in zip(ids, clients, strict=True):
            if not number:
                self.tell(f"{self.called(client)}: its message could not be sent")
        return {number: client for number, client in zip(ids, clients, strict=True) if number}

    def _push(self, messages: list[Message]) -> list[str] | None:
        """Send messages → their ids, "" for one that could not be sent; None where the SuperLink is in trouble."""
        if not messages:
            return []
        sent = self._try("push", lambda: self.grid.push_messages(messages), None)
        if sent is None:
            return None
        ids = [str(i or "") for i in sent]
        return ids if len(ids) == len(messages) else [""] * len(messages)

    def _pull(self, messages: list[str], seconds: float = PATIENCE / 6) -> list[Pulled]:
        """Replies that have come; who does not send all of its own within ``seconds`` has none."""
        return list(self._try("pull", lambda: pulled(self.grid, messages, self.most, seconds), []))

    def _nodes(self) -> set[int]:
        """Who is online, or was when it was last known."""
        self._online = set(self._try("nodes", self.grid.get_node_ids, self._online))
        return self._online

    def _try(self, what: str, call: Callable[[], Any], otherwise: Any) -> Any:
        """What the SuperLink says, or ``otherwise`` while it says only that it has a trouble of its own."""
        try:
            said = call()
        except (httpx.HTTPStatusError, ObjectPushError) as error:
            status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 500
            now = time.monotonic()
            if status < 500 or now - self._trouble.get(what, now) > TROUBLE:
                raise
            if what not in self._trouble:
                self._trouble[what] = now
                self.tell(f"the SuperLink could not answer ({cleaned(error)}); its log says why; asking again")
            return otherwise
        self._trouble.pop(what, None)
        return said

    def _message(self, content: RecordDict, kind: str, node: int, deadline: float) -> Message:
        return Message(content, dst_node_id=node, message_type=kind, ttl=deadline + 1)

    def _meet(self) -> None:
        """Ask nodes that nobody knows which client they are; take the answers that have come."""
        now, online = time.monotonic(), self._nodes()
        self._refused &= online  # who was refused may come back and say something else
        self._asking = {m: known for m, known in self._asking.items() if known[1] > now}
        self._later = {n: until for n, until in self._later.items() if until > now}
        known = {*self.claims.values(), *self._refused, *self._later, *(n for n, *_ in self._asking.values())}
        strangers = [n for n in online if n not in known]
        if strangers:
            asked = [(n, nonce()) for n in strangers]
            asks = []
            for node, secret in asked:  # which client it is
                record = RecordDict({"ask": ConfigRecord({"nonce": secret})})
                asks.append(self._message(record, MessageType.QUERY, node, PATIENCE))
            for message, (node, secret) in zip(self._push(asks) or [], asked, strict=False):
                if message:
                    self._asking[message] = (node, now + PATIENCE, secret)
        if not self._asking:
            return
        for reply in self._pull(list(self._asking)):
            node, _, secret = self._asking.pop(reply.to, (0, 0.0, ""))
            if node:
                self._claim(node, secret, reply)

    def _claim(self, node: int, secret: str, reply: Pulled) -> None:
        try:
            said = dict(reply.content.config_records["client"])
            if reply.why or reply.source != node or said.get("nonce") != secret:
                raise RefusedError(reply.why or "no answer to what it was asked")
        except Exception as error:  # whatever one node sends
            self._later[node] = time.monotonic() + PATIENCE
            why = cleaned(reply.why or (error if isinstance(error, RefusedError) else type(error).__name__))
            self.tell(f"a node did not say which client it is ({why})")
            return
        client: Any = said.get("id")
        problem = cleaned(said.get("problem", ""))
        client = self.names.index(client) if isinstance(client, str) and client in self.names else client
        bound = client if self.member is None else self.member(node)
        if problem:
            self.tell(f"a node cannot take part: {problem}")
            self._refused.add(node)
        elif type(client) is not int or not 0 <= client < self.clients:
            known = ", ".join(self.names) or f"0..{self.clients - 1}"
            self.tell(f"a node says it is client {cleaned(client)}; there are {known}")
            self._refused.add(node)
        elif bound != client:
            whose = "no client" if bound is None else self.called(bound)
            self.tell(f"a node whose key is registered for {whose} says it is {self.called(client)}; refused")
            self._refused.add(node)
        elif client in self.claims and self.member is None:  # of those that are registered, a new key is the client's
            self.tell(f"a second node says it is {self.called(client)}; refused")
            self._refused.add(node)
        else:
            self.claims[client] = node
            self.tell(f"{self.called(client)} is here")


def _answer(content: RecordDict, secret: str) -> Answer:
    """A reply's records as an answer; its arrays are decoded when their form is known."""
    try:
        said, metrics = content.config_records["said"], content.metric_records["metrics"]
        upload = content.array_records["upload"]
        if said.get("nonce") != secret:
            raise RefusedError("it does not answer what was asked")
        if problem := said.get("problem", ""):
            raise RefusedError(cleaned(problem))
        return Answer(
            train=_whole(said, "train"),
            samples=_whole(said, "samples"),
            tests=_whole(said, "tests"),
            anew=bool(said["anew"]),
            metrics={str(k): v if isinstance(v, list) else float(v) for k, v in metrics.items()},
            upload=lambda like: from_record(upload, like),
            told=str(said.get("told", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedError(f"an answer without {error}") from error


def _whole(said: ConfigRecord, name: str) -> int:
    value = said[name]
    if type(value) is not int:
        raise RefusedError(f"{name} is {value!r}")
    return value
