"""The command line: parse, call, print. One file a family of commands."""

from __future__ import annotations

import atexit
import codecs
import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import typer

from cgpfl.errors import CgpflError, short

# isort: off
# First what comes late; then in the order of the help.
from cgpfl.cli import late
from cgpfl.cli import runs, liars, advise, report, inference, privacy, look, new, paper, battery, deploy, hosts
from cgpfl.cli.app import app, write_helps
# isort: on

__all__ = ["advise", "app", "battery", "deploy", "hosts", "inference", "late", "liars", "look", "main", "new"]
__all__ += ["paper", "privacy", "report", "runs"]

write_helps(app)

OBJECTS = 100_000
"""So many new ones until Python looks for garbage: imports and tracing make many, of which few are garbage."""
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""Click's base of command-line mistakes; newer versions of typer bring their own Click."""


SPELLED = {"–": "-", "—": "-", "−": "-", "…": "...", "×": "x", "±": "+/-", "→": "->", "≤": "<=", "≥": ">=", "‖": "||"}
SPELLED |= {"λ": "lambda", "η": "eta", "θ": "theta", "ω": "omega", "μ": "mu", "α": "alpha", "β": "beta", "²": "^2"}
"""How a terminal that knows few letters writes others."""


def main(commands: typer.Typer = app) -> None:
    """Entry point: user errors are one line and exit code 2; a reader that went away ends it quietly, as in Unix."""
    _prepare()
    try:
        code = commands(standalone_mode=False)
        sys.stdout.flush()
    except USAGE_ERROR as error:
        _fail(getattr(error, "format_message", error.__str__)())
    except CgpflError as error:
        _fail(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still to be written goes nowhere
        os._exit(128 + signal.SIGPIPE)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except RecursionError:
        _fail("something that was given is nested too deeply")
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _prepare() -> None:
    """Standard streams that take whatever is printed: closed ones nothing, those of few letters what they can."""
    gc.set_threshold(OBJECTS, 10, 10)
    atexit.register(gc.freeze)  # at the end Python looks through all that there is, and then gives it back anyway
    codecs.register_error("spelled", _spelled)
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="spelled")


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(SPELLED.get(c, "?") for c in error.object[error.start : error.end]), error.end


def _fail(message: str) -> NoReturn:
    print("cgpfl: " + " ".join(short(message).split()), file=sys.stderr, flush=True)
    if "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized():
        os._exit(2)  # at once: JAX would wait for the other processes
    sys.exit(2)
