"""The problems are what they say, for every seed."""

import numpy as np
import pytest

from cgpfl.battery import problems
from cgpfl.battery.problems import PROBLEMS, SIZES, chosen, digest, federation
from cgpfl.battery.recipe import PUBLIC, TEST, by_size, crossed, renamed, shifts, turned
from cgpfl.battery.samples import WRITERS, cancer, digits, gaussian
from cgpfl.data.makers import rotate
from cgpfl.errors import CgpflError


def sizes(data):
    return data.train.counts + data.test.counts


def images(data, i):
    """All of a client's images ``[n, 8, 8]`` and labels, as they are in the arrays."""
    rows = np.concatenate([data.train.parts()[i], data.test.parts()[i]])
    return data.x[rows].reshape(-1, 8, 8), data.y[rows]


def whose(pictures):
    """Positions in the file of digits, each of which is there once."""
    x, _ = digits()
    places = {picture.tobytes(): i for i, picture in enumerate(x)}
    assert len(places) == len(x)
    return np.array([places[p.astype(np.float32).tobytes()] for p in pictures])


def test_there_are_many_kinds():
    assert len(PROBLEMS) >= 18
    assert len({p.kind for p in PROBLEMS.values()}) >= 5
    assert all(len(p.about) <= 45 for p in PROBLEMS.values())
    assert set(problems.QUICK) <= set(PROBLEMS)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_valid(name):
    problem, data = PROBLEMS[name], federation(name, 0)
    form, counts = problem.form, problem.recipe.contexts
    assert data.clients == form.clients
    assert data.classes == form.classes
    assert data.y.max() == form.classes - 1
    if counts:
        assert np.bincount(data.context).tolist() == list(counts)
        assert sum(counts) == form.clients
        assert problem.contexts == len(counts)
    else:
        assert data.context is None
        assert problem.contexts is None
    held = np.concatenate([*data.train.parts(), *data.test.parts(), data.public])
    assert len(np.unique(held)) == len(held)
    assert np.array_equal(data.test.counts, np.maximum(np.round(TEST * sizes(data)), 1))
    inputs = data.x[held] * data.scale + data.shift
    assert np.abs(inputs.mean()) < 0.3
    assert 0.7 < inputs.std() < 1.7


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_seed_is_a_problem(name):
    made = {seed: PROBLEMS[name].recipe.make(seed).digest for seed in (0, 3)}
    assert made == {0: digest(name, 0), 3: digest(name, 3)}
    assert made[0] != made[3]


def test_problems_of_a_form_have_arrays_of_one_shape():
    forms: dict = {}
    for name, problem in PROBLEMS.items():
        for seed in (0, 1):
            d = federation(name, seed)
            arrays = (d.x, d.y, d.train.rows, d.test.rows, d.public, d.ids)
            forms.setdefault(problem.form, set()).add(tuple((a.shape, a.dtype.str) for a in arrays))
    assert all(len(shapes) == 1 for shapes in forms.values())
    assert len(forms) == len({form.name for form in forms}) == 4
    for form, ((x, *_, train, test, public, _),) in forms.items():
        assert (x[0], train[0], test[0], public[0]) == (
            (form.rows, *form.shape),
            (form.clients, form.train),
            (form.clients, form.test),
            (form.public,),
        )


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_tenth_is_public_and_its_copies_are_public_too(name):
    """Where a form has room for more public samples they are repeated, never given to a client."""
    data = federation(name, 0)
    held = np.concatenate([*data.train.parts(), *data.test.parts()])
    used = len(held) + round(PUBLIC * len(held) / (1 - PUBLIC))
    own, copies = data.public[data.public < used], data.public[data.public >= used]
    assert abs(len(own) - PUBLIC * used) <= 1
    assert held.max() < used
    assert np.array_equal(data.x[copies], data.x[np.resize(own, len(data.public))[len(own) :]])
    assert np.array_equal(data.y[copies], data.y[np.resize(own, len(data.public))[len(own) :]])
    unused = np.setdiff1d(np.arange(len(data.y)), np.concatenate([held, data.public]))
    assert not data.x[unused].any()


@pytest.mark.parametrize(("name", "angle"), [("rotations", 90), ("unequal", 90), ("pair", 90), ("skewed", 90)])
def test_contexts_are_turned(name, angle):
    data, (_, y) = federation(name, 1), digits()
    places = []
    for i, c in enumerate(data.context):
        pictures, labels = images(data, i)
        places.append(whose(rotate(pictures, -angle * c % 360)))
        assert np.array_equal(labels, y[places[-1]])
    assert len(np.unique(np.concatenate(places))) == sizes(data).sum()


@pytest.mark.parametrize("name", ["labels", "near-labels", "alone"])
def test_contexts_have_names_of_their_own_for_classes(name):
    data, (_, y) = federation(name, 2), digits()
    names: dict = {}
    for i, c in enumerate(data.context):
        pictures, labels = images(data, i)
        for old, new in zip(y[whose(pictures)].tolist(), labels.tolist(), strict=True):
            assert names.setdefault(int(c), {}).setdefault(old, new) == new
    assert all(old == new for old, new in names[0].items())
    moved = {c: {old for old, new in of.items() if old != new} for c, of in names.items()}
    if name == "near-labels":
        assert len(moved[1]) == 2
    else:
        assert len({tuple(sorted(of.items())) for of in names.values()}) == PROBLEMS[name].contexts


def test_writers_are_blocks_of_the_file():
    data = federation("writers", 0)
    blocks = [np.unique(np.searchsorted(WRITERS, whose(images(data, i)[0]), side="right")) for i in range(10)]
    assert all(len(b) == 1 for b in blocks)
    assert len({int(b[0]) for b in blocks}) == 10


def test_sizes():
    assert (SIZES[0], SIZES[-1]) == (5, 500)
    for name in ("sizes", "sizes-iid"):
        first, second = (sizes(federation(name, seed)) for seed in (0, 1))
        assert sorted(first) == sorted(second) == sorted(SIZES)
        assert first.tolist() != second.tolist()
    for name, wanted in {"much": {500}, "much-iid": {500}, "many": {30}, "ten": {40}, "cancer": {12, 13}}.items():
        assert set(sizes(federation(name, 0))) == wanted
    assert all(len(set(labels)) <= 3 for labels in (images(federation("three-classes", 0), i)[1] for i in range(40)))


def test_personal_shifts_differ_inside_a_context():
    data = federation("personal", 0)
    means = np.stack([images(data, i)[0].mean(axis=0) for i in range(40)])
    upright = means[data.context == 0]
    plain = np.stack([images(federation("rotations", 0), i)[0].mean(axis=0) for i in range(40)])
    assert upright.std(axis=0).mean() > 2 * plain[data.context == 0].std(axis=0).mean()


def test_changes_by_hand():
    rng = np.random.default_rng(0)
    x = np.array([[3.0, 0.0], [-3.0, 0.0]], np.float32)  # spread 3
    (shift,) = shifts(1, 0.5, x, rng)
    moved, y = shift(x, np.array([0, 1]))
    assert np.allclose(np.linalg.norm(moved - x, axis=1), 1.5)
    assert y.tolist() == [0, 1]
    same, flipped = renamed(2, x, 2, rng)
    assert [same(x, y)[1].tolist(), flipped(x, y)[1].tolist()] == [[0, 1], [1, 0]]
    picture = np.arange(4, dtype=np.float32).reshape(1, 2, 2)
    four = crossed(turned(90), renamed)(4, picture, 2, rng)
    seen = [(a.ravel().tolist(), b.tolist()) for a, b in (change(picture, np.array([0])) for change in four)]
    upright, turned_once = [0, 1, 2, 3], [1, 3, 0, 2]
    assert seen == [(upright, [0]), (upright, [1]), (turned_once, [0]), (turned_once, [1])]
    parts = by_size([1, 2, 3])(np.zeros(6), 3, 0)
    assert sorted(map(len, parts)) == [1, 2, 3]
    assert sorted(np.concatenate(parts)) == list(range(6))


def test_tables_are_standardised():
    x, y = gaussian(1001, 5, 3, 4.0, np.random.default_rng(0))
    assert np.allclose([x.mean(axis=0), x.std(axis=0) - 1], 0, atol=1e-5)
    assert np.bincount(y).tolist() == [334, 334, 333]
    x, y = cancer()
    assert x.shape == (569, 30)
    assert np.bincount(y).tolist() == [212, 357]
    assert np.allclose([x.mean(axis=0), x.std(axis=0) - 1], 0, atol=1e-5)


def test_problems_by_name():
    assert [p.name for p in chosen(())] == list(PROBLEMS)
    assert [p.name for p in chosen(["iid", "rotations"])] == ["rotations", "iid"]
    with pytest.raises(CgpflError, match=r"battery: no problem 'idd'; there are rotations, "):
        chosen(["idd"])
