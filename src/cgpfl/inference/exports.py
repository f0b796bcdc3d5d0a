"""Write a client's or a context's model of a finished run as a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from cgpfl.errors import CgpflError
from cgpfl.experiment.folder import form_of
from cgpfl.experiment.reload import load_result, published
from cgpfl.experiment.result import PersonalModel, Result
from cgpfl.files import a_path
from cgpfl.inference.candidates import candidates
from cgpfl.inference.folder import FORMATS, Exported, check_formats, check_out, write_export
from cgpfl.inference.score import scored


def export(
    run: Result | str | Path,
    out: str | Path,
    *,
    client: int | str | None = None,
    context: int | None = None,
    method: str | None = None,
    formats: tuple[str, ...] = FORMATS,
) -> Exported:
    """Write the model of a client, or of a context, into the new folder ``out``.

    ``run``: a :class:`Result` or a run folder, of which ``method`` names the method (None = the most accurate).
    ``formats``: "safetensors" (always written) and "onnx" (needs the extra ``export``): the graph takes raw samples and
    is checked on the model's test samples against JAX.
    """
    if (client is None) == (context is None):
        raise CgpflError("export: give either a client or a context")
    check_formats(formats)
    check_out(a_path(out))
    if isinstance(run, Result) and method not in (None, run.label):
        raise CgpflError(f"method {method!r}: this result is of {run.label}")
    result = run if isinstance(run, Result) else load_result(a_path(run, "run"), method)
    model, rows, facts = _context(result, context) if client is None else _client(result, client)
    data = result.data
    x, y = data.x[rows], data.y[rows]
    shared = None if client is None else _shared(result, result.data.place(client))
    return write_export(
        a_path(out),
        model,
        published(result),
        facts,
        scored(model, x, y),
        None if shared is None else scored(shared, x, y),
        samples=x,
        formats=formats,
    )


def _client(result: Result, client: int | str) -> tuple[PersonalModel, np.ndarray, dict[str, Any]]:
    """The model that a client uses, its test samples' positions, and whose it is."""
    i = result.data.place(client)
    found = result.contexts
    context = None if found is None else int(found.assignment[i])
    named = {"name": result.data.names[i]} if result.data.names else {}
    return result.personal_model(i), result.data.test.parts()[i], {"client": i, **named, "context": context}


def _shared(result: Result, i: int) -> PersonalModel | None:
    """The shared or context model client ``i`` is sent, where there is one."""
    params = result.method.shared(result.method.send(result.state.server, result.data.ids[i]))
    return None if params is None else _usable(result, params)


def _context(result: Result, k: int | None) -> tuple[PersonalModel, np.ndarray, dict[str, Any]]:
    """The model of context ``k``, its members' test samples' positions, and how many members it has."""
    there, label = candidates(published(result)), result.label
    if not there.contexts or there.models is None:
        raise CgpflError(f"context {k}: {label} has no context models; export a client's")
    used = [c for c, members in zip(there.contexts, there.members, strict=True) if members]
    if k not in used:
        raise CgpflError(f"context {k}: {label} has clients in contexts {', '.join(map(str, used))}")
    place = there.contexts.index(k)
    members = np.asarray(result.method.report(result.state.server)["context"])[result.data.ids] == k
    parts = [part for part, own in zip(result.data.test.parts(), members, strict=True) if own]
    model = _usable(result, jax.tree.map(lambda v: v[place], there.models))
    return model, np.concatenate(parts), {"context": k, "clients": int(members.sum())}


def _usable(result: Result, params: object) -> PersonalModel:
    return PersonalModel(jax.tree.map(np.asarray, params), result.model, form_of(result.data, result.model))
