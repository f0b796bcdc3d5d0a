"""The server's run: every method in turn, a checkpoint after each round, the run folder of a simulation at the end."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from cgpfl.deploy.agreement import ASKED, EXPERIMENT, FORM, Agreement, check_fits, read_agreement
from cgpfl.deploy.lock import alone
from cgpfl.deploy.remote import RemoteData, RemoteEngine
from cgpfl.deploy.secrets import Ledger, keys_of, membership, orders_of
from cgpfl.deploy.survey import ask_form, described
from cgpfl.engine.flower.link import Link
from cgpfl.engine.flower.orders import called, cleaned
from cgpfl.engine.flower.rules import RoundOutcome, Rules, ServerState
from cgpfl.engine.flower.server import Coordinator
from cgpfl.engine.privacy import protected_for
from cgpfl.engine.round import State
from cgpfl.errors import CgpflError
from cgpfl.experiment import artifacts
from cgpfl.experiment import events as stream
from cgpfl.experiment.checkpoint import MethodFolder, check_same
from cgpfl.experiment.config import Experiment, config_of, from_dict, to_toml
from cgpfl.experiment.folder import RunFolder
from cgpfl.experiment.records import Records, scores
from cgpfl.experiment.result import Result
from cgpfl.experiment.run import fingerprint
from cgpfl.files import save_arrays, write
from cgpfl.hyperparameters import parameters
from cgpfl.metrics import measured
from cgpfl.tree import nbytes

SLACK = 1 << 20
"""Bytes of an answer beside its upload's numbers: names, headers, measures."""
LINE = 1000
"""Characters of a line for people."""


class Events:
    """What the server says, among the events of its run; who follows the run reads them."""

    def __init__(self, path: Path) -> None:
        self._file = stream.JsonLines(path)

    def tell(self, kind: str, **facts: Any) -> None:
        self._file(stream.Event(kind, values=facts))

    def say(self, line: str) -> None:
        """A line for people; some of it may be nodes' words."""
        line = cleaned(line, LINE)
        print(line, flush=True)
        self.tell("say", line=line)


def run_server(app: Path, grid: Any, out: Path, keys: Path | None = None) -> None:
    """Run every method of the app's experiment on its nodes; go on where the run folder ``out`` ends.

    ``keys``: the server's folder of keys (default: that of the app).
    """
    agreed, keys = read_agreement(app / EXPERIMENT), keys or keys_of(app)
    out.mkdir(parents=True, exist_ok=True)
    with alone(out):
        events = Events(out / stream.EVENTS)
        try:
            _run_all(agreed, grid, RunFolder(out), events, keys)
        except Exception as error:  # whoever follows must not wait in vain
            known = isinstance(error, CgpflError)
            why = str(error) if known else f"the server failed: {type(error).__name__}: {error}"
            events.tell("stopped", message=cleaned(why, LINE))
            raise


def _run_all(agreed: Agreement, grid: Any, folder: RunFolder, events: Events, keys: Path) -> None:
    if agreed.asks and folder.labels():  # where the run goes on: with the form that nodes gave when it began
        agreed = replace(agreed, given=config_of(folder.path).get(FORM))
    experiment, out = check(agreed), folder.path
    sign = orders_of(keys, agreed.deploy.orders, str(agreed.where))
    member, ledger = membership(grid, keys), Ledger(out)
    events.tell("waiting", clients=agreed.deploy.clients)
    for label, method in _methods(agreed, experiment).items():
        if folder.method(label).exists():  # before anything is written
            check_same(
                folder.method(label).path, folder.method(label).facts()["run"], _made(agreed, experiment, method)
            )
    _note(agreed, out)
    link = Link(grid, agreed.deploy.clients, events.say, agreed.deploy.names, sign, member)
    there = link.wait(agreed.deploy.join, agreed.deploy.minimum)
    events.say(f"{len(there)} of {agreed.deploy.clients} nodes are here")
    if agreed.asks:
        agreed = agreed.with_form(ask_form(agreed, link, events.say))
        _note(agreed, out)
        events.say(f"agreed on {described(agreed.form)}")
    if agreed.deploy.form == ASKED:
        link.form = json.dumps(agreed.given)
    opened = stream.opening(out.name, experiment, RemoteData.of(agreed), agreed.model(), agreed.values)
    for note in opened["notes"]:
        events.say(note)
    counted: dict[int, tuple[int, int]] = {}
    with stream.told([stream.JsonLines(out / stream.EVENTS)], opened) as callbacks:
        results = [
            _run(agreed, experiment, label, folder, link, events, callbacks, ledger, counted)
            for label in experiment.methods()
        ]
        missing = [called(agreed.deploy.names, int(i)) for i in np.flatnonzero(results[-1].data.test.counts == 0)]
        if missing:
            events.say(f"never heard of: {', '.join(missing)}; the table is without them")
        for result in results:
            folder.save_models(result)
        folder.finish([result.outcome() for result in results])
    events.tell("finished")


def _note(agreed: Agreement, out: Path) -> None:
    """The whole experiment, as far as it is known, in the run folder."""
    form = {} if agreed.given is None else {FORM: agreed.given}
    write(out / "config.toml", to_toml({**agreed.values, **form, "deploy": parameters(asdict(agreed.deploy))}).encode())


def _made(agreed: Agreement, experiment: Experiment, method: Any) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that continues it."""
    deploy = parameters(asdict(agreed.deploy))
    own = {f"deploy.{k}": deploy[k] for k in ("clients", "shape", "classes", "scale", "shift", "test")}
    own |= {} if agreed.given is None else {"deploy.form": agreed.given}
    if deploy["form"] == ASKED:
        own["deploy.reading"] = parameters(agreed.reading.chosen())
    return fingerprint(method, agreed.model(), experiment) | own


def check(agreed: Agreement) -> Experiment:
    """The experiment, if it can be deployed."""
    experiment = from_dict(agreed.values, str(agreed.where))
    check_fits(experiment, agreed.deploy, str(agreed.where))
    if not agreed.asks:
        agreed.model()
    return experiment


def _methods(agreed: Agreement, experiment: Experiment) -> dict[str, Any]:
    """The methods, as far as privacy is known without the nodes' counts: each adds the noise that its own needs."""
    ready = experiment.methods().items()
    return {label: protected_for(method, experiment, agreed.deploy.clients, [1]) for label, method in ready}


def _run(
    agreed: Agreement,
    experiment: Experiment,
    label: str,
    folder: RunFolder,
    link: Link,
    events: Events,
    callbacks: tuple[stream.Callback, ...],
    ledger: Ledger,
    counted: dict[int, tuple[int, int]],
) -> Result:
    deploy, method = agreed.deploy, _methods(agreed, experiment)[label]
    engine = experiment.engine()
    server = Coordinator(
        method,
        agreed.model(),
        clients=deploy.clients,
        shape=agreed.form.shape,
        rounds=experiment.rounds,
        seed=experiment.seed,
        eval_every=engine["eval_every"],
        participation=experiment.participation,
        metrics=measured(experiment.metrics, agreed.model().objective),
        rules=Rules(deploy.deadline, deploy.minimum, deploy.repeats, deploy.largest, deploy.most),
        tell=events.say,
        names=deploy.names,
        counted=counted,
    )
    link.most = nbytes(server.upload_like) + SLACK
    place, link.label = folder.method(label), label
    what = _made(agreed, experiment, method)
    state, records, before = _begin(server, place, ledger.token(label))
    began, saved = time.perf_counter() - before, len(records.rounds)
    handle: Any = RemoteEngine(server)
    teller = stream.Teller(callbacks, label, [(method, RemoteData.of(agreed, state))], handle)
    teller.started(state.t, experiment.rounds)

    def save() -> None:
        nonlocal saved
        facts = {
            "round": state.t,
            "records": len(records.rounds),
            "seconds": time.perf_counter() - began,
            "run": what,
            "deployed": {
                "heard": state.heard.tolist(),
                "samples": state.samples.tolist(),
                "tests": state.tests.tolist(),
            },
        }
        ledger.note(label, state.token)
        tests = {"test": state.tests}  # for who looks meanwhile
        save_arrays(folder.path / "federation.safetensors", tests, artifacts.FEDERATION)
        new = Records(records.rounds[saved:], {k: v[saved:] for k, v in records.values.items()})
        place.save(_whole(state), facts, new)
        saved = len(records.rounds)

    def note(happened: RoundOutcome, round_: int) -> None:
        if happened.record is not None:
            records.add([round_], {k: v[None] for k, v in happened.record.items()})
        if happened.record is not None and np.isfinite(happened.record["correct"]).any():  # private nodes tell nothing
            teller.runs = [(method, RemoteData.of(agreed, happened.state))]
            teller.evaluated([records], [round_], time.perf_counter() - began)
        for client, why in happened.refused.items():
            events.say(f"{label}, round {state.t + 1}: {link.called(client)} refused: {why}")
        for client in happened.anew:
            events.say(f"{label}, round {state.t + 1}: {link.called(client)} had lost its state and begins anew")

    def follow(happened: RoundOutcome) -> None:
        """Keep and tell what happened."""
        nonlocal state
        note(happened, state.t)
        state = happened.state
        save()
        accuracy = None
        if records.rounds and np.isfinite(records.values["correct"][-1]).any():
            accuracy = scores(records.values["correct"][-1], state.tests)["pooled"]
        seconds = round(time.perf_counter() - began, 3)
        facts = {"label": label, "round": state.t, "rounds": experiment.rounds, "answered": list(happened.answered)}
        events.tell("progress", **facts, accuracy=accuracy, seconds=seconds)

    while state.t < experiment.rounds:
        follow(server.step(state, link))
    if not records.rounds or records.rounds[-1] < experiment.rounds:
        follow(server.evaluate(state, link))
    facts = (experiment.rounds, time.perf_counter() - began, experiment.seed)
    result = Result(label, method, RemoteData.of(agreed, state), agreed.model(), handle, _whole(state), records, *facts)
    teller.ended(result.rounds, result.summary)
    return result


def _whole(state: ServerState) -> State:
    """The server's state as a simulation's checkpoint has it, without the clients'."""
    return State(state.server, (), jnp.int32(state.answers), jnp.int32(-1))


def _begin(server: Coordinator, place: MethodFolder, token: str | None) -> tuple[ServerState, Records, float]:
    start = server.start()
    if not place.exists():
        return start, Records(), 0.0
    if token is None:
        raise CgpflError(f"{place.path}: its run's server.json is gone: nodes do not know the run; start a new one")
    state, facts, records = place.load(State(server.shapes(), (), jnp.int32(0), jnp.int32(0)))
    known = facts["deployed"]
    counts = {name: np.asarray(known[name], np.int32) for name in ("heard", "samples", "tests")}
    served = replace(start, server=state.server, t=facts["round"], answers=int(state.answers), token=token, **counts)
    return served, records, facts["seconds"]
