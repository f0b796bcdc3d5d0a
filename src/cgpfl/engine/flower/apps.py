"""Flower's ClientApp and ServerApp around a node and a server. The client's part imports no JAX."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from cgpfl.engine.flower.orders import trouble
from cgpfl.engine.flower.seal import SIGNATURE, Verify, summed
from cgpfl.errors import CgpflError

if TYPE_CHECKING:
    from flwr.serverapp import Grid, ServerApp

Work = Callable[[Context, dict[str, Any], dict[str, np.ndarray]], tuple[dict[str, Any], dict[str, np.ndarray]]]
"""(Flower's context, the order's facts, its arrays) → the reply's facts and arrays."""


def to_record(arrays: Mapping[str, np.ndarray]) -> ArrayRecord:
    """Named arrays as Flower's record."""
    return ArrayRecord({name: Array(np.array(v, order="C")) for name, v in arrays.items()})


def client_app(work: Work, verify: Callable[[], Verify] | None = None) -> ClientApp:
    """A ClientApp of one client, whose orders ``work`` does; ``verify`` makes what tells the server's from others."""
    app = ClientApp()

    @app.query()
    def who(message: Message, context: Context) -> Message:
        try:
            client = str(context.node_config["client"])
            said = ConfigRecord({"id": int(client) if client.isdigit() else client})
        except KeyError:
            said = ConfigRecord({"problem": 'its node config has no client, such as --node-config "client=0"'})
        asked: Any = message.content.config_records.get("ask", {})
        said["nonce"] = str(asked.get("nonce", ""))
        return Message(RecordDict({"client": said}), reply_to=message)

    @app.train()
    @app.evaluate()
    def ordered(message: Message, context: Context) -> Message:
        return _do(work, message, context, verify)

    return app


def _do(work: Work, message: Message, context: Context, verify: Callable[[], Verify] | None) -> Message:
    order: dict[str, Any] = dict(message.content.config_records.get("order", {}))
    try:
        record = message.content.array_records.get("message")
        if record is None or "train" not in order or any(isinstance(value, bytes) for value in order.values()):
            raise CgpflError("an order came that is none; nothing of it was done")
        if verify is not None and not verify()(summed(order, record), str(order.get(SIGNATURE, ""))):
            raise CgpflError("an order came that is not signed by the server; nothing of it was done")
        arrays = {name: np.load(BytesIO(a.data), allow_pickle=False) for name, a in record.items()}
        facts, upload = work(context, order, arrays)
    except Exception as error:
        known = isinstance(error, CgpflError)
        private = str(error) if known else f"{type(error).__name__}: {error}"
        facts, upload = {"private": private, "problem": trouble(error)}, {}
    said: dict[str, Any] = {
        "train": order.get("train", -1),
        "samples": 0,
        "tests": 0,
        "anew": False,
        "told": "",
        "problem": "",
    }
    if private := facts.pop("private", ""):
        # What a node finds wrong with its own files is nobody else's business.
        with contextlib.suppress(OSError):  # the log's disk may be the full one
            print(f"cgpfl: {private}", file=sys.stderr, flush=True)
        facts["problem"] = facts.get("problem") or "its node cannot take part; its log says why"
    metrics = MetricRecord(facts.pop("metrics", {}))
    told = ConfigRecord({**said, **facts, "nonce": str(order.get("nonce", ""))})
    return Message(RecordDict({"said": told, "metrics": metrics, "upload": to_record(upload)}), reply_to=message)


def server_app(main: Callable[[Grid, Context], None]) -> ServerApp:
    """A ServerApp that calls ``main``."""
    from flwr.serverapp import ServerApp

    app = ServerApp()
    app.main()(main)
    return app
