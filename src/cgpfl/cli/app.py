"""The command line's root, and what several commands share."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from cgpfl.errors import CgpflError, NeedsError, short

BEGAN = time.monotonic()
"""When the command was given, or nearly: this is imported first."""
EPILOG = """
[dim]cgpfl run[/dim]

[dim]cgpfl compare --methods ditto,ifca,cgpfl-heur --seeds 5[/dim]

[dim]cgpfl watch runs/digits-rotation-1[/dim]

Exit codes: 0 done; 1 every method diverged; 2 bad input, or a file that could not be written, one line says what; 130
stopped by Ctrl-C, can be resumed.
"""

app = typer.Typer(
    name="cgpfl",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=EPILOG,
)


def _say_version(asked: bool) -> None:
    if asked:
        from cgpfl import __version__

        typer.echo(f"cgpfl {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Personalized federated learning with contextualized generalization."""


def write_helps(commands: typer.Typer) -> None:
    """Give every command its docstring as help, a paragraph a line: how wide the terminal is, is not known there."""
    for command in commands.registered_commands:
        text = inspect.cleandoc(getattr(command.callback, "__doc__", None) or "")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            write_helps(group.typer_instance)


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Completion of an option that takes one of some words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


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


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print a line for every evaluated round.")]


def go(start: Any, folder: Path, *, quiet: bool = False, verbose: bool = False, draws: bool = False) -> None:
    """Run with progress on the terminal, then the table and the report; Ctrl-C leaves a run that can be resumed.

    ``draws``: ``start`` takes a function that draws the figures, beside all that is left to do; they are there at the
    end.
    """
    from cgpfl.cli.terminal import progress, show
    from cgpfl.engine.drive import Stopped
    from cgpfl.engine.kept import keep_programs
    from cgpfl.engine.processes import is_first
    from cgpfl.report import pictures

    if quiet and verbose:
        raise CgpflError("--quiet, --verbose: choose one")
    keep_programs()
    with pictures.Painters() if draws and is_first() else nullcontext() as painters:
        try:
            with progress(BEGAN, quiet=quiet or verbose) as tell:
                more = {} if painters is None else {"draw": painters.draw}
                finished = start(_then(tell, painters) if is_first() else None, **more)
        except Stopped:
            if is_first():
                typer.echo(f"Stopped; what is finished is saved. Continue with: cgpfl resume {folder}", err=True)
            raise typer.Exit(130) from None
        fine = True
        if is_first():
            fine = show(finished, quiet=quiet)
            page(folder, quiet)
    if not fine:
        raise typer.Exit(1)


def _then(tell: Any, painters: Any) -> Any:
    """Tell progress, and start the painters with the first of it: before, the first round is waited for."""
    if painters is None:
        return tell

    def both(progress: Any) -> None:
        tell(progress)
        painters.start()

    return both


def page(folder: Path, quiet: bool) -> None:
    """Write a run's report into its folder and say where it is; without Plotly, say how to get one."""
    from cgpfl.report.page import write_report

    try:
        written = write_report([folder], folder / "report.html")
    except NeedsError as error:
        typer.echo(str(error), err=True)
        return
    except Exception as error:  # the run is done and saved, whatever became of its page
        said = short(" ".join(str(error).split()))
        known = said if isinstance(error, CgpflError) else f"could not be made ({type(error).__name__}: {said})"
        typer.echo(f"report: {known}; {folder} is complete", err=True)
        raise typer.Exit(2) from error
    if not quiet:
        typer.echo(f"report: {written}")
