"""The server's rounds: ask the cohort, wait until the deadline, count who answered, aggregate.

The evaluation of a round travels with the order to train the next one, which carries the very message it needs:
a message to a node costs a process there, so there is one a round. A client that did not answer in time, or whose
answer was refused, has weight 0 and goes on from the state it had, as in a simulation with drop-outs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms import Cohort
from cgpfl.algorithms.wrapper import inner_of, is_private, sampler_of
from cgpfl.engine.cache import use_compilation_cache
from cgpfl.engine.drive import Traffic
from cgpfl.engine.evaluate import evaluate_message, over_clients, pooled
from cgpfl.engine.flower.bounds import AUTO, check_choice, check_counts, norms, outliers
from cgpfl.engine.flower.checks import Answer, check_metrics, size_of
from cgpfl.engine.flower.orders import Order, RefusedError, called, cleaned
from cgpfl.engine.flower.rules import Nodes, RoundOutcome, Rules, ServerState
from cgpfl.engine.flower.wire import pack, unpack
from cgpfl.engine.problem import (
    Arrays,
    Part,
    client_keys,
    cohort_size,
    draw_cohort,
    keys_of,
    make_task,
    round_keys,
)
from cgpfl.errors import LostError
from cgpfl.metrics import Metric
from cgpfl.objectives import Classification
from cgpfl.tree import all_finite, nbytes

_SEND = jax.jit(lambda method, server, client: method.send(server, client))
_AGGREGATE = jax.jit(lambda method, *args: method.aggregate(*args))


class Coordinator:
    """One method, served to ``clients`` nodes."""

    def __init__(
        self,
        method: Any,
        model: Any,
        *,
        clients: int,
        shape: tuple[int, ...],
        rounds: int,
        seed: int = 0,
        eval_every: int = 1,
        participation: float = 1.0,
        metrics: tuple[Metric, ...] = (),
        rules: Rules | None = None,
        tell: Callable[[str], None] = lambda line: None,
        names: Sequence[str] = (),
        counted: dict[int, tuple[int, int]] | None = None,
    ) -> None:
        use_compilation_cache()
        self.counted = {} if counted is None else counted
        """What clients have said they have, training and test, in methods before this one, too."""
        self.names, self.classes = names, getattr(model, "classes", 1)
        self.method, self.rounds, self.eval_every = method, rounds, eval_every
        self.clients, self.shape, self.rules, self.tell = clients, shape, rules or Rules(), tell
        self.metrics = metrics
        self.keys = keys_of(seed)
        self.task = make_task(model, self.keys, clients)
        self.cohort = cohort_size(participation, clients)
        self._setup = jax.random.split(self.keys.setup)
        first = jax.eval_shape(lambda task, key: method.init_server(task, key), self.task, self.keys.setup)
        self.message_like = jax.eval_shape(method.send, first, jnp.int32(0))

    def start(self) -> ServerState:
        server = jax.jit(self.method.init_server)(self.task, self._setup[0])
        nobody = np.zeros(self.clients, np.int32)
        return ServerState(server, 0, nobody, nobody, nobody)

    def shapes(self) -> Any:
        return jax.eval_shape(self.method.init_server, self.task, self._setup[0])

    @cached_property
    def upload_like(self) -> Any:
        """The form of an upload, from a made-up client with one sample."""

        def one(task: Any, message: Any, key: Any) -> Any:
            data = self._somebody.view(jnp.zeros(1, jnp.int32), jnp.int32(1))
            return self.method.train(task, message, self.method.init_client(task, key), data, key)[0]

        return jax.eval_shape(one, self.task, self.message_like, self.keys.setup)

    @cached_property
    def measures(self) -> dict[str, Any]:
        """What an evaluation measures, as forms."""

        def one(task: Any, message: Any, key: Any) -> Any:
            part = Part(jnp.zeros(1, jnp.int32), jnp.int32(1))
            client, parts = self.method.init_client(task, key), (part, part, None)
            keys = client_keys(round_keys(self.keys, 0), jnp.int32(0))
            return evaluate_message(self.method, task, self._somebody, message, client, parts, keys, self.metrics)

        return jax.eval_shape(one, self.task, self.message_like, self.keys.setup)

    @property
    def _somebody(self) -> Arrays:
        """A made-up client's data, for its form."""
        one = Part(jnp.zeros((1, 1), jnp.int32), jnp.ones(1, jnp.int32))
        x, ids = jnp.zeros((1, *self.shape), jnp.float32), jnp.zeros(1, jnp.int32)
        forms = {"next-token": ((1, *self.shape[:1]), jnp.int32), "classification": ((1,), jnp.int32)}
        y = jnp.zeros(*forms.get(self._objective, ((1, self.classes), jnp.float32)))
        return Arrays(x, y, jnp.float32(1), jnp.float32(0), ids, one, one, None, None)

    @property
    def _objective(self) -> str:
        """What is learned."""
        return getattr(self.task.model, "objective", Classification()).task

    def traffic(self) -> Traffic:
        """Cost of one client in one round."""
        return Traffic(nbytes(self.message_like), nbytes(self.upload_like), float(self.method.gradients()))

    def due(self, t: int) -> bool:
        """Whether round ``t`` (from 0) is evaluated by nodes; where uploads are private they tell no scores."""
        return not is_private(self.method) and t >= 0 and ((t + 1) % self.eval_every == 0 or t + 1 == self.rounds)

    def step(self, state: ServerState, nodes: Nodes) -> RoundOutcome:
        """One round, and the evaluation of the one before where that is due."""
        needed = min(self.rules.minimum, self.cohort)
        for attempt in range(self.rules.repeats + 1):
            happened = self._round(state, nodes)
            if len(happened.answered) >= needed:
                return happened
            line = f"round {state.t + 1}: {len(happened.answered)} answers of at least {needed}"
            line += "".join(f"; {called(self.names, i)} {why}" for i, why in happened.refused.items())
            if attempt < self.rules.repeats:
                self.tell(f"{line}; repeated")
        raise LostError(f"{line}, {self.rules.repeats + 1} times; the run stops, with round {state.t} saved")

    def evaluate(self, state: ServerState, nodes: Nodes) -> RoundOutcome:
        """The evaluation of the last round; who does not answer is asked again."""
        if is_private(self.method):
            return RoundOutcome(state, self._record(state, {}), (), {})
        good: dict[int, Answer] = {}
        refused: dict[int, str] = {}
        for _ in range(self.rules.repeats + 1):
            missing = [i for i in range(self.clients) if i not in good]
            answers, _uploads, bad = self._ask(state, nodes, [], missing, state.t - 1)
            good, refused = good | answers, refused | bad
            if all(i in good for i in np.flatnonzero(state.heard)):
                break
        refused = {i: why for i, why in refused.items() if i not in good}
        if len(good) < self.rules.minimum:
            why = "".join(f"; {called(self.names, i)} {reason}" for i, reason in refused.items())
            raise LostError(f"evaluation: {len(good)} answers of at least {self.rules.minimum}{why}; the run stops")
        state = self._seen(state, good)
        return RoundOutcome(state, self._record(state, good), tuple(sorted(good)), refused)

    def _round(self, state: ServerState, nodes: Nodes) -> RoundOutcome:
        t, keys = state.t, round_keys(self.keys, state.t)
        if sampler_of(self.method).by_size and not state.samples.all():  # nobody has said yet how much it has
            silent = [int(i) for i in np.flatnonzero(state.samples == 0)]
            state = self._seen(state, self._ask(state, nodes, [], silent, -1)[0])
        known = (self.method, state.server, keys, jnp.arange(self.clients), jnp.asarray(state.samples))
        cohort = [int(i) for i in draw_cohort(*known, self.cohort)]
        due = self.due(t - 1)
        good, uploads, refused = self._ask(
            state, nodes, cohort, list(range(self.clients)) if due else [], t - 1 if due else -1
        )
        state = self._seen(state, good)
        record = self._record(state, good) if due else None
        answered = tuple(i for i in cohort if i in uploads)
        anew = tuple(i for i, a in good.items() if a.anew)
        if len(answered) < min(self.rules.minimum, self.cohort):
            return RoundOutcome(state, None, answered, refused, anew)
        server = self._aggregate(state, cohort, uploads, keys.server)
        if not bool(all_finite(inner_of(self.method, server))):
            raise LostError(f"round {t + 1}: what was uploaded is too large to be averaged; set deploy.largest")
        heard = state.heard.copy()
        heard[list(answered)] = t + 1
        new = replace(state, server=server, t=t + 1, heard=heard, answers=state.answers + len(answered))
        return RoundOutcome(new, record, answered, refused, anew)

    def _ask(
        self, state: ServerState, nodes: Nodes, train: list[int], evaluate: list[int], of: int
    ) -> tuple[dict[int, Answer], dict[int, Any], dict[int, str]]:
        """Ask some to train and some to evaluate round ``of`` → good answers, their uploads, and why others are not."""
        orders = {}
        for i in sorted({*train, *evaluate}):
            message = pack(_SEND(self.method, state.server, jnp.int32(i)))
            rounds = state.t if i in train else -1, of if i in evaluate else -1
            orders[i] = (Order(state.token, i, int(state.heard[i]), *rounds), message)
        return self._checked(state, nodes.ask(orders, self.rules.deadline), orders)

    def _checked(
        self, state: ServerState, answers: Mapping[int, Answer], orders: Mapping[int, tuple[Order, Any]]
    ) -> tuple[dict[int, Answer], dict[int, Any], dict[int, str]]:
        """The answers that are what was asked for, their uploads, and why the others are not."""
        good, uploads, refused, lengths = {}, {}, {}, {}
        known = {i: (int(state.samples[i]), int(state.tests[i])) for i in range(self.clients)}
        said = known | {i: (answer.samples, answer.tests) for i, answer in answers.items()}
        everybody = [[pair[part] for pair in said.values() if pair[part] > 0] for part in (0, 1)]
        for i, answer in sorted(answers.items()):
            order, message = orders[i]
            try:
                if answer.train != order.train:
                    raise RefusedError(f"answers round {answer.train + 1}, not {order.train + 1}")
                for part, (name, now) in enumerate((("training", answer.samples), ("test", answer.tests))):
                    was = known[i][part] or self.counted.get(i, (0, 0))[part]
                    check_counts(name, now, was, everybody[part], self.rules.most, 2**31 // self.clients)
                if order.evaluate >= 0:
                    check_metrics(answer, self.measures, self._objective)
                if order.train >= 0:
                    arrays = answer.upload(self.upload_like)
                    check_choice(arrays, getattr(self.method, "contexts", None))
                    largest = self.rules.largest
                    uploads[i] = unpack(arrays, self.upload_like, 0.0 if isinstance(largest, str) else largest)
                    if largest == AUTO and getattr(self.method, "encoder", None) is None:
                        lengths[i] = norms(self.method, unpack(message, self.message_like), uploads[i])
                good[i] = answer
            except RefusedError as error:
                refused[i] = cleaned(error)
            except Exception as error:  # whatever one node sends, the others' round goes on
                refused[i] = f"cannot be used ({type(error).__name__})"
        for i, why in outliers({i: pair for i, pair in lengths.items() if i in good}).items():
            refused[i] = why
            good.pop(i)
        uploads = {i: upload for i, upload in uploads.items() if i in good}
        self.counted.update({i: (answer.samples, answer.tests) for i, answer in good.items()})
        return good, uploads, refused

    def _seen(self, state: ServerState, good: Mapping[int, Answer]) -> ServerState:
        samples, tests = state.samples.copy(), state.tests.copy()
        for i, answer in good.items():
            samples[i], tests[i] = answer.samples, answer.tests
        return replace(state, samples=samples, tests=tests)

    def _aggregate(self, state: ServerState, cohort: list[int], uploads: Mapping[int, Any], key: Any) -> Any:
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), self.upload_like)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(uploads.get(i, nothing) for i in cohort))
        weights = [int(state.samples[i]) if i in uploads else 0 for i in cohort]
        of = Cohort(jnp.asarray(cohort, jnp.int32), jnp.asarray(weights, jnp.int32))
        return _AGGREGATE(self.method, state.server, stacked, of, key)

    def _record(self, state: ServerState, good: Mapping[int, Answer]) -> dict[str, np.ndarray]:
        each = {name: np.full((self.clients, size_of(like)), np.nan) for name, like in self.measures.items()}
        for i, answer in good.items():
            for name, value in answer.metrics.items():
                each[name][i] = value
        record: dict[str, Any] = {name: values[:, 0].astype(np.float32) for name, values in each.items()}
        for m in self.metrics:
            leaves, form = jax.tree.flatten(self.measures[m.name])
            parts = np.split(np.nan_to_num(each[m.name]), np.cumsum([leaf.size for leaf in leaves])[:-1], axis=1)
            shaped = [p.reshape(-1, *leaf.shape).astype(leaf.dtype) for p, leaf in zip(parts, leaves, strict=True)]
            record[m.name] = jax.tree.unflatten(form, shaped)
        record = {k: np.asarray(v) for k, v in pooled(over_clients(record, self.metrics), self.metrics).items()}
        for m in self.metrics:  # of who was not heard nothing is known
            record[m.name] = np.where(np.isnan(each[m.name][:, 0]), np.nan, record[m.name])
        report = {name: np.asarray(value) for name, value in self.method.report(state.server).items()}
        return {**record, **report, "answers": np.asarray(state.answers, np.int32)}
