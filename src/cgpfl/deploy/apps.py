"""Flower's apps of an experiment: what an app's two modules load.

A node is told by its operator, in ``--node-config``, which client it is (``client``), where its data is (``data``)
and where private states are kept (``state``). The server is told where its run folder is in the run's ``out``.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cgpfl.engine.flower.apps import client_app, server_app
from cgpfl.engine.flower.call import call
from cgpfl.engine.flower.seal import Verify, verifier
from cgpfl.errors import CgpflError

if TYPE_CHECKING:
    import numpy as np
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

LOADER = "cgpfl.deploy.node:load_node"
"""What makes a node in its worker."""


def errand(app: Path, context: Context, order: dict[str, Any]) -> dict[str, Any]:
    """An order as the worker gets it: what is asked, and of which node."""
    own: dict[str, Any] = {name: context.node_config.get(name, "") for name in ("client", "data", "state")}
    for name, value in own.items():
        if value == "":
            raise CgpflError(f"node config: has no {name}; start the node by: cgpfl deploy node")
    asked = {name: order[name] for name in ("token", "client", "base", "train", "evaluate")}
    return {"order": asked, "node": {"app": str(app), "label": order["label"], "form": order["form"], **own}}


def client(app: Path) -> ClientApp:
    """The ClientApp of the app in the folder ``app``: it hands orders to the node's worker."""

    def work(
        context: Context, order: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        facts = errand(app, context, order)
        return call(Path(facts["node"]["state"]), LOADER, facts, arrays, float(order["seconds"]))

    return client_app(work, lambda: server_of(app))


def server_of(app: Path) -> Verify:
    """What tells the server's orders from others', by the key in the app's experiment."""
    file = app / "experiment.toml"
    public = tomllib.loads(file.read_text(encoding="utf-8")).get("deploy", {}).get("orders", "")
    return verifier(str(public), f"{file}: deploy: orders")


def server(app: Path) -> ServerApp:
    """The ServerApp of the app in the folder ``app``."""

    def main(grid: Grid, context: Context) -> None:
        from cgpfl.deploy.secrets import keys_of
        from cgpfl.deploy.server import run_server

        run_server(app, grid, Path(str(context.run_config["out"])), keys_of(app))

    return server_app(main)
