"""Flower's SuperNode, for its own user: ``python -m cgpfl.deploy.supernode`` in the place of flower-supernode.

Flower's processes on a node talk to each other over plain HTTP on loopback and ask nobody who it is: other users of the
machine could take a node's tasks, or fake them.
"""

from __future__ import annotations

import os
from typing import Any

from cgpfl.deploy import gate
from cgpfl.deploy.orphans import end_with_parent


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


def main() -> None:
    """Flower's own program; what it writes is its user's alone."""
    from flwr.supernode.cli.flower_supernode import flower_supernode

    os.umask(0o077)
    end_with_parent()
    guarded()
    flower_supernode()


if __name__ == "__main__":
    main()
