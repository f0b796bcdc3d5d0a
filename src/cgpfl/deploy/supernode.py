"""Flower's SuperNode, for its own user: ``python -m cgpfl.deploy.supernode`` in the place of flower-supernode.

Flower's processes on a node talk to each other over plain HTTP on loopback and ask nobody who it is: other users of the
machine could take a node's tasks, or fake them.
"""

from __future__ import annotations

import datetime
import os
import sys
from typing import Any

from cgpfl.deploy import gate
from cgpfl.deploy.gate import UNKNOWN
from cgpfl.deploy.orphans import end_with_parent

CONNECTED = 2004
"""Flower's number of an error: a node that comes while it is counted as connected, since it was killed."""


def guarded() -> None:
    """Put the gate in front of the node's own interface; an error where Flower is no longer what it was."""
    from flwr.supernode import main

    flower: Any = main
    if not hasattr(flower, "create_app"):
        raise ImportError("flwr: the SuperNode's create_app is not where it was in 1.41.0")
    before = flower.create_app

    def create_app(*arguments: Any, **named: Any) -> Any:
        app = before(*arguments, **named)
        app.add_middleware(gate.Gate)
        return app

    flower.create_app = create_app


def telling() -> None:
    """Say why a server refuses this node: Flower ends without a word where it does."""
    import httpx
    from flwr.supernode.fleet_http_client import FleetHttpClient

    flower: Any = FleetHttpClient
    before = flower._unary_unary

    def call(client: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return before(client, *arguments, **named)
        except httpx.HTTPStatusError as error:
            said = error.response
            if line := refusal(said.status_code, said.headers.get("date", ""), said.text):
                print(f"cgpfl: {line}", file=sys.stderr, flush=True)
            raise

    flower._unary_unary = call


def refusal(status: int, date: str, text: str = "") -> str:
    """What a server's answer means for whoever runs this node; nothing where it is none of these."""
    if status == UNKNOWN and _code(text) == CONNECTED:
        return "the server still counts this node as connected; it is let in when that lapses, within a minute or two"
    if status == UNKNOWN:
        return "the server does not know this node's key; there: cgpfl deploy register"
    if status != 401:
        return ""
    here = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    return f"the server refused this node (401): it is {date or 'not said'} there, {here} here; clocks must agree"


def _code(text: str) -> int | None:
    """Flower's own number of an error, where its answer has one."""
    from flwr.supercore.error import FlowerError

    error = FlowerError.from_json(text)
    return None if error is None else error.code


def main() -> None:
    """Flower's own program; what it writes is its user's alone."""
    from flwr.supernode.cli.flower_supernode import flower_supernode

    os.umask(0o077)
    end_with_parent()
    guarded()
    telling()
    flower_supernode()


if __name__ == "__main__":
    main()
