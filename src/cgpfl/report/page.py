"""The report: one HTML file with everything in it, from run folders alone."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from cgpfl.errors import CgpflError, NeedsError
from cgpfl.files import check_new, read_text, write
from cgpfl.report.choice import count
from cgpfl.report.columns import PLAIN, accuracy, comparison_table, curves, first_title, run_table
from cgpfl.report.events import Follower
from cgpfl.report.files import begun, whole
from cgpfl.report.read import absent, read_run
from cgpfl.tables import Table, origin

ASSETS = Path(__file__).parent / "assets"
FEW = 20
"""Training samples of a client below which a report warns."""
MARK = '<meta name="generator" content="cgpfl'
"""By which a file is known to be a report of ours."""


def write_report(runs: Sequence[Path], out: Path) -> Path:
    """Write the report of some run folders to ``out``; an older report there is replaced, anything else is not."""
    check_new(out, "--out")
    if out.is_dir():
        raise CgpflError(f"--out {out}: is a folder; name a file, such as {out / 'report.html'}")
    if out.exists() and MARK not in read_text(out, f"--out {out}", "replace")[:2000]:
        raise CgpflError(f"--out {out}: exists and is not a report; choose another name")
    text = html(runs)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write(out, text.encode())
    except OSError as error:
        raise CgpflError(f"--out {out}: cannot be written: {error.strerror or error}") from error
    return out


def html(runs: Sequence[Path], live: Mapping[Path, Follower] | None = None) -> str:
    """The page. ``live``: it asks its server for news, who follows the runs (see :mod:`cgpfl.report.serve`)."""
    from cgpfl import __version__

    parts = fragments(runs, live)
    page = parts.pop("page")
    scripts = [_asset(name) for name in ("charts.js", "contexts.js", "choice.js", "page.js", "reader.js")]
    return Template(_asset("page.html")).substitute(
        parts,
        version=__version__,
        connect="'none'" if live is None else "'self'",
        title=escape(", ".join(run["name"] for run in page["runs"])),
        style=_asset("page.css"),
        script="\n".join(scripts),
        data=json.dumps(page, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        plotly=plotly(),
    )


def document(title: str, style: str, header: str, main: str, took: str = "") -> str:
    """Another page that is one file, in the report's style; what is given is HTML. ``took``: how long it took."""
    from cgpfl import __version__

    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en" data-ready><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n{MARK} {__version__}">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{title}</title>\n'
        f"<style>{_asset('page.css')}{style}</style></head>\n<body><header>{header}</header><main>{main}</main>\n"
        f"<footer>cgpfl {__version__}{took}. One file: nothing is loaded from elsewhere.</footer></body></html>\n"
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def fragments(runs: Sequence[Path], live: Mapping[Path, Follower] | None = None) -> dict[str, Any]:
    """What is new on a live page: ``page`` (for the charts) and the HTML of head, table and settings."""
    read = read_runs(runs, live)
    parts: dict[str, list[str]] = {"head": [], "table": [], "settings": []}
    for path, run in read:
        if run["state"] == "running" and live is None:
            run["state"] = "not finished"
        with whole(path):
            parts["head"].append(head(run))
            parts["table"].append(table(run, len(read) > 1))
            parts["settings"].append(settings(path, run))
    if len(read) > 1:
        parts["table"].append(_words([table_of(run, "page") for _, run in read]))
    measured = {name: about for _, run in read for name, about in run.get("metrics", {}).items()}
    shown = [{**run, "first": first_title(run["data"])} for _, run in read]
    page = {"live": live is not None, "runs": [{k: v for k, v in run.items() if k != "config"} for run in shown]}
    tasks = [run["data"].get("task", PLAIN) for _, run in read]
    page["curves"] = curves(measured, tasks[0] if tasks else PLAIN)
    return {"page": page, **{name: "".join(texts) for name, texts in parts.items()}}


def read_runs(runs: Sequence[Path], live: Mapping[Path, Follower] | None = None) -> list[tuple[Path, dict[str, Any]]]:
    """The runs with their folders, each under a name of its own, and a title."""
    read = [(path, read_run(path) if live is None else _followed(path, live[path])) for path in runs]
    names = [run["name"] for _, run in read]
    for path, run in read:
        if names.count(run["name"]) > 1:  # runs of one name in several folders
            run["name"] = str(path)
        with whole(path):
            run["title"] = title(run)
    return read


def _followed(path: Path, follower: Follower) -> dict[str, Any]:
    """A run as it is now, on a page that stays open: its folder may come later, and go."""
    if begun(path):
        follower.seen = True
        return read_run(path, follower)
    return absent(path, "gone" if follower.seen else "not there yet")


@cache
def plotly() -> str:
    """Plotly's library, compressed, as text that fits in a page."""
    found = importlib.util.find_spec("plotly")
    file = None if found is None or found.origin is None else Path(found.origin).parent / "package_data/plotly.min.js"
    if file is None or not file.exists():
        raise NeedsError("report: needs plotly; install it with: pip install 'cgpfl[report]'")
    return base64.b64encode(gzip.compress(file.read_bytes(), 9, mtime=0)).decode()


def title(run: dict[str, Any]) -> str:
    """One line on a run's federation."""
    data, seeds = run["data"], run["seeds"]
    if not data:
        return "nothing recorded yet"
    facts = [origin(data), count(data["clients"], "client")]
    if data["true_contexts"]:
        facts.append(count(data["true_contexts"], "hidden context"))
    facts.append(str(run["model"]["name"]))
    facts.append(f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds from {seeds[0]}")
    return ", ".join(facts)


def head(run: dict[str, Any]) -> str:
    """The run's name, state and federation."""
    state = f' <span class="badge {escape(run["state"].replace(" ", "-"))}">{escape(run["state"])}</span>'
    left = f" – {_about(run['left'])} left" if run["state"] == "running" and run.get("left") is not None else ""
    return f'<h1>{escape(run["name"])}{state}</h1><p class="quiet">{escape(run["title"])}{left}</p>'


def _about(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 60:
        return "less than a minute"
    unit, size = ("minute", 60) if seconds < 90 * 60 else ("hour", 3600)
    return f"about {count(max(1, round(seconds / size)), unit)}"


def table_of(run: dict[str, Any], view: str) -> Table:
    """The result table of a run or a comparison, in a ``view`` of :mod:`cgpfl.report.columns`."""
    methods, about = {m["label"]: m["summary"] for m in run["methods"]}, run.get("metrics", {})
    task = run["data"].get("task", PLAIN)
    if run["kind"] == "comparison":
        return comparison_table(methods, view, about, len(run["seeds"]), run.get("target", 0.0), task)
    names = {m["label"]: m["name"] for m in run["methods"]}
    done = {m["label"]: f"{m['round']} of {m['rounds']}" for m in run["methods"] if m["round"] < m["rounds"]}
    return run_table(methods, view, about, names, done, task)


def table(run: dict[str, Any], several: bool) -> str:
    """The result table as HTML, what its columns mean, and what else to know."""
    methods, shown = {m["label"]: m["summary"] for m in run["methods"]}, table_of(run, "page")
    strong = {(r, c) for r, c in shown.strong}
    facts = [methods[row[0]] for row in shown.rows]

    def cell(r: int, c: int, text: str) -> tuple[str, str]:
        if r < 0:
            return f' title="{escape(shown.help[c])}"', text
        bad = bool(c == 1 and facts[r]["diverged"])
        bar = f' class="bar" style="--part:{100 * (accuracy(facts[r]) or 0):.0f}%"' if c == 1 else ""
        return bar, f'<span class="bad">{text}</span>' if bad else f"<b>{text}</b>" if (r, c) in strong else text

    caption = f"<h3>{escape(run['name'])}</h3>" if several else ""
    told = [*run.get("notes", []), *few_samples(run["data"], len(facts) == 1 and "privacy" in facts[0])]
    notes = "".join(f'<p class="quiet">{escape(str(note))}</p>' for note in told)
    hint = '<p class="hint more" hidden>More columns: scroll →</p>'
    wide = f'<div class="wide" tabindex="0">{shown.html(cell)}</div>{hint}'
    words = "" if several else _words([shown])
    return f"{caption}{wide}{words}{notes}{_remarks(run['methods'])}"


def few_samples(data: Mapping[str, Any], noised: bool = False) -> list[str]:
    """A warning where a client has so few training samples that its upload may give them away."""
    smallest = data.get("smallest_client")
    if smallest is None or smallest >= FEW or noised:
        return []
    has = f"A client trains on {count(smallest, 'sample')}"
    return [f"{has}: an upload of so few can give them away, images and labels. cgpfl audit RUN tries it."]


def _words(shown: Sequence[Table]) -> str:
    """What each column means, where it stands: below the table, or the last of several."""
    pairs = dict.fromkeys(pair for table in shown for pair in zip(table.columns, table.help, strict=True))
    items = [f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs if text]
    return f'<dl class="words quiet">{"".join(items)}</dl>' if items else ""


def _remarks(methods: list[dict[str, Any]]) -> str:
    """Below the table: what contexts the methods found that looked for some, and what else to know of each."""
    lines = []
    for m in methods:
        found = m.get("contexts") or {}
        told = [found["sentence"]] if found.get("chosen") and found.get("sentence") else []
        lines += [
            f"<b>{escape(m['label'])}</b>: {escape(str(text))}" for text in (*told, *m["summary"].get("notes", []))
        ]
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


def settings(path: Path, run: dict[str, Any]) -> str:
    """How to run it again, and the complete configuration."""
    if run["state"] in ("gone", "not there yet"):
        return f"<p>{escape(run['name'])}: the folder {escape(str(path))} is {run['state']}.</p>"
    if not run["config"]:
        return f"<p>{escape(run['name'])}: made in Python, so it is run again there.</p>"
    command = "compare" if run["kind"] == "comparison" else "run"
    lines = [
        f"cgpfl {command} {path / 'config.toml'}             # the same numbers again",
        f"cgpfl {command} {path / 'config.toml'} --seed 7    # with another seed",
    ]
    if run["state"] != "finished":
        lines.append(f"cgpfl resume {path}")
    if "[deploy]" in run["config"].splitlines():
        other = path if run["state"] != "finished" else f"{path}-again"
        goes = "goes on" if run["state"] != "finished" else "again"
        lines = [f"cgpfl deploy run APP --out {other}    # {goes} on its nodes; APP: the folder it was started from"]
    split = run["data"].get("split_hash")
    same = (
        f"<p class='quiet'>Hash of the split: {escape(str(split))}; the same hash is the same problem.</p>"
        if split
        else ""
    )
    return (
        f"<h3>{escape(run['name'])}</h3><pre>{escape(chr(10).join(lines))}</pre>{same}"
        f"<details><summary>config.toml, complete</summary><pre>{escape(run['config'])}</pre></details>"
    )
