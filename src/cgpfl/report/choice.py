"""What a method's records say about its contexts: how many there are, why, and how sure that is; in words, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

HARDLY, MUCH = 0.1, 0.5
"""Mean trust of clients that hardly differ from their context is below the first, of those that differ much above."""
PARTS = {3: "a third", 4: "a quarter", 5: "a fifth", 6: "a sixth", 8: "an eighth", 10: "a tenth"}
MOST_NAMED = 20
"""Clients whose numbers are listed."""
MOST_SIZES = 8
"""Contexts whose sizes are listed; of more, the smallest and the largest."""


@dataclass(frozen=True)
class Choice:
    """The contexts after the last evaluation, and what was measured to choose them.

    What a method does not measure is None.
    """

    assignment: np.ndarray
    """``[N]``: context of each client."""
    k: int
    curve: pd.DataFrame | None = None
    """What K was chosen by. CGPFL-Heur: k, complexity, cost, error (e(K)). CGPFL-Auto: k, score (error of predicting
    samples left out), error (standard error of its difference to the best), shared and personal (ρ0, ρ2); the last row
    is K = N, everybody alone."""
    chosen: bool = False
    """Whether the method chose K itself."""
    limit: int | None = None
    """The largest K it could choose."""
    looked: bool = True
    """Whether contexts were looked for: not before a warm-up is over."""
    alone: bool = False
    """Whether every client stands alone."""
    sure: float | None = None
    """Agreement (adjusted Rand index) with the contexts found without one fold of the samples, mean over folds."""
    between: float | None = None
    """Share of the variance between contexts,"""
    within: float | None = None
    """between clients of a context,"""
    noise: float | None = None
    """and by the noise of the clients' samples."""
    trust: np.ndarray | None = None
    """``[N]``: 0 = the client uses its context's model as it is, 1 = its own."""
    heard: np.ndarray | None = None
    """``[N]``: whether there is evidence about each client: whether it was heard in every fold of its samples."""
    folds: int | None = None
    pulled: bool = False
    """Whether trust decides how far a client's model is from its context's."""
    smallest: int = 1
    """Members below which a context's clients have models of their own, and no say."""
    liar: np.ndarray | None = None
    """``[N]``: who lied, in a simulation of that."""

    @property
    def sizes(self) -> list[int]:
        """Members of each context that has any, the largest first."""
        return sorted(np.unique(self.assignment, return_counts=True)[1].tolist(), reverse=True)

    def describe(self) -> str:
        """The contexts in a sentence."""
        clients = len(self.assignment)
        if not self.looked:
            return f"contexts were not looked for yet: all {clients} clients share one model"
        if self.alone:
            return (
                "every client stands alone: nothing that clients share predicts what one of them does; "
                "each trains on its own"
            )
        return "; ".join(part for part in (self._differ(), self._again()) if part)

    def edges(self) -> list[str]:
        """A line for each way in which the choice is at an edge."""
        lines, clients = [], len(self.assignment)
        if self.chosen and self.limit == 1:
            lines.append(f"K = 1: with {count(clients, 'client')} no more are looked for")
        elif not self.looked:
            lines.append("contexts were not looked for: the run ended in the warm-up")
        elif self.chosen and self.k == 1:
            lines.append("K = 1: no contexts found")
        elif self.chosen and self.k == self.limit and not self.alone:
            lines.append(f"K is at its upper limit, {self.k}: there may be more contexts")
        if self.looked and self.heard is not None and not self.heard.all():
            unheard = int((~self.heard).sum())
            lines.append(f"no evidence about {unheard} of {clients} clients: too few answers or samples")
        return [*lines, *self.suspects()]

    def suspects(self) -> list[str]:
        """A line for each context that is too small to have a say, or that liars have forged, with its members."""
        lines = []
        for context in np.unique(self.assignment) if self.looked and not self.alone else []:
            members = np.flatnonzero(self.assignment == context)
            who = f"context {context}, of {count(len(members), 'client')} ({listed(members[:MOST_NAMED].tolist())}"
            who += ")" if len(members) <= MOST_NAMED else ", ...)"
            lies = 0 if self.liar is None else int(self.liar[members].sum())
            if lies == len(members):
                lines.append(f"{who}: forged, all of them lie")
            elif 2 * lies >= len(members):
                lines.append(f"{who}: captured, {lies} of them lie")
            elif len(members) < self.smallest:
                lines.append(f"{who}: fewer than {self.smallest}; they have models of their own, and no say")
        return lines

    def facts(self) -> dict[str, Any]:
        """The choice as plain values: what a summary holds and a page shows of it, without the list of clients."""
        known = {name: getattr(self, name) for name in ("sure", "between", "within", "noise")}
        return {
            "sizes": self.sizes,
            "chosen": self.chosen,
            "alone": self.alone,
            "sentence": self.describe(),
            **{name: value for name, value in known.items() if value is not None},
            **({} if self.curve is None else {"curve": {str(c): self.curve[c].tolist() for c in self.curve}}),
        }

    def _differ(self) -> str:
        """K and sizes, and how much clients differ inside contexts."""
        if self.trust is None:
            return _contexts(self.k, self.sizes)
        mean, clients, one = float(self.trust.mean()), len(self.assignment), self.k == 1
        if one and mean < HARDLY:
            use = f"whose model everybody uses {self._as_it_is()}" if self.pulled else "for everybody"
            return f"all {clients} clients are alike: one context, {use}"
        how = "hardly" if mean < HARDLY else "somewhat" if mean < MUCH else "much"
        use = {
            "hardly": f"the context's model is used {self._as_it_is()}",
            "somewhat": "each client's model is its own, held near the context's",
            "much": "each keeps mostly its own model",
        }[how]
        differ = (
            f"clients inside {'it' if one else 'a context'} {'hardly differ' if how == 'hardly' else f'differ {how}'}"
        )
        return f"{_contexts(self.k, self.sizes)}; {differ}" + (f": {use}" if self.pulled else "")

    def _as_it_is(self) -> str:
        return "as it is" if self.trust is None or not self.trust.any() else "nearly as it is"

    def _again(self) -> str:
        """How sure."""
        if self.sure is None or self.k == 1:
            return ""
        part = PARTS.get(self.folds or 0, f"1/{self.folds}" if self.folds else "some")
        found = (
            "found again" if self.sure >= 0.9 else "found again in part" if self.sure >= 0.5 else "hardly found again"
        )
        return f"{found} without {part} of the samples: agreement {self.sure:.2f}"


def measured(values: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a :class:`Choice` from a method's records ``[E, ...]`` and its settings."""
    last = {name: value[-1] for name, value in values.items()}
    assignment, k = np.asarray(last["context"]).astype(int), int(last["k"])
    clients, given = len(assignment), settings.get("contexts", "auto")
    found: dict[str, Any] = {"assignment": assignment, "k": k, "chosen": given == "auto"}
    found["smallest"] = settings.get("smallest", 1)
    if "liar" in last:
        found["liar"] = np.asarray(last["liar"]).astype(bool)
    if isinstance(settings.get("most"), int):
        found["limit"] = min(settings["most"], clients)
    if "score" in last:
        found |= _cross_fitted(last, settings) | {"limit": len(last["score"]) - 1}
        found["alone"] = bool(k > found["limit"])
        if found["alone"]:
            found["trust"] = np.ones(clients)
    elif "cost" in last:
        first, cost, mu = (last[name] for name in ("complexity", "cost", "mu"))
        found |= {"looked": bool(np.any(first)), "limit": len(cost)}
        if found["looked"]:
            terms = {"complexity": first, "cost": cost, "error": first + mu * cost}
            found["curve"] = pd.DataFrame({"k": np.arange(1, len(cost) + 1), **terms})
    else:
        found["alone"] = 1 < clients == len(np.unique(assignment))
    if "placed" in last:  # by noised sums: there is no curve
        found["looked"] = bool(last["placed"])
    return found


def _cross_fitted(last: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What CGPFL-Auto measures, once it has looked for contexts."""
    score = last["score"]
    if not np.any(score):
        return {"looked": False}
    between, within, noise = (float(v) for v in last["spread"])
    found = {"between": between, "within": within, "noise": noise, "trust": last["trust"]}
    found |= {"folds": settings.get("folds"), "pulled": settings.get("prox", "auto") == "auto"}
    if "heard" in last:
        found["heard"] = np.asarray(last["heard"]).astype(bool)
    given = settings.get("contexts", "auto")
    if not isinstance(given, list | tuple):  # labels that are given are found again for certain
        found["sure"] = float(last["agreement"])
    if given == "auto":
        ks = [*range(1, len(score)), len(last["context"])]
        columns = {"error": "score_error", "shared": "score_shared", "personal": "score_personal"}
        found["curve"] = pd.DataFrame({"k": ks, "score": score, **{c: last[name] for c, name in columns.items()}})
    return found


def choice(values: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> Choice:
    """How a method's contexts were chosen, from its records and settings."""
    return Choice(**measured(values, settings))


def count(number: int, what: str) -> str:
    """``1 client``, ``2 clients``."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def listed(words: Sequence[Any]) -> str:
    """``14, 13 and 13``."""
    words = [str(word) for word in words]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _contexts(k: int, sizes: list[int]) -> str:
    """``3 contexts of 14, 13 and 13 clients``."""
    if len(sizes) == 1 and k == 1:
        return f"one context of all {count(sizes[0], 'client')}"
    empty = f", {k - len(sizes)} without any" if k > len(sizes) else ""
    if len(sizes) > 1 and sizes[0] == sizes[-1]:
        return f"{count(k, 'context')} of {count(sizes[0], 'client')} each{empty}"
    few = len(sizes) <= MOST_SIZES
    of = listed(sizes) if few else f"{sizes[-1]} to {sizes[0]}"
    return f"{count(k, 'context')} of {of} {'client' if sizes == [1] else 'clients'}{empty}"
