"""A private run on nodes: what the server has of them in the end, and what it says. Nodes are in this process."""

import json
import re

import pytest
from test_faults import make_app
from test_server import federation

from cgpfl.deploy.agreement import Deployment, check_fits
from cgpfl.deploy.check import compare
from cgpfl.deploy.server import run_server
from cgpfl.errors import CgpflError
from cgpfl.experiment.config import from_dict
from cgpfl.experiment.folder import RunFolder
from cgpfl.report.page import write_report

pytest.importorskip("dp_accounting")


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    made = make_app(tmp_path_factory.mktemp("private") / "app", [{"name": "fedavg"}], rounds=3, join=0.1, repeats=0)
    file = made / "experiment.toml"
    file.write_text("epsilon = 8.0\n" + file.read_text())
    return made


def test_a_private_run_knows_neither_counts_nor_scores(app, tmp_path):
    out = tmp_path / "run"
    run_server(app, federation(app, tmp_path), out)
    found = json.loads((out / "summary.json").read_text())["methods"]["fedavg"]
    assert found["accuracy"] is None
    assert found["privacy"]["epsilon"] == pytest.approx(8.0, rel=1e-3)
    assert found["privacy"]["uploads"] == 3
    assert RunFolder(out).method("fedavg").facts()["deployed"]["samples"] == [1, 1, 1, 1]
    assert "privacy of clients against the server" in write_report([out], out / "report.html").read_text()
    with pytest.raises(CgpflError, match="nodes' noise is their own"):
        compare(app, out)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trusted": "server"}, "trusted = server: needs everybody's noise; set deploy.minimum = 4"),
        ({"privacy": "sample"}, "cgpfl-auto: privacy = sample: nodes that do not answer make its warm-up longer"),
    ],
)
def test_what_would_tell_more_is_refused(settings, message):
    values = {"epsilon": 8.0, "rounds": 30, "method": [{"name": "cgpfl-auto"}], **settings}
    with pytest.raises(CgpflError, match=re.escape(message)):
        check_fits(from_dict(values, "test"), Deployment(clients=4, shape=(8, 8)), "test")


def test_noise_of_the_server_is_for_simulations():
    values = {"epsilon": 8.0, "rounds": 30, "method": [{"name": "cgpfl"}], "trusted": "server"}
    with pytest.raises(CgpflError, match="cgpfl: trusted = server: its noise would be the server's; set trusted"):
        check_fits(from_dict(values, "test"), Deployment(clients=4, minimum=4, shape=(8, 8)), "test")


def test_statistics_of_tables_have_no_noise():
    with pytest.raises(CgpflError, match="nodes' statistics have no noise"):
        check_fits(from_dict({"epsilon": 8.0}, "test"), Deployment(clients=4, form="nodes"), "test")
