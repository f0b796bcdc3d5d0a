"""Federations as the registries have them; skipped, with the reason, where none can be reached."""

import io

import numpy as np
import pytest

from cgpfl.data import archives
from cgpfl.data.federations import FEDERATIONS, SEGLEARN
from cgpfl.data.pickled import read_npy
from cgpfl.data.sources import Source
from cgpfl.data.table import Table
from cgpfl.errors import CgpflError


def quiet(*_):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("name", FEDERATIONS)
def test_the_cards_tell_the_truth(name):
    """In the user's own cache folder, so that it is fetched once."""
    federation = FEDERATIONS[name]
    try:
        data = federation.load(tell=quiet)
    except CgpflError as error:
        pytest.skip(str(error))
    card = federation.card
    if isinstance(data, Source):
        assert (len(np.unique(data.client)), len(data.x), data.classes) == (card.clients, card.samples, card.classes)
        assert np.isfinite(data.x).all()
        assert len(np.unique(data.y)) == card.classes
        return
    assert isinstance(data, Table)
    frame = data.frame
    assert (frame[data.client].nunique(), len(frame)) == (card.clients, card.samples)
    assert not frame.isna().any().any()
    assert data.task == ("classification" if card.classes else "regression")
    assert not card.classes or frame[data.label].nunique() == card.classes
    features = frame.drop(columns=[data.client, data.label, *([data.time] if data.time else [])])
    assert not any((frame.groupby(column)[data.label].nunique() == 1).all() for column in features)  # no giveaway
    if data.time:
        assert frame.groupby(data.client)[data.time].is_monotonic_increasing.all()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "clients", "samples"), [("tuna", 3_093, 13_705), ("insteval", 2_972, 73_421)])
def test_all_clients(name, clients, samples):
    try:
        data = FEDERATIONS[name].load(smallest=1, tell=quiet)
    except CgpflError as error:
        pytest.skip(str(error))
    assert (data.frame[data.client].nunique(), len(data.frame)) == (clients, samples)


@pytest.mark.slow
def test_the_watch_as_numpy_reads_it():
    """The archive's hash is checked: here, NumPy's own reader may be trusted with it."""
    try:
        content = archives.member(archives.get(SEGLEARN, quiet), "seglearn/data/watch_dataset.npy")
    except CgpflError as error:
        pytest.skip(str(error))
    theirs = np.load(io.BytesIO(content), allow_pickle=True).item()
    ours = read_npy(content)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(a, b) for a, b in zip(ours["X"], theirs["X"], strict=True))
    assert all(np.array_equal(ours[key], theirs[key]) for key in theirs if key != "X")
