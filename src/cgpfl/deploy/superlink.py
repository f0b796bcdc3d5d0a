"""Flower's SuperLink, with a gate and more patience: ``python -m cgpfl.deploy.superlink`` for flower-superlink.

Many nodes that upload large models at once keep SQLite's only writer busy for longer than the five seconds that Flower
waits. It then answers 500, and Flower's own programs do not ask again: an upload is lost, a node's heartbeat ends.
There is no setting for it, so the constant is replaced before it is used. Who may do what: :mod:`cgpfl.deploy.gate`.
"""

from __future__ import annotations

import os
from typing import Any

from cgpfl.deploy import gate
from cgpfl.deploy.orphans import end_with_parent

PATIENCE = 25_000
"""Milliseconds that a connection waits for the database: less than the 30 seconds after which a request is given up."""


def patient() -> None:
    """Replace Flower's busy_timeout; an error where it is no longer where it was."""
    from flwr.supercore import sql_mixin

    flower: Any = sql_mixin
    before = dict(flower.SQLITE_PRAGMAS)
    if "busy_timeout" not in before:
        raise ImportError("flwr: SQLite's busy_timeout is not where it was in 1.41.0")
    flower.SQLITE_PRAGMAS = tuple((before | {"busy_timeout": str(PATIENCE)}).items())


def main() -> None:
    """Flower's own program, with a gate and more patience; what it writes is its user's alone."""
    from flwr.superlink import cli

    os.umask(0o077)
    end_with_parent()
    patient()
    gate.install()
    cli.flower_superlink()


if __name__ == "__main__":
    main()
