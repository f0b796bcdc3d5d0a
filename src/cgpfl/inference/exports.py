"""Write a client's, a context's or the shared model of a finished run as a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from cgpfl.errors import CgpflError
from cgpfl.experiment.config import config_of
from cgpfl.experiment.folder import form_of
from cgpfl.experiment.reload import Published, load_published, load_result, published
from cgpfl.experiment.result import PersonalModel, Result
from cgpfl.files import a_path
from cgpfl.inference.candidates import candidates
from cgpfl.inference.folder import CHECKED, FORMATS, Exported, check_formats, check_out, write_export
from cgpfl.inference.score import scored


def export(
    run: Result | str | Path,
    out: str | Path,
    *,
    client: int | str | None = None,
    context: int | None = None,
    shared: bool = False,
    method: str | None = None,
    formats: tuple[str, ...] = FORMATS,
) -> Exported:
    """Write the model of a client, of a context, or the one that all share into the new folder ``out``.

    ``run``: a :class:`Result` or a run folder, of which ``method`` names the method (None = the most accurate).
    ``formats``: "safetensors" (always written) and "onnx" (needs the extra ``export``): the graph takes raw samples and
    is checked on the model's test samples against JAX. Of a deployment, the server's models can be written; there are
    no samples there, so these have no scores, and a graph is checked on random inputs.
    """
    if (client is not None) + (context is not None) + shared != 1:
        raise CgpflError("export: give either a client or a context, or shared")
    check_formats(formats)
    check_out(a_path(out))
    if isinstance(run, Result) and method not in (None, run.label):
        raise CgpflError(f"method {method!r}: this result is of {run.label}")
    if not isinstance(run, Result) and "deploy" in config_of(a_path(run, "run")):
        return _of_nodes(a_path(run, "run"), a_path(out), client, context, method, formats)
    result = run if isinstance(run, Result) else load_result(a_path(run, "run"), method)
    data = result.data
    if client is not None:
        model, rows, facts = _client(result, client)
    else:
        params, facts = _published(published(result), context)
        model, rows = _usable(result, params), _tested(result, context)
    x, y = data.x[rows], data.y[rows]
    shared_score = None
    if client is not None:
        sent = result.method.send(result.state.server, result.data.ids[result.data.place(client)])
        if (params := result.method.shared(sent)) is not None:
            shared_score = scored(_usable(result, params), x, y)
    about = (model, published(result), facts, scored(model, x, y), shared_score)
    return write_export(a_path(out), *about, samples=x, formats=formats)


def _of_nodes(
    run: Path, out: Path, client: int | str | None, context: int | None, method: str | None, formats: tuple[str, ...]
) -> Exported:
    """A model of a deployment's server."""
    if client is not None:
        raise CgpflError(
            f"run {run}: is of a deployment, whose clients keep their models; on the node: cgpfl deploy export-node"
        )
    known = load_published(run, method)
    params, facts = _published(known, context)
    model = PersonalModel(jax.tree.map(np.asarray, params), known.model, known.form)
    scale, shift = known.form.units()
    inputs = np.random.default_rng(0).normal(size=(CHECKED, *known.form.shape)).astype(np.float32)
    return write_export(out, model, known, facts, None, None, samples=(inputs - shift) / scale, formats=formats)


def _client(result: Result, client: int | str) -> tuple[PersonalModel, np.ndarray, dict[str, Any]]:
    """The model that a client uses, its test samples' positions, and whose it is."""
    i = result.data.place(client)
    found = result.contexts
    context = None if found is None else int(found.assignment[i])
    named = {"name": result.data.names[i]} if result.data.names else {}
    return result.personal_model(i), result.data.test.parts()[i], {"client": i, **named, "context": context}


def _published(known: Published, k: int | None) -> tuple[Any, dict[str, Any]]:
    """The model of context ``k``, or the one that all share (None), and whose it is."""
    there, label = candidates(known), known.label
    if there.models is None:
        raise CgpflError(f"{label}: what its server sends is no model; export a client's")
    if k is None:
        if there.contexts:
            raise CgpflError(f"shared: {label} has a model a context; export one by context")
        return jax.tree.map(lambda v: v[0], there.models), {"shared": True, "clients": sum(there.members)}
    if not there.contexts:
        raise CgpflError(f"context {k}: {label} has no context models; export a client's, or the shared one")
    sizes = {c: members for c, members in zip(there.contexts, there.members, strict=True) if members}
    if k not in sizes:
        raise CgpflError(f"context {k}: {label} has clients in contexts {', '.join(map(str, sizes))}")
    place = there.contexts.index(k)
    return jax.tree.map(lambda v: v[place], there.models), {"context": k, "clients": sizes[k]}


def _tested(result: Result, k: int | None) -> np.ndarray:
    """Positions of the test samples of context ``k``'s members, or of all clients (None)."""
    parts = result.data.test.parts()
    if k is not None:
        members = np.asarray(result.method.report(result.state.server)["context"])[result.data.ids] == k
        parts = [part for part, own in zip(parts, members, strict=True) if own]
    return np.concatenate(parts)


def _usable(result: Result, params: object) -> PersonalModel:
    whole = result.simulation.task.whole(params)
    return PersonalModel(jax.tree.map(np.asarray, whole), result.model, form_of(result.data, result.model))
