"""Flower's apps of an experiment: what an app's two modules load.

A node is told by its operator, in ``--node-config``, which client it is (``client``), where its data is (``data``)
and where private states are kept (``state``). The server is told where its run folder is in the run's ``out``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cgpfl.engine.flower.apps import client_app, server_app
from cgpfl.errors import CgpflError

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

    from cgpfl.engine.flower.node import Node


def client(app: Path) -> ClientApp:
    """The ClientApp of the app in the folder ``app``."""

    def node_of(context: Context, label: str) -> Node:
        from cgpfl.data.local import load_local
        from cgpfl.deploy.plan import EXPERIMENT, read_plan
        from cgpfl.engine.flower.node import Node

        plan = read_plan(app / EXPERIMENT)
        own = {name: str(context.node_config.get(name, "")) for name in ("client", "data", "state")}
        for name, value in own.items():
            if not value:
                raise CgpflError(f"node config: has no {name}; start the node by: cgpfl deploy node")
        deploy = plan.deploy
        data = load_local(
            Path(own["data"]),
            deploy.shape,
            deploy.classes,
            test=deploy.test,
            seed=plan.seed,
            scale=deploy.scale,
            shift=deploy.shift,
        )
        method, model = plan.method(label), plan.model()
        return Node(method, model, data, int(own["client"]), deploy.clients, plan.seed, Path(own["state"]))

    return client_app(node_of)


def server(app: Path) -> ServerApp:
    """The ServerApp of the app in the folder ``app``."""

    def main(grid: Grid, context: Context) -> None:
        from cgpfl.deploy.serve import serve

        serve(app, grid, Path(str(context.run_config["out"])))

    return server_app(main)
