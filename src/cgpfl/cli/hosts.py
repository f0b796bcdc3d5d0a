"""``cgpfl deploy``, what runs on real hosts: keys, the SuperLink, a node, and a node's own model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cgpfl.cli.deploy import App, deploy_app, say
from cgpfl.errors import CgpflError


@deploy_app.command()
def keys(
    folder: App,
    host: Annotated[str, typer.Option(help="The server's name or address, as nodes see it.")] = "localhost",
    nodes: Annotated[int | None, typer.Option(help="Keys for this many nodes (default: the app's).")] = None,
) -> None:
    """Make the keys that are missing: authority, server, a key for each node."""
    from cgpfl.deploy.agreement import EXPERIMENT, read_agreement
    from cgpfl.deploy.certificates import write_keys
    from cgpfl.deploy.layout import KEYS, sign_orders

    n = nodes or read_agreement(folder / EXPERIMENT).deploy.clients
    new = write_keys(folder / KEYS, host, n)
    signed = sign_orders(folder)
    new += [signed] if signed else []
    typer.echo(f"{len(new)} new files in {folder / KEYS}; secret: *.key")


@deploy_app.command()
def superlink(
    folder: App,
    port: Annotated[int, typer.Option(help="Port, on loopback: nodes come through nginx.")] = 9444,
) -> None:
    """Run the SuperLink of an app, on loopback, until it is stopped."""
    import os

    from cgpfl.deploy.layout import KEYS
    from cgpfl.deploy.preflight import check_port
    from cgpfl.deploy.processes import connect
    from cgpfl.deploy.processes import superlink as make

    place = folder.resolve()
    process = make(place / KEYS, place / ".flwr", port)
    check_port(port)
    connect(place / ".flwr", f"127.0.0.1:{port}", place / KEYS / "ca.pem")
    os.execve(process.command[0], process.command, process.env)


@deploy_app.command()
def register(
    folder: App,
    key: Annotated[Path | None, typer.Option(help="A node's public key (default: all in keys/).")] = None,
    client: Annotated[str | None, typer.Option(help="Whose it is, with --key: a client's number or name.")] = None,
) -> None:
    """Make nodes' public keys known to the running SuperLink, each for one client: node-3.pub is client 3's.

    A client's new key takes the place of its old one.
    """
    from cgpfl.deploy.agreement import EXPERIMENT, read_agreement
    from cgpfl.deploy.layout import KEYS
    from cgpfl.deploy.processes import register as add
    from cgpfl.deploy.secrets import bind

    agreed = read_agreement(folder / EXPERIMENT)
    if (key is None) != (client is None):
        raise CgpflError("--key, --client: go together")
    if key is not None and client is not None:
        found = {agreed.client(client): key}
    else:
        there = {i: folder / KEYS / f"node-{i}.pub" for i in range(agreed.deploy.clients)}
        found = {i: path for i, path in there.items() if path.exists()}
    if not found:
        raise CgpflError(f"{folder / KEYS}: has no node-*.pub; make keys by: cgpfl deploy keys {folder}")
    for i, path in found.items():
        add(folder.resolve() / ".flwr", path)
        bind(folder / KEYS, i, path)
        typer.echo(f"registered {path.name} as client {i}")


@deploy_app.command()
def node(
    client: Annotated[str, typer.Option(help="Which client this is: 0, 1, ..., or its name.")],
    server: Annotated[str, typer.Option(help="HOST:PORT of the server.")],
    ca: Annotated[Path, typer.Option(help="The federation's ca.pem.")],
    key: Annotated[Path, typer.Option(help="This node's own key.")],
    data: Annotated[Path, typer.Option(help="Its samples: a folder, .npz, .csv or .parquet; they stay here.")],
    state: Annotated[Path, typer.Option(help="Folder for the client's private states.")],
    port: Annotated[int, typer.Option(help="A port of its own on this machine's loopback.")] = 9094,
) -> None:
    """Run the SuperNode of one client, until it is stopped."""
    import os

    from cgpfl.deploy.preflight import check_data, check_key, check_port, check_server
    from cgpfl.deploy.processes import own_folder, supernode

    place = state.resolve()
    check_data(data)
    check_key(key)
    check_port(port)
    if trouble := check_server(server, ca):
        say(trouble)
    own_folder(place)
    process = supernode(
        client=client, server=server, ca=ca, key=key, data=data, state=place / "states", home=place / "flwr", port=port
    )
    os.execve(process.command[0], process.command, process.env)


@deploy_app.command("export-node")
def export_node(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="What cgpfl deploy node was given as --state.")],
    data: Annotated[Path, typer.Option(help="The node's own data, as given to cgpfl deploy node.")],
    method: Annotated[str | None, typer.Option("--method", help="Which method (default: the only one).")] = None,
    formats: Annotated[str, typer.Option("--format", help="safetensors, or safetensors,onnx.")] = "safetensors",
    out: Annotated[Path | None, typer.Option(help="Folder to create (default: exports/node-METHOD).")] = None,
) -> None:
    """Write a node's own model as a folder, on the node: it is made there and stays there.

    [dim]cgpfl deploy export-node state --data data --method cgpfl-heur[/dim]
    """
    from cgpfl.cli.inference import as_formats, show_export
    from cgpfl.deploy.personal import personal_model
    from cgpfl.inference.folder import check_out, write_export
    from cgpfl.inference.score import scored

    wanted = as_formats(formats)
    if out is not None:
        check_out(out)
    found = personal_model(state, data, method)
    label = found.published.label
    rows = found.data.rows(0, "test")
    x, y = found.data.x[rows], found.data.y[rows]
    shared = None if found.shared is None else scored(found.shared, x, y)
    folder = out or Path("exports") / f"node-{label}"
    score = scored(found.model, x, y)
    written = write_export(folder, found.model, found.published, found.facts, score, shared, samples=x, formats=wanted)
    who = found.facts.get("name", found.facts["client"])
    show_export(f"{label}, client {who}, round {found.published.rounds}", written)
