"""The problems: many kinds, small enough that all of them with every method are an hour on two cores.

None was chosen or changed for the sake of a method. Problems of one form (see :class:`Form`) share their programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count, pairwise
from typing import Any

import numpy as np

from cgpfl.battery.recipe import (
    PUBLIC,
    Draw,
    Form,
    Recipe,
    Samples,
    by_rule,
    by_size,
    crossed,
    other_bases,
    renamed,
    shifted,
    swapped,
    turned,
)
from cgpfl.battery.samples import WRITERS, cancer, digits, gaussian, pixels
from cgpfl.data import FederatedData
from cgpfl.errors import CgpflError

SIZES = tuple(round(float(s)) for s in np.geomspace(5, 500, 40))
"""Samples of 40 clients, evenly spread between 5 and 500 on a logarithmic scale."""


@dataclass(frozen=True)
class Problem:
    """A kind of federation."""

    name: str
    kind: str
    about: str
    """One sentence."""
    recipe: Recipe

    @property
    def form(self) -> Form:
        return self.recipe.form

    @property
    def contexts(self) -> int | None:
        """The true K; None where clients differ without groups."""
        return len(self.recipe.contexts) or None


FORTY = Form("digits-40", 40, (64,), 10, rows=1797, public=180, train=64, test=22)
TEN = Form("digits-10", 10, (64,), 10, rows=1797, public=180, train=128, test=40)
TABLES = Form("tables-40", 40, (30,), 2, rows=22_222, public=2222, train=512, test=128)
MANY = Form("tables-400", 400, (64,), 10, rows=13_333, public=1333, train=22, test=8)
"""Two classes of 30 features are 62 parameters, ten of 64 are 650."""


def _ten_writers(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The digits of ten of the 14 writers, and whose they are."""
    x, y = digits()
    blocks = list(pairwise(WRITERS))
    rows = [np.arange(*blocks[i]) for i in rng.permutation(len(blocks))[: TEN.clients]]
    every = np.concatenate(rows)
    return x[every], y[every], np.repeat(np.arange(len(rows)), [len(r) for r in rows])


def _some_digits(count: int, rng: np.random.Generator) -> Samples:
    x, y = digits()
    rows = rng.permutation(len(y))[:count]
    return x[rows], y[rows]


def _digits(contexts: Sequence[int] = (), form: Form = FORTY, **more: Any) -> Recipe:
    return Recipe(form, **{"samples": lambda rng: digits(), **more}, contexts=tuple(contexts), inputs=pixels())


def _gaussian(samples: int, form: Form, length: float) -> Draw:
    """Rows of which nine tenths are ``samples`` and the rest public."""
    rows = next(n for n in count(samples) if n - round(PUBLIC * n) == samples)
    return partial(gaussian, rows, form.shape[0], form.classes, length)


def _all() -> list[Problem]:
    even, quarters = (10, 10, 10, 10), turned(90)
    skew, three = by_rule("dirichlet", alpha=0.5, largest=85), by_rule("random", held=3, largest=85)
    sized = partial(Recipe, TABLES, _gaussian(sum(SIZES), TABLES, 2.0), parts=by_size(SIZES))
    much = partial(Recipe, TABLES, _gaussian(20_000, TABLES, 2.0))
    tumours = partial(Recipe, TABLES, lambda rng: cancer())
    kinds: dict[str, list[tuple[str, str, Recipe]]] = {
        "balanced contexts": [
            ("rotations", "digits turned by 0, 90, 180 or 270 degrees", _digits(even, changes=quarters)),
            ("labels", "digits, three names for each class", _digits((14, 13, 13), changes=renamed)),
            ("shifts", "digits shifted in one of six directions", _digits((7, 7, 7, 7, 6, 6), changes=shifted(1.0))),
            ("both", "two rotations times two names for classes", _digits(even, changes=crossed(quarters, renamed))),
        ],
        "unequal contexts": [
            ("unequal", "rotations with 20, 10, 6 and 4 clients", _digits((20, 10, 6, 4), changes=quarters)),
            ("pair", "rotations with 25, 8, 5 and 2 clients", _digits((25, 8, 5, 2), changes=quarters)),
        ],
        "contexts that are hard to see": [
            ("near-rotations", "digits turned by 0, 20, 40 or 60 degrees", _digits(even, changes=turned(20))),
            ("near-labels", "two classes swapped for half of the clients", _digits((20, 20), changes=swapped)),
            ("skewed", "rotations; class shares of each client's own", _digits(even, changes=quarters, parts=skew)),
            ("personal", "rotations; a shift of each client's own", _digits(even, changes=quarters, personal=0.5)),
        ],
        "no contexts": [
            ("iid", "digits, every client a random sample", _digits((40,))),
            ("alone", "digits, class names of each client's own", _digits((1,) * 40, changes=renamed)),
            ("dirichlet", "digits, class shares of each client's own", _digits(parts=skew)),
            ("three-classes", "digits, three classes a client", _digits(parts=three)),
            ("writers", "digits, one writer each", _digits(form=TEN, samples=_ten_writers)),
        ],
        "few or many clients": [
            (
                "ten",
                "40 digits each, three rotations",
                _digits((4, 3, 3), TEN, samples=partial(_some_digits, 444), changes=turned(120)),
            ),
            (
                "many",
                "30 rows each, features in four bases",
                Recipe(MANY, _gaussian(12_000, MANY, 3.0), (100,) * 4, other_bases),
            ),
        ],
        "tables": [
            ("sizes", "5 to 500 rows each, features in four bases", sized(even, other_bases)),
            ("sizes-iid", "5 to 500 rows each, all alike", sized((40,))),
            ("much", "500 rows each for 62 parameters, two contexts", much((20, 20), renamed)),
            ("much-iid", "500 rows each for 62 parameters, all alike", much((40,))),
            ("cancer", "tumours, 12 each, classes swapped for half", tumours((20, 20), renamed)),
            ("cancer-iid", "tumours, 12 each, all alike", tumours((40,))),
        ],
    }
    return [Problem(name, kind, about, recipe) for kind, them in kinds.items() for name, about, recipe in them]


PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in _all()}
"""In the order of the tables."""
QUICK = ("ten", "writers")
"""Of a quick battery."""


def chosen(names: Sequence[str]) -> list[Problem]:
    """Problems by name, checked, in the order of the tables; none: all."""
    for name in names:
        if name not in PROBLEMS:
            raise CgpflError(f"battery: no problem {name!r}; there are {', '.join(PROBLEMS)}")
    return [problem for name, problem in PROBLEMS.items() if not names or name in names]


@lru_cache(maxsize=512)
def federation(name: str, seed: int) -> FederatedData:
    """The federation of a problem and a seed; the same object each time, so that runs share it."""
    return PROBLEMS[name].recipe.make(seed)


@lru_cache(maxsize=4096)
def digest(name: str, seed: int) -> str:
    """Of that federation."""
    return federation(name, seed).digest
