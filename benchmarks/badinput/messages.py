"""Messages that are malformed: of a node to the server, and to a node. The run goes on, and the others' bits stay."""

from __future__ import annotations

import random
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from cgpfl.algorithms import get_method
from cgpfl.data import make_data
from cgpfl.engine.flower.apps import client_app
from cgpfl.engine.flower.link import Link
from cgpfl.engine.flower.rules import Rules
from cgpfl.engine.flower.server import Coordinator
from cgpfl.engine.reference import simulate_loop
from cgpfl.models import as_model
from cgpfl.tree import named

sys.path.append(str(Path(__file__).parents[2] / "tests" / "engine" / "flower"))

VALUES: list[Any] = [-1, 0, 1, 2**31, 2**62, -(2**62), 0.5, float("nan"), float("inf"), True, "", "x", "\x1b[2J\n" * 50]
VALUES += ["9" * 5000, b"", b"\x00" * 9, [], [1, 2], [0.5] * 40, ["a"], [True]]
NAMES = [
    "train",
    "samples",
    "tests",
    "anew",
    "nonce",
    "problem",
    "told",
    "client",
    "evaluate",
    "\x1b[2J",
    "x" * 3000,
    "",
]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3, 3), (10, 64), (64, 10), (2**31,), (-1, 4), (2**20, 2**20)]


def facts(record: ConfigRecord, draw: random.Random) -> ConfigRecord:
    """Facts with some others, fewer or more."""
    found = dict(record)
    for _ in range(draw.randint(1, 3)):
        name = draw.choice(NAMES)
        if draw.random() < 0.2:
            found.pop(name, None)
        else:
            found[name] = draw.choice(VALUES)
    found["nonce"] = found.get("nonce") if draw.random() < 0.2 else record.get("nonce", "")
    return ConfigRecord({k: v for k, v in found.items() if v is not None})


def array(value: Array, draw: random.Random) -> Array:
    """An array that is not what it was."""
    own = value.numpy()
    how = draw.randrange(9)
    if how == 0:
        others = [s for s in SHAPES if s != own.shape and 0 <= np.prod(s) < 10**4]  # of its own form it is an upload
        return Array(np.zeros(draw.choice(others), draw.choice(["f4", "f8", "i8"])))
    if how == 1:
        return Array(np.full_like(own, draw.choice([np.nan, np.inf, -np.inf])))
    if how == 2:
        content = BytesIO()
        np.save(content, np.array([{"a": 1}, print], object), allow_pickle=True)
        return Array(value.dtype, value.shape, "numpy.ndarray", content.getvalue())
    if how == 3:
        return Array(value.dtype, draw.choice(SHAPES), value.stype, value.data)
    if how == 4:
        return Array(
            draw.choice(["float64", "object", "float16", "\x1b[2J", "f" * 5000]), value.shape, value.stype, value.data
        )
    if how == 5:
        return Array(value.dtype, value.shape, draw.choice(["pickle", "", "torch"]), value.data)
    content = bytearray(value.data)
    if how == 6:
        return Array(value.dtype, value.shape, value.stype, bytes(content[: draw.randrange(len(content))]))
    if how == 7:
        return Array(
            value.dtype, value.shape, value.stype, bytes(content) + draw.randbytes(draw.choice([1, 100, 5000]))
        )
    content[: draw.randint(1, 60)] = draw.randbytes(draw.randint(1, 60))
    return Array(value.dtype, value.shape, value.stype, bytes(content))


def malformed(answer: RecordDict, draw: random.Random) -> RecordDict:
    """An answer of another form."""
    records: dict[str, Any] = dict(answer.items())
    how = draw.choice(["said", "said", "upload", "upload", "upload", "metrics", "lost", "other", "more"])
    if how == "said" and "said" in records:
        records["said"] = facts(records["said"], draw)
    elif how == "upload" and records.get("upload"):
        arrays = dict(records["upload"].items())
        name = draw.choice(list(arrays))
        if draw.random() < 0.2:
            arrays[draw.choice(NAMES)] = arrays.pop(name)
        else:
            arrays[name] = array(arrays[name], draw)
        records["upload"] = ArrayRecord(arrays)
    elif how == "metrics":
        numbers = [v for v in VALUES if type(v) in (int, float)]
        made = {draw.choice(["correct", "loss", "train_loss", "x" * 300]): draw.choice(numbers) for _ in range(2)}
        records["metrics"] = MetricRecord({**(dict(records.get("metrics", {})) if draw.random() < 0.7 else {}), **made})
    elif how == "lost":
        records.pop(draw.choice(list(records)), None)
    elif how == "other":
        others: list[Any] = [
            MetricRecord({"a": 1.0}),
            ConfigRecord({"a": 1}),
            ArrayRecord({}),
            MetricRecord({"a": [1.0] * 99}),
        ]
        records[draw.choice(list(records))] = draw.choice(others)
    else:
        records |= {f"{i}\x1b[2J": ConfigRecord({"a": "x" * 1000}) for i in range(draw.choice([1, 50]))}
    return RecordDict(records)


def to_server(messages: int, seed: int) -> tuple[int, list[str]]:
    """A federation of four whose first node answers nothing as it should → (messages, what was wrong)."""
    from in_process import Here

    draw, lines = random.Random(seed), list[str]()
    data = make_data("digits", "rotation", clients=4, contexts=2, share=0.2, seed=0)
    model, method = as_model("mlr", data.shape, data.classes), get_method("fedavg", {"local_rounds": 1})
    sent = [0]

    def behave(order: dict[str, Any], answer: RecordDict) -> RecordDict:
        sent[0] += 1
        return malformed(answer, draw)

    options: dict[str, Any] = {"rounds": messages, "eval_every": 5}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        grid = Here(data, model, {"m": method}, Path(folder), behave={0: behave})
        link = Link(grid, 4, tell=lines.append)
        link.label = "m"
        link.wait(0.1, 1)
        server = Coordinator(
            method, model, clients=4, shape=data.shape, rules=Rules(deadline=0.2), tell=lines.append, **options
        )
        state, answered = server.start(), dict[int, set[int]]()
        for t in range(messages):
            try:
                happened = server.step(state, link)
            except Exception as error:
                return sent[0], [f"round {t + 1}: the run ends: {type(error).__name__}: {error}"]
            state, answered[t] = happened.state, set(happened.answered)
            grid.sent.clear()
            grid.got.clear()
            if not {1, 2, 3} <= answered[t]:
                wrong.append(f"round {t + 1}: only {answered[t]} answered: {happened.refused}")
            lines += happened.refused.values()
    loop, _, _ = simulate_loop(method, data, model, answered=lambda t, i: i in answered[t], **options)
    ours = named(state.server)
    wrong += [
        f"{name}: other bits" for name, v in named(loop).items() if ours[name].tobytes() != np.asarray(v).tobytes()
    ]
    wrong += [
        f"a line of {len(line)} characters: {line[:80]!r}"
        for line in lines
        if len(line) > 400 or not line.isprintable()
    ]
    taken = sum(0 in who for who in answered.values())
    print(f"{sent[0]} messages of a node: {sent[0] - taken} refused, {taken} of no other meaning taken", flush=True)
    return sent[0], wrong


def to_node(folder: Path, draw: random.Random) -> None:
    """An order that is none: answered with a problem, and nothing of it done."""
    from in_process import Here

    Here.identity()
    done: list[Any] = []
    app = client_app(lambda *args: (done.append(args), ({}, {}))[1], lambda: lambda content, signature: False)
    good = {"token": "t", "client": 0, "base": 0, "train": 0, "evaluate": -1, "nonce": "n", "signature": "00"}
    answer = RecordDict(
        {"order": ConfigRecord(good), "message": ArrayRecord({"w": Array(np.zeros((3, 3), np.float32))})}
    )
    records: dict[str, Any] = dict(
        malformed(RecordDict({"said": answer["order"], "upload": answer["message"]}), draw).items()
    )
    renamed = {{"said": "order", "upload": "message"}.get(k, k): v for k, v in records.items()}
    message = Message(RecordDict(renamed), dst_node_id=1, message_type=draw.choice(["train", "evaluate", "query"]))
    context = Context(run_id=1, node_id=1, node_config={"client": 0}, state=RecordDict(), run_config={})
    said = app(message, context).content
    assert not done, "an order that nobody signed was done"
    assert "said" in said or "client" in said
