"""Replies as they come from Flower, one by one: what one of them is costs its sender alone.

Flower's own pull reads a reply whole before anybody has seen how large it is, and fails for all where one is malformed.
What it then says of the reply (who sent it, and to what) is read from the reply itself; here, from what was stored.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
from flwr.app import Array, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_object_body, get_object_head_values_from_object_content

MOST = 64 << 20
"""Bytes of a reply, unless it is known what it must have."""
PIECE = 5 << 20
"""Bytes in which Flower sends arrays."""
AT_ONCE = 8
"""Replies that are read at the same time."""
PARTS = 4096
"""Objects that a reply may be made of, beside the pieces of its arrays."""


@dataclass(frozen=True)
class Pulled:
    """A reply."""

    to: str
    """The id of the message that it answers."""
    source: int
    """The node that sent it."""
    content: Any
    """Its records; of what kind they are is not yet known."""
    why: str = ""
    """Why there is none."""


class TooLargeError(Exception):
    """A reply is larger than it may be."""


def pulled(grid: Grid, messages: list[str], most: int = MOST, seconds: float = 60.0) -> list[Pulled]:
    """The replies to ``messages`` that have come, each of at most ``most`` bytes, and whole within ``seconds``."""
    if hasattr(type(grid), "_runtime_client"):
        return _from_flower(grid, messages, most, seconds)
    return [_as_pulled(reply) for reply in grid.pull_messages(messages)]


def _as_pulled(reply: Message) -> Pulled:
    about = reply.metadata
    if reply.has_error():
        return Pulled(about.reply_to_message_id, about.src_node_id, None, str(reply.error.reason or reply.error.code))
    return Pulled(about.reply_to_message_id, about.src_node_id, reply.content)


def _from_flower(grid: Any, messages: list[str], most: int, seconds: float) -> list[Pulled]:
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest

    client, run = grid._runtime_client, grid.run.run_id
    came = client.PullMessages(PullAppMessagesRequest(message_ids=messages))

    def one(proto: Any, tree: Any) -> Pulled:
        about = proto.metadata
        to, source = about.reply_to_message_id, about.src_node_id
        try:
            reply = _read(grid, run, about.message_id, tree, most, seconds)
            if not isinstance(reply, Message):
                raise TypeError("no message")
            if reply.has_error():
                return Pulled(to, source, None, str(reply.error.reason or reply.error.code))
            if not isinstance(reply.content, RecordDict):
                raise TypeError("no records")
            return Pulled(to, source, reply.content)
        except TooLargeError as error:
            return Pulled(to, source, None, str(error))
        except Exception as error:  # whatever it is, the others' replies are read
            return Pulled(to, source, None, f"cannot be read: {type(error).__name__}")
        finally:
            with contextlib.suppress(httpx.HTTPError):  # what is not confirmed is deleted with the run
                client.ConfirmMessageReceived(
                    ConfirmMessageReceivedRequest(node=grid.node, run_id=run, message_object_id=about.message_id)
                )

    with ThreadPoolExecutor(AT_ONCE) as pool:  # one that never sends its pieces keeps nobody waiting
        return list(pool.map(one, came.messages_list, came.message_object_trees))


def _read(grid: Any, run: int, message: str, tree: Any, most: int, seconds: float) -> Any:
    """The object that a tree of objects is of; sizes are looked at before anything is put together."""
    from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects

    parts = _ids(tree, PARTS + 2 * (most // PIECE))
    pull, left = make_pull_object_fn_protobuf(grid._runtime_client.PullObject, grid.node, run), [most]

    def counted(name: str) -> bytes:
        content = pull(name)
        left[0] -= len(content)
        if left[0] < 0:
            raise TooLargeError(f"has more than {most:,} bytes")
        return content

    contents = pull_objects(list(dict.fromkeys(parts)), counted, max_time=seconds)
    whole = sum(_length(content, contents) for content in contents.values())
    if whole > most:
        raise TooLargeError(f"has arrays of {whole:,} bytes; may have {most:,}")
    return inflate_object_from_contents(message, contents)


def _length(content: bytes, contents: Mapping[str, bytes]) -> int:
    """Bytes of an array when it is put together: equal pieces travel once; 0 of other objects."""
    kind, children, _ = get_object_head_values_from_object_content(content)
    if kind != Array.__qualname__:
        return 0
    pieces = json.loads(get_object_body(content, Array))["arraychunk_ids"]
    return sum(len(contents[children[i]]) for i in pieces)


def _ids(tree: Any, most: int) -> list[str]:
    """Ids of the objects of a tree, as often as they are in it; not deeper than a message is."""
    found, todo = [], [(tree, 0)]
    while todo:
        node, depth = todo.pop()
        found.append(node.object_id)
        if len(found) > most or depth > 8:
            raise TooLargeError(f"is of more than {most:,} parts")
        todo += [(child, depth + 1) for child in node.children]
    return found
