"""Small problems whose answers can be worked out by hand, and the command line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.cli import main
from cgpfl.data import FederatedData
from cgpfl.models import Model


@dataclass(frozen=True)
class Quadratic(Model):
    """f_i(w) = (curvature/2) · mean over the client's points x of ‖w − x‖²; w starts at ``start``."""

    curvature: float = 1.0
    start: float = 0.0

    def init(self, key):
        return {"w": jnp.full(self.shape, self.start, jnp.float32)}

    def loss(self, params, batch):
        each = 0.5 * self.curvature * jnp.sum((params["w"] - batch.x) ** 2, axis=tuple(range(1, batch.x.ndim)))
        return jnp.sum(each * batch.weight) / jnp.sum(batch.weight)

    def score(self, params, batch):
        each = 0.5 * self.curvature * jnp.sum((params["w"] - batch.x) ** 2, axis=tuple(range(1, batch.x.ndim)))
        return jnp.float32(0), jnp.sum(each * batch.weight)


def points(centres, samples=2) -> FederatedData:
    """One client a row of ``centres [N, d]``, all its samples at that point: f_i is a known parabola."""
    centres = np.asarray(centres, np.float32)
    pairs = [(np.repeat(c[None], samples, 0), np.zeros(samples, int)) for c in centres]
    return FederatedData.from_clients(pairs, test=pairs)


def quadratic(data: FederatedData, **settings) -> Quadratic:
    return Quadratic(data.shape, data.classes, **settings)


def drawn(model, scale=1.0, seed=0):
    """Parameters of the model's form, each array's as large as what it is multiplied with allows.

    A model's own first ones are a program each, and mostly a larger one than that of its answers.
    """
    rng = np.random.default_rng(seed)

    def numbers(leaf):
        size = scale / max(1, leaf.size) ** 0.25
        return (size * rng.standard_normal(leaf.shape)).astype(leaf.dtype)

    return jax.tree.map(numbers, jax.eval_shape(model.init, jax.random.key(0)))


@jax.jit
def trained(method, task, message, client, data, key):
    """What a client uploads and keeps: one program for all settings that are numbers."""
    return method.train(task, message, client, data, key)


class Instead:
    """A module with some names replaced, for one of its users: ``setattr(user, "jax", Instead(jax, ...))``."""

    def __init__(self, module, **names):
        self.module = module
        self.__dict__.update(names)

    def __getattr__(self, name):
        return getattr(self.module, name)


ENVIRONMENT = dict(os.environ)  # with the XLA_FLAGS of make test, which compile quickly


@dataclass(frozen=True)
class Done:
    """What a command printed."""

    stdout: str
    stderr: str


def cgpfl(*args, cwd=None, code=0, **environment):
    """Run the command line to its end, as in a pipe; it must exit with ``code``.

    In this process, where JAX is there and has compiled before; ``cgpfl_process`` for what needs one of its own.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))

    def warn(message, category, filename, lineno, file=None, line=None):
        err.write(warnings.formatwarning(message, category, filename, lineno, line))

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["cgpfl", *map(str, args)]))
        stack.enter_context(mock.patch.object(sys, "path", list(sys.path)))
        stack.enter_context(mock.patch.dict(os.environ, {"COLUMNS": "80"} | environment))
        stack.enter_context(contextlib.chdir(cwd or "."))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.showwarning = warn  # pytest would keep them
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            main()
        except SystemExit as end:
            found = end.code
    done = Done(*(stream.buffer.getvalue().decode() for stream in (out, err) if stream.flush() is None))
    assert found == code, done.stdout + done.stderr
    return done


def cgpfl_process(*args, cwd=None, code=0, **environment):
    """The same in a process of its own: as a shell runs it, with nothing imported yet and JAX not begun."""
    command = [sys.executable, "-m", "cgpfl.cli", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, env=ENVIRONMENT | environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def start(*args, cwd=None, **environment):
    """Start the command line and return the process."""
    command = [sys.executable, "-m", "cgpfl.cli", *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=cwd, env=ENVIRONMENT | environment)


def summary_without_times(folder):
    summary = json.loads((folder / "summary.json").read_text())
    for method in summary["methods"].values():
        assert method.pop("seconds") >= 0
    return summary
