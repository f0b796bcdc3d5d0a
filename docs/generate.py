"""Write the pages of docs/methods from the methods themselves and the comparisons kept in results.json.

    python docs/generate.py                          write the pages
    python docs/generate.py --from RUN [RUN ...]     first take the results of these comparisons

A page has what the method's file says of it (idea, paper, equations), when to use it, its hyper-parameters with
their ranges, what a round costs, and what to expect on digits (nothing, where it is not in results.json yet).
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cgpfl
from cgpfl.algorithms import METHODS, allowed, describe, hyper_parameters
from cgpfl.engine import Simulation
from cgpfl.models import as_model
from cgpfl.tree import nbytes

FOLDER = Path(__file__).parent / "methods"
COMMAND = "cgpfl compare --methods all --split {split} --seeds {seeds}"


@dataclass(frozen=True)
class Page:
    """A method's file, and the names on the command line that stand for it."""

    file: str
    title: str
    text: str
    names: list[str]

    @property
    def name(self) -> str:
        """What the page is called."""
        return self.file.replace("_", "-")


def pages() -> list[Page]:
    """One page a file of ``cgpfl.algorithms``, in the order of the registry."""
    found: dict[str, list[str]] = {}
    for name, method in METHODS.items():
        found.setdefault(type(method).__module__, []).append(name)
    made = []
    for module, names in found.items():
        doc = importlib.import_module(module).__doc__ or ""
        title, _, text = doc.partition("\n")
        made.append(Page(module.rpartition(".")[2], title.rstrip("."), text.strip("\n"), names))
    return made


def markdown(text: str) -> str:
    """A docstring as Markdown: indented blocks are equations, the rest is text."""
    blocks: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip("\n").split("\n")
        if all(line.startswith("    ") for line in lines):
            code = "\n".join(line[4:].rstrip() for line in lines)
            if blocks and blocks[-1].startswith("```"):
                blocks[-1] = blocks[-1].removesuffix("\n```") + "\n\n" + code + "\n```"
            else:
                blocks.append(f"```text\n{code}\n```")
        else:
            blocks.append(" ".join(line.strip() for line in lines).replace("``", "`"))
    return "\n\n".join(blocks)


def costs(names: list[str]) -> list[str]:
    """What one client sends, receives and computes in a round: MLR on digits, 40 clients."""
    data = cgpfl.make_data("digits", "rotation", public=0.1, seed=0)
    model = as_model("mlr", data.shape, data.classes)
    rows = ["| | models down | models up | gradients |", "|---|--:|--:|--:|"]
    for name in names:
        simulation = Simulation(METHODS[name], data, model, rounds=1)
        traffic, one = simulation.traffic(), nbytes(simulation.task.initial)
        sizes = [f"{size / one:.3g}" for size in (traffic.message, traffic.upload)]
        rows.append(f"| `{name}` | {' | '.join(sizes)} | {traffic.gradients:.3g} |")
    return rows


def parameters(names: list[str]) -> list[str]:
    """The hyper-parameters, with the value each name stands for."""
    fields = hyper_parameters(METHODS[names[0]])
    rows = ["| hyper-parameter | " + " | ".join(f"`{n}`" for n in names) + " | allowed | searched | meaning |"]
    rows.append("|---|" + "--:|" * len(names) + "---|---|---|")
    for key, field in fields.items():
        values = " | ".join(str(getattr(v := getattr(METHODS[n], key), "name", v)) for n in names)
        tune = field.metadata["tune"]
        searched = f"{tune[0]:g} … {tune[1]:g}" if tune else ""
        rows.append(f"| `{key}` | {values} | {allowed(field)} | {searched} | {field.metadata['meaning']} |")
    return rows


def measured(names: list[str], results: dict[str, Any]) -> list[str]:
    """Those of the names that every comparison has a result of."""
    return [n for n in names if all(n in of["methods"] for of in results.values())]


def expected(names: list[str], results: dict[str, Any]) -> list[str]:
    """Accuracy on digits beside local training, FedAvg and the best."""
    shown = list(dict.fromkeys([*names, "local", "fedavg"]))
    rows = ["| | " + " | ".join(f"`{n}`" for n in shown) + " | best |", "|---|" + "--:|" * (len(shown) + 1)]
    for split, of in results.items():
        methods = of["methods"]
        top = max(methods, key=lambda m: methods[m]["accuracy"])
        cells = [f"{methods[n]['accuracy']:.1f} ± {methods[n]['std']:.1f}" for n in shown]
        rows.append(f"| {split} | " + " | ".join(cells) + f" | {methods[top]['accuracy']:.1f} (`{top}`) |")
    return rows


def write(page: Page, results: dict[str, Any]) -> str:
    """A page's text."""
    method = METHODS[page.names[0]]
    original = f"In the paper: {method.original}. " if method.original else ""
    seeds = len(next(iter(results.values()))["seeds"])
    command = " and ".join(f"`{COMMAND.format(split=s, seeds=seeds)}`" for s in results)
    parts = [
        f"# {page.title}",
        markdown(page.text),
        "## When to use it",
        method.when,
        "## Hyper-parameters",
        "\n".join(parameters(page.names)),
        original + "Set one by `--set NAME.KEY=VALUE`. *Searched*: the range of `cgpfl compare --tune`.",
        "## Cost of a round",
        "\n".join(costs(page.names)),
        "One client, with MLR on digits and 40 clients. What is sent is counted in models (650 numbers); gradients are "
        "of minibatches (one over all samples counts as one), without what is done once, at the start.",
    ]
    known = measured(page.names, results)
    if known:
        parts += [
            "## What to expect on digits",
            "\n".join(expected(known, results)),
            "Test accuracy in % (clients' own models, pooled, last of 200 rounds), mean ± standard deviation over "
            f"{seeds} seeds, at the defaults above: {command}.",
        ]
    parts.append(
        f"Source: [`{page.file}.py`](../../src/cgpfl/algorithms/{page.file}.py). All methods: [index](index.md)."
    )
    return "\n\n".join(parts) + "\n"


def index(all_pages: list[Page], results: dict[str, Any]) -> str:
    """The list of methods, with what each reaches on digits."""
    lines = [
        "# Methods",
        "",
        "Each is one file of pure functions, tested against its equations. *rotation*, *labels*: test accuracy in % on",
        "digits, 40 clients in four hidden groups whose images are turned, or whose labels are renamed; clients' own",
        "models, pooled, last of 200 rounds, mean over seeds, at the defaults.",
        "",
        "| method | paper | what it does | " + " | ".join(results) + " |",
        "|---|---|---|" + "--:|" * len(results),
    ]
    for page in all_pages:
        for name in page.names:
            method = METHODS[name]
            known = measured([name], results)
            cells = " | ".join(f"{of['methods'][name]['accuracy']:.1f}" if known else "" for of in results.values())
            lines.append(f"| [`{name}`]({page.name}.md) | {method.citation} | {describe(method)} | {cells} |")
    seeds = {split: of["seeds"] for split, of in results.items()}
    lines += ["", f"Seeds: {', '.join(f'{split} {s}' for split, s in seeds.items())}."]
    commands = " and ".join(f"`{COMMAND.format(split=split, seeds=len(s))}`" for split, s in seeds.items())
    lines += [f"Commands: {commands}. These pages: `python docs/generate.py`."]
    return "\n".join(lines) + "\n"


def collect(folders: list[Path]) -> dict[str, Any]:
    """What the pages need of comparisons: accuracy and spread of each method, by split."""
    results: dict[str, Any] = {}
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        lost = [name for name, of in summary["methods"].items() if of["accuracy"] is None]
        if lost:
            raise SystemExit(f"{folder}: {', '.join(lost)} diverged; pages need a result of every method")
        methods = {
            name: {"accuracy": round(100 * of["accuracy"], 2), "std": round(100 * of["std"], 2)}
            for name, of in summary["methods"].items()
        }
        facts = {"seeds": summary["seeds"], "rounds": summary["rounds"], "split_hash": summary["data"]["split_hash"]}
        results[summary["data"]["split"]] = {**facts, "methods": dict(sorted(methods.items()))}
    return results


def everything() -> dict[str, str]:
    """All pages by file name."""
    results = json.loads((FOLDER / "results.json").read_text())
    all_pages = pages()
    texts = {f"{page.name}.md": write(page, results) for page in all_pages}
    return {**texts, "index.md": index(all_pages, results)}


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(description="Write docs/methods.")
    parser.add_argument("--from", dest="folders", nargs="+", type=Path, help="folders of cgpfl compare --methods all")
    args = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    if args.folders:
        (FOLDER / "results.json").write_text(json.dumps(collect(args.folders), indent=1) + "\n")
    for name, text in everything().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
