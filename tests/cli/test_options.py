"""The settings are declared once: options, TOML and Python know the same ones."""

import inspect

import pytest
from typer.main import get_command

from cgpfl.algorithms import hyper_parameters
from cgpfl.algorithms.wrapper import standing_alone
from cgpfl.cli import app
from cgpfl.cli.options import SETTINGS, SEVERAL
from cgpfl.cli.runs import nested
from cgpfl.engine import Settings
from cgpfl.experiment.config import from_dict


def test_options_are_the_settings():
    """Each has one, with its meaning and of its kind."""
    fields = hyper_parameters(Settings)
    assert list(SETTINGS) == list(fields)
    for name, (kind, meaning) in SETTINGS.items():
        about = fields[name].metadata
        assert meaning == about["meaning"]
        assert kind is (str if about["words"] or about["kind"] not in (int, float) else about["kind"]), name
    lists = {n for n, f in fields.items() if f.metadata.get("many") or f.metadata["labels"]}
    assert {name for name, said in SEVERAL.items() if said == "as a,b"} == lists


@pytest.mark.parametrize("command", ["run", "compare", "deploy init", "deploy up"])
def test_every_command_of_experiments_has_them(command):
    found = get_command(app)
    for word in command.split():
        found = found.commands[word]
    assert set(SETTINGS) <= {p.name for p in found.params}


def test_no_command_is_a_list_of_parameters():
    from cgpfl.cli import deploy, runs

    for command in (runs.run, runs.compare, deploy.init, deploy.up):
        (own,) = [c.cell_contents for c in command.__closure__ if inspect.isfunction(c.cell_contents)]
        assert len(inspect.signature(own).parameters) <= 12


def test_toml_knows_them_all():
    values = {name: getattr(Settings(), name) for name in SETTINGS}
    values |= {"sampler": "by-size", "outgoing": ["clip"], "mean": "weighted", "metrics": ["accuracy"]}
    experiment = from_dict(values, "test")
    assert (experiment.sampler.name, [o.name for o in experiment.outgoing]) == ("by-size", ["clip"])


@pytest.mark.parametrize("command", ["run", "compare"])
def test_methods_are_spelled_either_way(command):
    """``--method`` and ``--methods``, with commas or one by one; all is every one."""
    option = next(p for p in get_command(app).commands[command].params if p.name == "method")
    assert set(option.opts) == {"--method", "--methods"}
    listed = nested(None, {}, ["local, fedavg", "ditto"], (), None)["method"]
    assert [m["name"] for m in listed] == ["local", "fedavg", "ditto"]
    assert len(nested(None, {}, ["all"], (), None)["method"]) == len(standing_alone())
