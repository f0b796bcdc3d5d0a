"""The command that writes a method of one's own to begin with."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Annotated

import typer

from cgpfl.cli.app import app
from cgpfl.errors import CgpflError

new_app = typer.Typer(help="Begin a method of your own.", no_args_is_help=True)
app.add_typer(new_app, name="new")

METHOD = Template('''"""$title: say here what it does, and where it is published.

    send        w to every client
    client i    w_i ← w;  R times: w_i ← w_i − η(∇f_i(w_i; minibatch) + μ(w_i − w))
    server      w ← the mean of w_i by samples
    personal    w

As it stands this is FedProx: change it to yours. Use it by its path, wherever a method is named:

    cgpfl compare --methods $module:$title,ditto
    cgpfl run --method $module:$title --set $label.prox=0.3
"""

from __future__ import annotations

import jax
from cgpfl import Method, algorithm, hyper
from cgpfl.algorithms.steps import sgd


@algorithm  # hyper-parameters are JAX's: a program compiled for one μ serves every μ, and sweeps are one program
class $title(Method):
    """$title in a line, for `cgpfl methods $module:$title`."""

    name = "$label"
    citation = "yours"
    when = "When to use it."

    # Hyper-parameters: default, meaning, allowed values, and the range that a search looks at.
    prox: float = hyper(0.1, "μ: pull towards the global model", low=0, tune=(0.001, 1.0))
    rate: float = hyper(0.1, "η: rate of a client's steps", above=0, tune=(0.01, 1.0))
    local_rounds: int = hyper(10, "R: minibatch steps a client takes in a round", low=1)
    batch_size: int = hyper(20, "samples in a minibatch; 0 = all of the client's", low=0)

    # What the server knows before the first round: any tree of arrays.
    def init_server(self, task, key):
        return task.initial

    # What a client keeps and nobody else sees. Here nothing; a personal model would be `task.initial`.
    def init_client(self, task, key):
        return ()

    # What one client is sent.
    def send(self, server, client_id):
        return server

    # One round on one client → (what it uploads, what it keeps). All randomness comes from `key`.
    def train(self, task, message, client, data, key):
        def gradient(w, batch):
            g = task.grad(w, batch)
            return jax.tree.map(lambda g, w, sent: g + self.prox * (w - sent), g, w, message)

        steps, size = self.local_rounds, self.batch_size
        w = sgd(task, message, data, key, rate=self.rate, steps=steps, batch_size=size, gradient=gradient)
        return w, ()

    # The server's step. `uploads` are stacked, one a client of the cohort; means are the cohort's business, so that
    # robust ones work with your method, too. `fallback`: where nobody answered.
    def aggregate(self, server, uploads, cohort, key):
        return cohort.mean(uploads, fallback=server)

    # The model that the client uses, and the shared one that it was sent (None: there is none).
    def personal(self, task, message, client, data, key):
        return message

    def shared(self, message):
        return message

    # What an upload has moved away from: what clips, noises or compresses updates measures against.
    def anchor(self, message, upload):
        return message

    # Gradients that a client evaluates in a round, for the cost.
    def gradients(self):
        return self.local_rounds
''')

TEST = Template('''"""$title keeps the contract, and does what its equations say."""

import cgpfl
import pytest
from cgpfl.testing import check_algorithm
from $module import $title


def test_contract():
    check_algorithm($title())


def test_without_a_pull_it_is_fedavg():
    data = cgpfl.make_data("digits", "iid", clients=4, share=0.2)
    ours = cgpfl.run($title(prox=0.0), data, rounds=3)
    fedavg = cgpfl.run("fedavg", data, rounds=3)
    assert ours.accuracy == pytest.approx(fedavg.accuracy)
''')


@new_app.command("method")
def method(
    name: Annotated[str, typer.Argument(help="Its class: MyMethod is written to my_method.py.")],
    folder: Annotated[Path, typer.Option(help="Where the two files go.")] = Path(),
) -> None:
    """Write a commented method of your own, and its test, to begin with.

    cgpfl new method MyMethod
    """
    if not name.isidentifier() or name.startswith("_"):
        raise CgpflError(f"new method {name!r}: must be the name of a Python class, for instance MyMethod")
    title = name[0].upper() + name[1:]
    module = "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(title))
    words = {"title": title, "module": module, "label": module.replace("_", "-")}
    files = {folder / f"{module}.py": METHOD, folder / f"test_{module}.py": TEST}
    for file in files:
        if file.exists():
            raise CgpflError(f"new method {name}: {file} exists; choose another name")
    if not folder.is_dir():
        raise CgpflError(f"new method {name}: folder {folder} does not exist")
    for file, text in files.items():
        file.write_text(text.substitute(words), encoding="utf-8")
        typer.echo(file)
    typer.echo(
        f"\nUse it: cgpfl compare --methods {module}:{title},ditto\nTest it: pytest {folder / f'test_{module}.py'}"
    )
