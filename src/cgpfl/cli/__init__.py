"""The command line: parse, call, print. One file a family of commands."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from cgpfl.errors import CgpflError

# isort: off
# In the order of the help.
from cgpfl.cli import runs, advise, report, inference, look, new, paper, battery, deploy, hosts
from cgpfl.cli.app import app
# isort: on

__all__ = ["advise", "app", "battery", "deploy", "hosts", "inference", "look", "main", "new", "paper", "report", "runs"]

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""Click's base of command-line mistakes; newer versions of typer bring their own Click."""


def main(commands: typer.Typer = app) -> None:
    """Entry point: user errors are one line and exit code 2."""
    try:
        code = commands(standalone_mode=False)
    except USAGE_ERROR as error:
        _fail(getattr(error, "format_message", error.__str__)())
    except CgpflError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> NoReturn:
    print("cgpfl: " + " ".join(message.split()), file=sys.stderr, flush=True)
    if "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized():
        os._exit(2)  # at once: JAX would wait for the other processes
    sys.exit(2)
