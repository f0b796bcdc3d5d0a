"""Could anybody place every client of the battery's problems? Somebody who is told all other clients' contexts tries.

    python benchmarks/placing.py [--problems NAME ...] [--seeds 10]

For each client and each true context: logistic regression on the training samples of that context's other clients, for
several strengths of its ridge; the client belongs where its own training samples are most likely. No method knows
that much: all have to find the contexts of everybody at once. Printed is who ends up elsewhere, by the ridge that
places most, with their numbers of training samples.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression

from cgpfl.battery.problems import PROBLEMS, federation

INVERSE_RIDGES = (0.03, 0.3, 3.0)
HARD = ("near-rotations", "near-labels", "skewed", "sizes", "shifts")
"""Those whose contexts CGPFL-Auto finds exactly in fewer than nine of ten seeds."""


def unlikely(model: LogisticRegression, x: np.ndarray, y: np.ndarray, classes: int) -> float:
    """Minus the log-likelihood of samples; of a class that the model never saw, a little is likely."""
    likely = np.full((len(y), classes), 1e-9)
    likely[:, model.classes_] = np.maximum(model.predict_proba(x), 1e-9)
    return float(-np.log(likely[np.arange(len(y)), y]).sum())


def misplaced(name: str, seed: int) -> list[tuple[int, int]]:
    """(Client, its training samples) for each that is not placed in its own context."""
    data = federation(name, seed)
    assert data.context is not None
    samples = [data.inputs(i) for i in range(data.clients)]
    flat = [(np.asarray(x).reshape(len(y), -1), np.asarray(y)) for x, y in samples]

    def by(ridge: float) -> list[int]:
        def fitted(clients: np.ndarray) -> LogisticRegression:
            x, y = (np.concatenate([flat[i][part] for i in clients]) for part in (0, 1))
            return LogisticRegression(C=ridge, max_iter=300, tol=1e-3).fit(x, y)

        members = {k: np.flatnonzero(data.context == k) for k in np.unique(data.context)}
        whole = {k: fitted(m) for k, m in members.items()}
        wrong = []
        for i, own in enumerate(data.context):
            models = whole | {own: fitted(members[own][members[own] != i])}
            if min(models, key=lambda k: unlikely(models[k], *flat[i], data.classes)) != own:
                wrong.append(i)
        return wrong

    best = min((by(ridge) for ridge in INVERSE_RIDGES), key=len)
    return [(i, len(flat[i][1])) for i in best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", choices=[n for n, p in PROBLEMS.items() if p.contexts], default=HARD)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in args.problems:
        wrong = [misplaced(name, seed) for seed in range(args.seeds)]
        exact = sum(not w for w in wrong)
        print(
            f"{name}: all clients placed in {exact} of {args.seeds} seeds; elsewhere: {[w for w in wrong if w]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
