"""``python -m benchmarks.bench``, from the repository's root."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cgpfl.cli import main
from cgpfl.cli.app import use

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


class Lists(TyperCommand):
    """A command whose options may list several values: ``--models mlr dnn`` is ``--models mlr,dnn``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As usual, the lists joined."""
        from benchmarks.bench.grid import joined

        return super().parse_args(ctx, joined(args, ("--methods", "--models", "--clients")))


@app.command(cls=Lists)
def bench(
    methods: Annotated[str | None, typer.Option(help="cgpfl, pfedme, fedavg (default: all).")] = None,
    models: Annotated[str | None, typer.Option(help="mlr, dnn, cnn (default: all).")] = None,
    clients: Annotated[str | None, typer.Option(help="Numbers of clients (default: 40 400 4000).")] = None,
    rounds: Annotated[int | None, typer.Option(help="T, rounds in one call (default: 10).")] = None,
    repeats: Annotated[int | None, typer.Option(help="Timings of each, the median counts (default: 5).")] = None,
    limit: Annotated[
        float | None, typer.Option(help="Leave out what takes longer a round, in seconds (default: 60).")
    ] = None,
    sweep: Annotated[bool, typer.Option(help="Also time a sweep, 9 λ x 5 seeds in one program.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="40 clients, few rounds and timings: minutes.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Also write everything measured to this file.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for bench.json, bench.md and bench.png.")] = Path("runs/bench"),
) -> None:
    """Time a round beside PyTorch's, and beside what the machine allows.

    Contestants take turns in one run, after all have computed the same round: ours, a bare PyTorch loop over
    clients, torch.func.vmap over them, and the floor, counted operations and bytes at the machine's own rates.

    [dim]python -m benchmarks.bench --models mlr dnn --methods cgpfl --clients 40 400[/dim]
    """
    from benchmarks.bench.grid import check_places, grid_of

    grid = grid_of(methods, models, clients, rounds, repeats, limit, sweep, quick)
    check_places(out, json)
    use(device)
    from benchmarks.bench import files
    from benchmarks.bench.run import run as measure
    from benchmarks.bench.tabulate import text

    found = measure(
        grid,
        tell=lambda line: typer.echo(line, err=True),
        keep=lambda result: files.keep_json(result, out / "bench.json"),
    )
    files.keep(found, out)
    if json is not None:
        files.keep_json(found, json)
    typer.echo(f"{text(found)}\n\ntable, plot and every timing: {out}")


if __name__ == "__main__":
    main(app)
