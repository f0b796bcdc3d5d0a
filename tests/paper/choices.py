"""Choices of rates that were never run: their validation accuracies are given."""

import numpy as np

from cgpfl.paper.tuning import grid, tuned_labels, tuning_cell
from handmade import lost, runs


def tried(setting, label, validation=None, test=70.0):
    """The tuning cells of a method, by name; ``validation``: of each setting, by default the first is the best."""
    values = grid(setting, label)
    each = [90.0 - i for i in range(len(values))] if validation is None else validation
    assert len(each) == len(values)
    return {
        tuning_cell(setting, label, v).name: lost(1) if np.isnan(a) else runs(test, settings={"validation": a})
        for v, a in zip(values, each, strict=True)
    }


def given(settings, labels=None):
    """The tuning cells of several methods in several settings, the first of each the best."""
    known = {}
    for setting in settings.values():
        for label in labels or tuned_labels(setting):
            known |= tried(setting, label)
    return known


def best_at(n, place):
    """Validation accuracies of ``n`` settings, the best at ``place``."""
    return [95.0 if i == place else 60.0 for i in range(n)]
