"""Any model's JAX program as nodes of an ONNX graph, for any number of samples.

What depends on parameters alone is computed here, so the graph holds the results; the rest is written operation by
operation, loops over time step by step. Whoever writes a graph compares it with the model on samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from cgpfl.inference.nodes import Graph, NoGraphError
from cgpfl.inference.operations import COMPOSED, PLAIN, SAMPLES, Operations, Value, fixed

INLINED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Where an operation that calls a program has it."""


def lower(graph: Graph, apply: Callable[[Any, Any], Any], params: Any, shape: tuple[int, ...], x: str) -> str:
    """Add ``apply(params, x)`` for inputs ``x [n, *shape]`` to a graph → the name of its output."""
    form = jax.ShapeDtypeStruct((SAMPLES, *shape), jnp.float32)
    program = jax.make_jaxpr(lambda x: apply(params, x))(form)
    (found,) = _Lowering(graph, x).run(program, [x])
    return found if isinstance(found, str) else graph.array(found)


class _Lowering(Operations):
    def run(self, program: ClosedJaxpr, args: list[Value]) -> list[Value]:
        known: dict[Any, Value] = dict(zip(program.jaxpr.constvars, map(np.asarray, program.consts), strict=True))
        known |= dict(zip(program.jaxpr.invars, args, strict=True))

        def read(var: Any) -> Value:
            return np.asarray(var.val) if isinstance(var, Literal) else known[var]

        for step in program.jaxpr.eqns:
            found = self.step(step, [read(v) for v in step.invars])
            known |= dict(zip(step.outvars, found, strict=True))
        return [read(v) for v in program.jaxpr.outvars]

    def step(self, step: Any, args: list[Value]) -> list[Value]:
        inner = next((step.params[name] for name in INLINED if name in step.params), None)
        if step.primitive.name == "scan":
            return self.scan(step, args)
        if inner is not None:
            return self.run(inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ()), args)
        if all(not isinstance(a, str) for a in args) and _fixed(step):
            out = step.primitive.bind(*map(jnp.asarray, args), **step.params)
            return [np.asarray(v) for v in (out if step.primitive.multiple_results else [out])]
        name = step.primitive.name
        if name in PLAIN:
            return [self.add(PLAIN[name], *args)]
        if name in COMPOSED:
            return [COMPOSED[name](self.add, *args)]
        write = getattr(self, f"_{name}", None)
        if write is None:
            raise NoGraphError(f"JAX's operation {name} has none in ONNX here")
        found = write(step, *args)
        return found if isinstance(found, list) else [found]

    def scan(self, step: Any, args: list[Value]) -> list[Value]:
        """A loop of a known length, step by step."""
        p = step.params
        body, length = p["jaxpr"], int(p["length"])
        consts, carry, xs = p["num_consts"], p["num_carry"], args[p["num_consts"] + p["num_carry"] :]
        state, stacked = args[consts : consts + carry], []
        for t in range(length)[:: -1 if p["reverse"] else 1]:
            seen = [self.add("Gather", x, np.array(t, np.int64), axis=0) if isinstance(x, str) else x[t] for x in xs]
            found = self.run(body, [*args[:consts], *state, *seen])
            state = found[:carry]
            stacked.append(found[carry:])
        stacked = stacked[::-1] if p["reverse"] else stacked
        axis = np.array([0], np.int64)
        each = ([self.add("Unsqueeze", v, axis) for v in parts] for parts in zip(*stacked, strict=True))
        return [*state, *(self.add("Concat", *parts, axis=0) for parts in each)]


def _fixed(step: Any) -> bool:
    """Whether nothing of an operation depends on the number of samples."""
    return all(fixed(d) for v in (*step.invars, *step.outvars) for d in v.aval.shape)
