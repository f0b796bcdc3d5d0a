"""Commands about what a run tells of its clients: audit, forget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cgpfl.cli.app import Quiet, Verbose, app, go
from cgpfl.files import a_path


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    method: Annotated[str | None, typer.Option("--method", help="Which of its methods (default: the best).")] = None,
    references: Annotated[
        int, typer.Option(help="Trainings for the likelihood ratio, each as long as the run; 0 = the loss alone.")
    ] = 8,
    attacked: Annotated[int, typer.Option(help="Clients, the smallest, whose samples are reconstructed.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the audit's own draws.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Attack a run: what do its models give away about its clients?

    Membership (by loss and by likelihood ratio), reconstruction from a client's first upload, and canaries, which bound
    epsilon from below. It needs the run's data and takes about as long as ten such runs. The page is in RUN.

    [dim]cgpfl audit runs/digits-rotation-1 --method fedavg[/dim]
    """
    from cgpfl.auditing.attack import audit as attack
    from cgpfl.experiment.lines import pointing

    def say(line: str) -> None:
        typer.echo(f"{line} ...", err=True)

    folder = a_path(run, "run")
    quietly = (lambda line: None) if quiet else say
    with pointing(folder / "config.toml"):
        found = attack(folder, method, references=references, attacked=attacked, seed=seed, say=quietly)
    page = found.save(folder)
    if not quiet:
        typer.echo(f"{found}\n\npage: {page}")


@app.command()
def forget(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a comparison's.")],
    client: Annotated[str, typer.Option(help="Who is forgotten: a client's name, or 0, 1, ...")],
    out: Annotated[Path | None, typer.Option(help="Folder to create (default: RUN-without-CLIENT).")] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Then remove the old run's models, samples and values of each client.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run it again as if a client had never been there, from the first round.

    The result is, bit for bit, that of a run on the federation without the client. Nothing of the old run is used but
    its configuration.

    [dim]cgpfl forget runs/digits-rotation-1 --client 3 --delete[/dim]
    """
    from cgpfl.cli.terminal import evaluation, notes, say
    from cgpfl.experiment.forget import Forgotten, plan
    from cgpfl.experiment.lines import pointing

    folder = a_path(folder, "run")
    with pointing(folder / "config.toml"):
        planned = plan(folder, client, out)
    kept: list[Forgotten] = []
    listening = [*([] if quiet else [notes]), *([evaluation] if verbose else [])]

    def start(tell: object) -> object:
        kept.append(planned.run(tell, listening, delete))  # type: ignore[arg-type]
        return kept[0].finished

    go(start, planned.out, quiet=quiet, verbose=verbose)
    if quiet:
        return
    done, total = kept[0], kept[0].total
    cost = f"{total['rounds']:,.0f} rounds, {total['seconds']:.1f} s, {total['gradients']:,.0f} gradients"
    say(f"client {done.client} is forgotten: {done.folder} never had it. It cost {cost}.")
    if done.deleted:
        say(f"removed from {folder}: {', '.join(done.deleted)}")
    else:
        say(f"{folder} is as it was, with what it learned of the client; --delete removes that")
