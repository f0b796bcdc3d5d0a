"""What a battery leaves behind, and what it prints: tables as text, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cgpfl.battery.draw import draw
from cgpfl.battery.problems import PROBLEMS
from cgpfl.battery.recipe import PUBLIC, TEST
from cgpfl.battery.regret import CLOSE, Found, Regrets, found_contexts
from cgpfl.files import save_csv, write
from cgpfl.tables import Table

if TYPE_CHECKING:
    from cgpfl.battery.run import Battery

DIVERGED = "†"


def write_all(battery: Battery) -> None:
    """Tables and picture into the battery's folder."""
    r, out, found = battery.regrets, battery.folder, contexts(battery)
    runs = [
        {
            "problem": o.problem,
            "method": o.method,
            "seed": s,
            "accuracy": a,
            "k": _or(k),
            "ari": _or(i),
            "diverged": _or(d),
        }
        for o in [*battery.outcomes, *battery.more]
        for s, a, k, i, d in zip(o.seeds, o.accuracy, o.k, o.ari, o.diverged, strict=True)
    ]
    save_csv(out / "battery.csv", runs)
    each = [
        {
            "problem": p,
            "method": m,
            "accuracy": f"{r.accuracy[i, j] / 100:.6f}",
            "regret": f"{r.regret[i, j]:.4f}",
            "diverged": r.diverged[i, j],
        }
        for j, p in enumerate(r.problems)
        for i, m in enumerate(r.methods)
    ]
    save_csv(out / "regrets.csv", each)
    rows = [
        {"method": f.method, "problem": f.problem, "true_k": _or(f.true), "seed": s, "k": _or(k), "ari": _or(a)}
        for f in found
        for s, k, a in zip(f.seeds, f.k, f.ari, strict=True)
    ]
    save_csv(out / "contexts.csv", rows)
    draw(r, out)
    write(out / "BATTERY.md", page(battery, found).encode())


def contexts(battery: Battery) -> list[Found]:
    """What the methods with contexts found, in the order of the methods, then of the problems."""
    found = found_contexts([*battery.outcomes, *battery.more], {n: p.contexts for n, p in PROBLEMS.items()})
    order = {method: i for i, method in enumerate(battery.regrets.methods)}
    return sorted(found, key=lambda f: order.get(f.method, len(order)))


def text(battery: Battery) -> str:
    """The table for a terminal of 80 columns."""
    r = battery.regrets
    head = ["method", "mean", "worst", "on", "best", f"within {CLOSE:g}"]
    lines = Table("", head, summary(r), left=(0, 3)).text().splitlines()
    seeds, problems = battery.wishes.seeds, len(r.problems)
    notes = [
        "",
        f"Points of accuracy behind the best method of each of {_count(problems, 'problem')}, {_count(seeds, 'seed')}.",
        f"best, within {CLOSE:g}: problems on which it is first, or at most {CLOSE:g} behind.",
        *([f"{DIVERGED} a run diverged, and counts as accuracy 0"] if r.diverged.any() else []),
    ]
    return "\n".join(line.rstrip() for line in [*lines, *notes])


def summary(r: Regrets) -> list[list[str]]:
    """A row a method: mean, worst and where, how often first and close to it."""
    first, close, n = r.within(0.0), r.within(CLOSE), len(r.problems)
    return [
        [
            method + (DIVERGED if r.diverged[i].any() else ""),
            f"{r.mean[i]:.1f}",
            f"{r.worst[i]:.1f}",
            r.where[i],
            f"{first[i]}/{n}",
            f"{close[i]}/{n}",
        ]
        for i, method in enumerate(r.methods)
    ]


def page(battery: Battery, found: Sequence[Found]) -> str:
    """BATTERY.md."""
    r, wishes = battery.regrets, battery.wishes
    parts = [
        "# How far behind the best?",
        f"Test accuracy of the clients' own models, pooled over clients, after round {wishes.rounds}; mean over "
        f"{_count(wishes.seeds, 'seed')}. **Regret**: points behind the best method of the problem. Every method at "
        f"its defaults; multinomial logistic regression; {TEST:.0%} of each client's samples for testing, {PUBLIC:.0%} "
        "of all samples public.",
        *(
            ["Quick: few problems, seeds and rounds, to see that everything works. The numbers mean little."]
            * wishes.quick
        ),
        "## All problems",
        _markdown(["method", "mean regret", "worst", "on", "best", f"within {CLOSE:g}"], summary(r), (0, 3)),
        *([f"{DIVERGED}: a run diverged, and counts as accuracy 0."] if r.diverged.any() else []),
        "![Regret of every method on every problem](battery.png)",
        "## Problem by problem",
        *(p for kind in dict.fromkeys(PROBLEMS[p].kind for p in r.problems) for p in _kind(r, kind)),
        "## Contexts",
        *_contexts(found),
        "## Machine and time",
        _facts(battery),
    ]
    return "\n\n".join(parts) + "\n"


def _kind(r: Regrets, kind: str) -> list[str]:
    """The regrets on problems of one kind."""
    own = [j for j, p in enumerate(r.problems) if PROBLEMS[p].kind == kind]
    names = [r.problems[j] for j in own]
    said = "\n".join(f"- **{p}**: {PROBLEMS[p].about}" for p in names)
    best = r.accuracy.max(axis=0)
    rows = [["*best accuracy, %*", *(f"*{best[j]:.1f}*" for j in own)]]
    for i, method in enumerate(r.methods):
        rows.append([method, *(_regret(r, i, j) for j in own)])
    return [f"### {kind.capitalize()}", said, _markdown(["method", *names], rows)]


def _regret(r: Regrets, i: int, j: int) -> str:
    value = f"{r.regret[i, j]:.1f}"
    shown = f"**{value}**" if r.regret[i, j] <= CLOSE else value
    return shown + (f" {DIVERGED}{r.diverged[i, j]}" if r.diverged[i, j] else "")


def _contexts(found: Sequence[Found]) -> list[str]:
    """Which contexts were found: a table of the methods, and one each of the problems."""
    if not found:
        return ["No method here has contexts."]
    methods = list(dict.fromkeys(f.method for f in found))
    rows = []
    for method in methods:
        known = [f for f in found if f.method == method and f.exact is not None]
        seeds, exact = sum(len(f.seeds) for f in known), sum(f.exact or 0 for f in known)
        always = sum(f.exact == len(f.seeds) for f in known)
        rows.append([method, f"{exact}/{seeds}", f"{always}/{len(known)}"])
    parts = [
        "Methods that report contexts, on problems whose contexts are known (all alike: one; everybody different: one "
        "a client). **Exact**: the true number, and every client in its own (ARI 1). Some are told a number of "
        "contexts, 4 by default.",
        _markdown(["method", "exact runs", "problems always exact"], rows),
    ]
    for method in methods:
        lines = [
            [
                f.problem,
                "–" if f.true is None else str(f.true),
                " ".join("–" if k is None else str(k) for k in f.k),
                " ".join("–" if a is None else f"{a:.2f}" for a in f.ari),
                "–" if f.exact is None else f"{f.exact}/{len(f.seeds)}",
            ]
            for f in found
            if f.method == method
        ]
        parts += [
            f"### Contexts of {method}",
            _markdown(["problem", "true K", "K of each seed", "ARI", "exact"], lines, (0, 2, 3)),
        ]
    return parts


def _facts(battery: Battery) -> str:
    outcomes = [*battery.outcomes, *battery.more]
    seconds = sum(o.seconds for o in outcomes)
    lines = [f"- {machine}" for machine in dict.fromkeys(o.machine for o in outcomes)]
    slow = sorted(
        {o.method: sum(p.seconds for p in outcomes if p.method == o.method) for o in outcomes}.items(),
        key=lambda t: -t[1],
    )
    lines.append(
        f"- {seconds:.0f} s of all programs, compilation included; the longest: "
        + ", ".join(f"{m} {s:.0f} s" for m, s in slow[:4])
    )
    return "\n".join(lines)


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    return Table("", columns, rows, left=left).markdown().rstrip()


def _or(value: Any) -> Any:
    return "" if value is None else value


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
