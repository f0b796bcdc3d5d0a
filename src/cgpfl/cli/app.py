"""The command line's root, and what several commands share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from cgpfl.errors import CgpflError

BEGAN = time.monotonic()
"""When the command was given, or nearly: this is imported first."""

app = typer.Typer(
    name="cgpfl",
    help="Personalized federated learning with contextualized generalization.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def use(device: str) -> None:
    """Tell JAX which device to use, before it looks for one."""
    if device not in ("auto", "cpu", "gpu"):
        raise CgpflError(f"--device {device}: must be auto, cpu or gpu")
    if device == "auto":
        return
    import jax

    jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # JAX built for CPUs alone fails an assertion
        raise CgpflError(f"--device {device}: JAX finds none; install JAX for it, or use --device auto") from error


def go(start: Any, folder: Path) -> None:
    """Run with progress on the terminal, then the table; Ctrl-C leaves a run that can be resumed."""
    from cgpfl.engine.processes import is_first
    from cgpfl.experiment.run import Stopped
    from cgpfl.terminal import progress, show

    try:
        with progress(BEGAN) as tell:
            finished = start(tell if is_first() else None)
    except Stopped:
        if is_first():
            typer.echo(f"Stopped; what is finished is saved. Continue with: cgpfl resume {folder}", err=True)
        raise typer.Exit(130) from None
    if is_first() and not show(finished):
        raise typer.Exit(1)
