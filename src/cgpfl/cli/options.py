"""An experiment's settings as options, the same for every command that takes an experiment.

They are those of :class:`cgpfl.engine.settings.Settings`, written out here because importing that takes JAX's second;
a test compares the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

import typer

from cgpfl.cli.app import one_of


def _splits(incomplete: str) -> list[str]:
    """Completion of a split's name."""
    from cgpfl.data import SPLITS

    return one_of(*SPLITS)(incomplete)


SETTINGS: dict[str, tuple[type, str]] = {
    "seed": (int, "seed of everything random"),
    "rounds": (int, "communication rounds"),
    "eval_every": (int, "rounds between evaluations; 0 = about 100 evaluations"),
    "patience": (int, "evaluations without a better validation score until a run stops; 0 = never"),
    "participation": (float, "share of the clients asked in a round"),
    "dropout": (float, "chance that a client asked does not answer"),
    "clients_per_block": (int, "clients computed at once; 0 = what fits"),
    "devices": (str, "devices that share the clients"),
    "store": (str, "where personal states are between rounds"),
    "precision": (str, "of the clients' matrix products; default = JAX's own"),
    "loss": (str, "what training minimises; auto = the task's own"),
    "frozen": (str, "patterns of parameters that nobody trains or sends, such as base.*; none = the model's own"),
    "metrics": (str, "what is measured of clients' models"),
    "sampler": (str, "who is asked in a round"),
    "outgoing": (str, "what becomes of an update before it leaves"),
    "mean": (str, "how uploads become a mean"),
    "epsilon": (float, "ε: how much a run's uploads may tell; inf = anything"),
    "delta": (float, "δ: chance that ε does not hold"),
    "privacy": (str, "whose: a client's, or each of its samples'"),
    "clip": (float, "for privacy: largest norm of an upload, or of a sample's gradient"),
    "trusted": (str, "who may see an upload with too little noise"),
    "attack": (str, "who lies, and how, in a simulation"),
}
SEVERAL = {"metrics": "as a,b", "outgoing": "as a,b", "devices": "a number, or all"}
"""What is said of an option beside its meaning; those "as a,b" are lists."""
OPTIONS: dict[str, Any] = {
    "data": Annotated[
        str | None,
        typer.Option(
            help="A data set's name, a table (.csv, .parquet), an .npz, a folder, or package.module:function."
        ),
    ],
    "client": Annotated[str | None, typer.Option(help="A table's column that says whose a row is.")],
    "label": Annotated[str | None, typer.Option(help="A table's column that is predicted.")],
    "task": Annotated[
        str | None,
        typer.Option(
            help="classification, regression, multi-label or next-token; auto = as the labels look.",
            autocompletion=one_of("classification", "regression", "multi-label", "next-token"),
        ),
    ],
    "split": Annotated[
        str | None,
        typer.Option(help="rotation, labels, shift, iid, cyclic, block, random, ...", autocompletion=_splits),
    ],
    "clients": Annotated[int | None, typer.Option(help="Number of clients.")],
    "model": Annotated[
        str | None,
        typer.Option(
            help="mlr, dnn, cnn, resnet, gru, transformer, lora or package.module:Name.",
            autocompletion=one_of("mlr", "dnn", "cnn", "resnet", "gru", "transformer", "lora"),
        ),
    ],
} | {
    name: Annotated[
        kind | None,
        typer.Option(help=meaning[0].upper() + meaning[1:] + (f", {SEVERAL[name]}." if name in SEVERAL else ".")),
    ]
    for name, (kind, meaning) in SETTINGS.items()
}


Methods = Annotated[
    list[str] | None,
    typer.Option("--method", "--methods", metavar="NAMES", help="Methods, as a,b or one by one; all: every one."),
]


def named(methods: list[str]) -> list[str]:
    """The names of ``--method a,b --method c``."""
    return [name.strip() for given in methods for name in given.split(",")]


DATA = ("client", "label", "task", "split", "clients")
"""Options that say how data is read."""


def experiment_options(command: Callable[..., None], only: Sequence[str] = tuple(OPTIONS)) -> Callable[..., None]:
    """Give a command these options, but for those it has itself; what was given comes as its argument ``flags``.

    ``only``: some of them.
    """
    own = inspect.signature(command).parameters
    hints = get_type_hints(command, include_extras=True)
    more = {name: kind for name, kind in OPTIONS.items() if name in only and name not in own}
    named: list[inspect.Parameter] = []
    for name, parameter in own.items():
        if name != "flags":
            named.append(parameter.replace(annotation=hints[name]))
            continue
        rest: Any = inspect.Parameter.KEYWORD_ONLY
        named += [inspect.Parameter(n, rest, default=None, annotation=kind) for n, kind in more.items()]

    def called(**values: Any) -> None:
        flags = {name: values.pop(name) for name in more}
        for name, said in SEVERAL.items():
            if said == "as a,b" and flags.get(name) is not None:
                flags[name] = [word.strip() for word in flags[name].split(",")]
        command(flags={name: value for name, value in flags.items() if value is not None}, **values)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    ordered = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in named]
    called.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
    return called
