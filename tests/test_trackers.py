"""Trackers, each with its tool, on this machine alone. ``make test-track`` installs the tools."""

import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cgpfl
from cgpfl.experiment.events import Event
from cgpfl.trackers import MLflow, TensorBoard, Tracker, Wandb, flat, needed, tracker
from helpers import cgpfl_process as run_cgpfl  # trackers write when their process ends

ELSEWHERE = "the trackers bring some forty packages, more than CI has time for; make test-track installs them"
ROW = {"accuracy": 0.5, "loss": float("nan"), "bytes_up": 10}
SETTINGS = {"rounds": 2, "settings": {"rate": 0.1}}
EVENTS = [
    Event("opened", values={"name": "mine", "seed": 3, "data": {"clients": 2}, "config": {"much": "more"}}),
    Event("started", "local", 0, SETTINGS),
    Event("evaluated", "local", 1, ROW),
    Event("evaluated", "local", 2, ROW | {"accuracy": 0.75}),
    Event("ended", "local", 2, {"accuracy": {"pooled": 0.75}, "diverged": None}),
    Event("started", "fedavg", 0, SETTINGS),
    Event("ended", "fedavg", 1, {"accuracy": {"pooled": None}, "diverged": 1}),
    Event("started", "cgpfl", 0, SETTINGS),
    Event("evaluated", "cgpfl", 1, ROW | {"accuracy": 0.25}),
    Event("closed", values={"state": "stopped"}),
]


def tell(callback):
    for event in EVENTS:
        callback(event)


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason=ELSEWHERE)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tell(TensorBoard(tmp_path))
    found = {}
    for label in ("local", "cgpfl"):
        read = EventAccumulator(str(tmp_path / "mine" / label), size_guidance={"tensors": 0, "scalars": 0})
        read.Reload()
        tags = read.Tags()
        found[label] = sorted(tags["scalars"] or tags["tensors"])
        if label == "local":
            steps = [(v.step, v.tensor_proto.float_val[0]) for v in read.Tensors("accuracy")]
            assert steps == [(1, 0.5), (2, 0.75)]
    assert found == {label: ["accuracy", "bytes_up"] for label in ("local", "cgpfl")}  # NaN is no scalar


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason=ELSEWHERE)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")  # what it does by itself, elsewhere
    tell(MLflow())
    client = mlflow.MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("cgpfl").experiment_id])
    found = {run.data.tags["cgpfl.method"]: run for run in runs}
    assert {m: run.info.status for m, run in found.items()} == {
        "local": "FINISHED",
        "fedavg": "FAILED",
        "cgpfl": "KILLED",
    }
    local = found["local"]
    assert local.data.params == {
        "name": "mine",
        "seed": "3",
        "data.clients": "2",
        "rounds": "2",
        "settings.rate": "0.1",
    }
    history = client.get_metric_history(local.info.run_id, "accuracy")
    assert [(v.step, v.value) for v in history] == [(1, 0.5), (2, 0.75)]
    assert "loss" not in local.data.metrics


def records(file):
    """Records of a .wandb file: a header of 7 bytes, then LevelDB's log (blocks of 32 KiB; crc, length, type)."""
    content, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if 2**15 - at % 2**15 < 7:  # a block's last bytes hold no header
            at += 2**15 - at % 2**15
            continue
        length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_wandb_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason=ELSEWHERE)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    tell(Wandb(project="cgpfl-tests"))
    from wandb.proto.wandb_internal_pb2 import Record

    def read():
        return [Record.FromString(r) for f in tmp_path.glob("wandb/offline-run-*/*.wandb") for r in records(f)]

    end = time.monotonic() + 30  # wandb's own process writes, a moment after finish() has returned
    while sum(r.HasField("exit") for r in read()) < 3:
        assert time.monotonic() < end, "the runs were not written to their end"
        time.sleep(0.1)
    found = read()
    assert {r.run.display_name for r in found if r.HasField("run")} == {"mine/cgpfl", "mine/fedavg", "mine/local"}
    histories = [r.history.item for r in found if r.HasField("history")]
    rows = [{item.key or item.nested_key[0]: item.value_json for item in items} for items in histories]
    assert sorted((int(r["_step"]), float(r["accuracy"])) for r in rows) == [(1, 0.25), (1, 0.5), (2, 0.75)]
    assert not any("loss" in row for row in rows)
    assert wandb.run is None  # all of them are finished


WRITES = {
    "tensorboard": "runs/tensorboard/*/fedavg/events.*",
    "mlflow": "mlflow.db",
    "wandb": "wandb/offline-run-*/*.wandb",
}


@pytest.mark.parametrize("name", WRITES)
def test_the_pages_command(name, tmp_path):
    """The line in docs/report.md."""
    pytest.importorskip(name, reason=ELSEWHERE)
    page = (Path(__file__).parents[1] / "docs" / "report.md").read_text()
    (line,) = re.findall(rf"^pip install 'cgpfl\[{name}\]'; +cgpfl (run --track {name}) ", page, re.MULTILINE)
    done = run_cgpfl(*line.split(), "--method", "fedavg", "--rounds", "2", cwd=tmp_path, WANDB_MODE="offline")
    assert "fedavg" in done.stdout
    assert "goes on without it" not in done.stderr
    assert list(tmp_path.glob(WRITES[name]))


def test_a_tool_that_cannot_be_used_says_so_before_the_run(monkeypatch):
    pytest.importorskip("mlflow", reason=ELSEWHERE)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nothing://there")
    with pytest.raises(cgpfl.CgpflError, match=r"^mlflow: .*; see MLFLOW_TRACKING_URI$"):
        MLflow()


def test_wandb_without_an_account_says_so_before_the_run(tmp_path):
    pytest.importorskip("wandb", reason=ELSEWHERE)
    env = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")} | {"HOME": str(tmp_path)}
    command = [sys.executable, "-m", "cgpfl.cli", "run", "--track", "wandb", "--out", tmp_path / "run"]
    pipe = subprocess.DEVNULL
    done = subprocess.run(command, env=env, stdin=pipe, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "cgpfl: wandb: No API key" in done.stderr
    assert "WANDB_MODE=offline" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_real_run_reaches_a_tracker(digits):
    told = []
    cgpfl.run("local", digits, rounds=1, callbacks=[lambda event: told.append(event.kind)])
    assert told == ["opened", "started", "evaluated", "ended", "closed"]


def test_what_is_missing_is_one_line():
    with pytest.raises(
        cgpfl.CgpflError, match=r"comet: is not installed; install it with: pip install 'cgpfl\[comet\]'"
    ):
        needed("no_such_module_of_comet", "comet")
    with pytest.raises(cgpfl.CgpflError, match="no such tracker; there are tensorboard, mlflow, wandb"):
        tracker("comet")


class Failing(Tracker):
    """A tool that takes notes, and fails in the method's third row."""

    name = "notebook"

    def __init__(self):
        super().__init__()
        self.notes = []

    def begin(self, run, method, settings):
        self.notes.append(("begin", run, method, settings["rounds"]))

    def log(self, t, numbers):
        if t == 3:
            raise OSError("disk full\nand more")
        self.notes.append(("log", t))

    def end(self, ended):
        self.notes.append(("end", ended))


def test_a_tool_that_fails_is_given_up_and_the_run_goes_on(digits, caplog):
    tool, told = Failing(), []
    result = cgpfl.run("local", digits, rounds=5, callbacks=[tool, lambda event: told.append(event.kind)])
    assert result.rounds == 5
    assert tool.notes == [("begin", "local", "local", 5), ("log", 1), ("log", 2), ("end", None)]
    expected = "notebook: disk full; the run goes on without it"
    assert [r.getMessage() for r in caplog.records if r.name == "cgpfl.trackers"] == [expected]
    assert told.count("evaluated") == 5
    cgpfl.run("local", digits, rounds=1, callbacks=[tool])  # another run, another chance
    assert [note[0] for note in tool.notes[4:]] == ["begin", "log", "end"]


def test_a_method_with_nothing_new_opens_nothing(digits, tmp_path):
    """A finished method is told again when its run is resumed."""
    cgpfl.run("local", digits, rounds=2, out=tmp_path / "run")
    tool, told = Failing(), []
    cgpfl.run("local", digits, rounds=2, out=tmp_path / "run", resume=True, callbacks=[tool, lambda e: told.append(e)])
    assert [e.kind for e in told] == ["opened", "started", "ended", "closed"]
    assert tool.notes == []


def test_a_method_that_diverges_before_its_first_evaluation_is_there(digits):
    tool = Failing()
    result = cgpfl.run(cgpfl.FedAvg(rate=1e30), digits, rounds=4, eval_every=4, callbacks=[tool])
    assert result.diverged
    assert [note[0] for note in tool.notes] == ["begin", "end"]
    assert tool.notes[1][1].values["diverged"] == result.diverged


def test_settings_are_flat():
    config = {"data": {"clients": 2, "shape": [8, 8]}, "method": [{"name": "cgpfl", "label": "mine", "prox": 1.0}]}
    expected = {"data.clients": 2, "data.shape": "[8, 8]", "mine.name": "cgpfl", "mine.prox": 1.0}
    assert flat(config) == expected
