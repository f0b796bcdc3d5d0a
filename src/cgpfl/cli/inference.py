"""Commands for after training: personalize, export, predict."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cgpfl.cli.app import app
from cgpfl.errors import CgpflError

if TYPE_CHECKING:
    import pandas as pd

    from cgpfl.inference import Exported, Personalized

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")]
MethodLabel = Annotated[str | None, typer.Option("--method", help="Which of its methods (default: the most accurate).")]
DATA = "A .npz, .csv or .parquet file, or a folder with train and test files or one file."
Out = Annotated[Path | None, typer.Option(help="Folder to create (default: exports/RUN-METHOD-...).")]
FORMAT = "safetensors, or safetensors,onnx (needs the extra export)."


@app.command()
def personalize(
    run: Run,
    data: Annotated[Path, typer.Option(help=f"The new client's own data. {DATA}")],
    method: Annotated[
        str | None, typer.Option("--method", help="Which of its methods (default: the best for a new client).")
    ] = None,
    steps: Annotated[int, typer.Option(help="Rounds' worth of the method's training on the client.")] = 20,
    test: Annotated[float, typer.Option(help="Share of the samples held out, unless there is a test file.")] = 0.25,
    formats: Annotated[str, typer.Option("--format", help=FORMAT)] = "safetensors",
    out: Out = None,
) -> None:
    """Give a new client its context and its own model, from what a run published.

    No round is run: the client takes the context whose model has the smallest loss on its training samples, then trains
    as the method's clients do.

    [dim]cgpfl personalize runs/digits-rotation-1 --data new_client.csv[/dim]
    """
    began = time.perf_counter()
    from cgpfl.inference import personalize as adapt
    from cgpfl.inference.folder import check_out

    wanted = as_formats(formats)
    if out is not None:
        check_out(out)
    found = adapt(run, data, method=method, steps=steps, test=test)
    folder = out or _free_folder(run, found.published.label, data.resolve().stem)
    written = found.save(folder, wanted)
    _show_client(found)
    _show_folder(written)
    typer.echo(f"{found.seconds:.1f} s, with start and files {time.perf_counter() - began:.1f} s")


@app.command()
def export(
    run: Run,
    client: Annotated[str | None, typer.Option(help="Whose model: a client's name, or 0, 1, ...")] = None,
    context: Annotated[int | None, typer.Option(help="Instead of a client's: a context's model, 0, 1, ...")] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Instead: the model that all clients share.")] = False,
    method: MethodLabel = None,
    formats: Annotated[str, typer.Option("--format", help=FORMAT)] = "safetensors,onnx",
    out: Out = None,
) -> None:
    """Write one model of a run as a folder of its own: parameters, a card, and an ONNX graph.

    The graph takes raw samples; it is compared with the model on test samples before it is kept.

    [dim]cgpfl export runs/digits-rotation-1 --client 3[/dim]
    """
    from cgpfl.experiment.reload import choose
    from cgpfl.inference import export as write

    if (client is not None) + (context is not None) + shared != 1:
        raise CgpflError("export: give either --client or --context, or --shared")
    label = choose(run, method)
    whose = "shared" if shared else f"client-{client}" if context is None else f"context-{context}"
    folder = out or _free_folder(run, label, whose)
    what: dict[str, Any] = {"client": client, "context": context, "shared": shared}
    written = write(run, folder, **what, method=label, formats=as_formats(formats))
    show_export(f"{label}, {whose.replace('-', ' ')}", written)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A folder made by export or personalize.")],
    data: Annotated[Path, typer.Option(help=f"Samples; labels are optional. {DATA}")],
    out: Annotated[Path | None, typer.Option(help="A .csv file to create (default: the first ten are shown).")] = None,
    using: Annotated[str, typer.Option("--with", help="safetensors (JAX) or onnx (onnxruntime).")] = "safetensors",
) -> None:
    """Class and probability of each sample, from an export folder alone.

    Of a folder with train and test files, the test file is read.

    [dim]cgpfl predict exports/digits-rotation-1-cgpfl-heur-client-3 --data new.csv --out predictions.csv[/dim]
    """
    from cgpfl.inference import predict as answers
    from cgpfl.inference.folder import check_out
    from cgpfl.inference.predictions import to_predict

    if out is not None:
        check_out(out)
    found = answers(model, data, using=using)
    if out is None:
        _show_predictions(found)
    else:
        from cgpfl.files import write

        out.parent.mkdir(parents=True, exist_ok=True)
        write(out, found.to_csv(index=False).encode())
        typer.echo(f"{len(found):,} predictions: {out}")
    if "label" in found and "prediction" in found:
        apart = (found["prediction"] - found["label"]).abs()
        where = to_predict(data).name
        typer.echo(f"RMSE {(apart**2).mean() ** 0.5:.4g}, MAE {apart.mean():.4g}: {len(found):,} samples in {where}")
    elif "label" in found:
        right = int((found["class"] == found["label"]).sum())
        typer.echo(f"accuracy {_percent(right / len(found))}: {right:,} of {len(found):,} in {to_predict(data).name}")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def as_formats(text: str) -> tuple[str, ...]:
    """Formats as on the command line, checked."""
    from cgpfl.inference.folder import check_formats

    formats = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    check_formats(formats)
    return formats


def _free_folder(run: Path, label: str, what: str) -> Path:
    """exports/RUN-METHOD-WHAT, or the first of -2, -3, … that does not exist."""
    name = f"{run.resolve().name}-{label}-{what}"
    path, n = Path("exports") / name, 1
    while path.exists():
        n += 1
        path = Path("exports") / f"{name}-{n}"
    return path


def _show_client(found: Personalized) -> None:
    from cgpfl.cli.terminal import console
    from cgpfl.tables import Table

    train, held = (int(t.counts[0]) for t in (found.data.train, found.data.test))
    typer.echo(f"{found.published.label}: a new client with {train} samples to train on, {held} held out\n")
    if found.contexts:
        each = zip(found.contexts, found.members, found.losses, strict=True)
        rows = [[str(k), str(n), f"{loss:.3f}", "← chosen" * (k == found.context)] for k, n, loss in each]
        strong = [(r, c) for r, row in enumerate(rows) if row[-1] for c in range(4)]
        head = ["context", "clients", "loss of its model", ""]
        console().print(Table("", head, rows, strong=strong).rich())
        typer.echo("loss: mean over the client's training samples\n")
    models = {"the context's" if found.contexts else "shared": found.shared, "personal": found.score}
    rows = [[name, _percent(s.accuracy), f"{s.loss:.3f}"] for name, s in models.items() if s is not None]
    console().print(Table("", ["model", f"accuracy on {held} held out", "loss"], rows).rich())
    typer.echo("")


def show_export(what: str, written: Exported) -> None:
    """What was exported, how good it is where that is known, and where it is."""
    from cgpfl.inference.folder import read_card

    card = read_card(written.path)
    scores = {name: score for name, score in card["metrics"].items() if isinstance(score, dict)}
    facts = ", ".join(f"{name} {_percent(score['accuracy'])}" for name, score in scores.items())
    if scores:
        typer.echo(f"{what}: accuracy on {next(iter(scores.values()))['samples']} test samples: {facts}")
    else:
        typer.echo(f"{what}: not scored, the server of a deployment has no samples")
    _show_folder(written)


def _show_folder(written: Exported) -> None:
    typer.echo(f"{', '.join(written.files)}: {written.path}")
    if written.difference is not None:
        typer.echo(f"ONNX's logits differ from JAX's by at most {written.difference:.1e}")
    if written.note:
        typer.echo(written.note)


def _show_predictions(found: pd.DataFrame) -> None:
    from cgpfl.cli.terminal import console
    from cgpfl.tables import Table

    first = found.head(10).to_dict("records")
    rows = [[f"{v:.3f}" if c == "probability" else str(v) for c, v in row.items()] for row in first]
    console().print(Table("", [str(c) for c in found.columns], rows).rich())
    if len(found) > 10:
        typer.echo(f"the first ten of {len(found):,}; --out FILE.csv keeps all\n")
