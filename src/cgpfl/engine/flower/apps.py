"""Flower's ClientApp and ServerApp around a node and a server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from cgpfl.engine.flower.wire import RefusedError
from cgpfl.errors import CgpflError

if TYPE_CHECKING:
    from cgpfl.engine.flower.node import Node

Loader = Callable[[Context, str], "Node"]
"""A node's part in a method: from Flower's context and the method's label."""


def client_app(node_of: Loader) -> ClientApp:
    """A ClientApp of one client. ``node_of(context, label)`` gives its :class:`~cgpfl.engine.flower.node.Node`."""
    app = ClientApp()

    @app.query()
    def who(message: Message, context: Context) -> Message:
        from flwr.app import ConfigRecord, RecordDict

        try:
            said = ConfigRecord({"id": int(context.node_config["client"])})
        except (KeyError, ValueError):
            said = ConfigRecord({"problem": 'its node config has no client, such as --node-config "client=0"'})
        return Message(RecordDict({"client": said}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return _work(node_of, message, context)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return _work(node_of, message, context)

    return app


def _work(node_of: Loader, message: Message, context: Context) -> Message:
    from cgpfl.engine.flower.link import from_record, reply_content
    from cgpfl.engine.flower.node import Order

    asked = message.content.config_records["order"]
    order = Order(str(asked["token"]), int(asked["base"]), int(asked["train"]), int(asked["evaluate"]))  # type: ignore[arg-type]
    said = {"client": -1, "train": order.train, "samples": 0, "tests": 0, "anew": False}
    try:
        node = node_of(context, str(asked["label"]))
        arrays = from_record(message.content.array_records["message"], node.message_like)
        reply = node.work(order, arrays)
    except (CgpflError, RefusedError) as error:
        print(f"cgpfl: {error}", file=sys.stderr, flush=True)
        # What a node finds wrong with its own files is nobody else's business.
        problem = str(error) if isinstance(error, RefusedError) else "its node cannot take part; its log says why"
        return Message(reply_content({**said, "problem": problem}, {}, {}), reply_to=message)
    said |= {"client": node.client, "samples": node.samples, "tests": node.tests, "anew": reply.anew}
    return Message(reply_content(said, reply.metrics, reply.upload), reply_to=message)


def server_app(main: Callable[[Grid, Context], None]) -> ServerApp:
    """A ServerApp that calls ``main``."""
    app = ServerApp()
    app.main()(main)
    return app
