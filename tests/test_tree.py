import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl import tree


def test_mix_is_a_matrix_product_and_weighted_mean_ignores_absent():
    stacked = {"a": jnp.arange(6.0).reshape(3, 2), "b": jnp.asarray([1.0, 2.0, 4.0])}
    p = jnp.asarray([[0.5, 0], [0.5, 0], [0, 1.0]])
    mixed = tree.mix(stacked, p)
    np.testing.assert_allclose(mixed["a"], [[1, 2], [4, 5]])
    np.testing.assert_allclose(mixed["b"], [1.5, 4])
    mean = tree.weighted_mean(stacked, jnp.asarray([1.0, 0, 3]), fallback={"a": jnp.zeros(2), "b": jnp.float32(0)})
    np.testing.assert_allclose(mean["b"], (1 + 12) / 4)


def test_weighted_mean_of_nobody_is_the_fallback():
    stacked = {"a": jnp.ones((2, 3))}
    out = tree.weighted_mean(stacked, jnp.zeros(2), {"a": jnp.full(3, 7.0)})
    np.testing.assert_allclose(out["a"], 7)


def test_sizes():
    value = {"a": jnp.zeros((3, 4)), "b": jnp.zeros(5, jnp.int8)}
    assert tree.size(value) == 17
    assert tree.nbytes(value) == 53


def test_all_finite_sees_one_bad_number():
    good = {"a": jnp.ones(4), "n": jnp.ones(2, jnp.int32)}
    assert bool(tree.all_finite(good))
    for bad in (jnp.nan, jnp.inf, -jnp.inf):
        assert not bool(tree.all_finite({**good, "a": good["a"].at[2].set(bad)}))


# switch: a state with numbers, a counter and a typed key; each branch changes all three, in its own way


def idle(state, amount):
    return state


def halve(state, amount):
    return {"v": state["v"] / 2, "n": state["n"] + 1, "key": jax.random.fold_in(state["key"], 1)}


def add(state, amount):
    return {"v": state["v"] + amount, "n": state["n"] * 3, "key": jax.random.fold_in(state["key"], state["n"])}


BRANCHES = [jax.jit(f) for f in (idle, halve, add)]


def states(*shape):
    n = int(np.prod(shape))
    return {
        "v": jnp.arange(2.0 * n).reshape(*shape, 2) + 1,
        "n": jnp.arange(1, n + 1).reshape(shape),
        "key": jax.random.split(jax.random.key(7), shape),
    }


def plain(state):
    """The state in NumPy; keys as their numbers."""
    return {k: np.asarray(jax.random.key_data(v) if k == "key" else v) for k, v in state.items()}


def same(one, other):
    """Two states, or a stack of them and a list."""
    if isinstance(other, list):
        for i, own in enumerate(other):
            same(tree.take(one, i), own)
        return
    assert one.keys() == other.keys()
    for name, value in plain(one).items():
        np.testing.assert_array_equal(value, plain(other)[name], err_msg=name)


def one_by_one(indices, state, amounts):
    """What Python chooses for each element of the lists ``indices`` and ``amounts``."""
    return [BRANCHES[i](tree.take(state, j), a) for j, (i, a) in enumerate(zip(indices, amounts, strict=True))]


def chosen(index, state, amount):
    return tree.switch(index, BRANCHES, state, amount)


def test_switch_of_one_is_jaxs():
    state = tree.take(states(3), 1)
    for index in (0, 1, 2):
        oracle = jax.lax.switch(index, BRANCHES, state, 0.5)
        same(oracle, BRANCHES[index](state, 0.5))
        same(chosen(jnp.int32(index), state, 0.5), oracle)
        same(jax.jit(chosen)(jnp.int32(index), state, 0.5), oracle)


def test_switch_mapped_is_a_choice_for_each():
    state, amounts = states(4), [0.5, -1.0, 2.0, 3.0]
    mapped = jax.jit(jax.vmap(chosen))
    for indices in ([2, 0, 1, 2], [0, 0, 0, 0], [1, 1, 1, 1], [0, 2, 0, 0]):
        same(mapped(jnp.asarray(indices), state, jnp.asarray(amounts)), one_by_one(indices, state, amounts))


def test_switch_mapped_over_some_of_its_arguments():
    state, one = states(3), tree.take(states(3), 2)
    index = jnp.asarray([2, 0, 1])
    for_all = jax.jit(jax.vmap(chosen, in_axes=(None, 0, None)))  # one index
    for i in (0, 1, 2):
        same(for_all(jnp.int32(i), state, 2.0), one_by_one([i] * 3, state, [2.0] * 3))
    out = jax.jit(jax.vmap(chosen, in_axes=(0, None, None)))(index, one, 2.0)  # one state
    same(out, one_by_one([2, 0, 1], tree.repeat(one, 3), [2.0] * 3))
    axes = (0, {"v": None, "n": 0, "key": None}, None)  # a part of the state
    out = jax.jit(jax.vmap(chosen, in_axes=axes))(index, {**one, "n": state["n"]}, 2.0)
    same(out, one_by_one([2, 0, 1], {**tree.repeat(one, 3), "n": state["n"]}, [2.0] * 3))


@pytest.mark.parametrize("rows", [[[0, 2, 1], [1, 1, 2]], [2, 1]], ids=["an index each", "an index a row"])
def test_switch_mapped_twice(rows):
    inner = (None if isinstance(rows[0], int) else 0, 0, None)
    twice = jax.vmap(jax.vmap(chosen, in_axes=inner))
    state = states(2, 3)
    out = jax.jit(twice)(jnp.asarray(rows), state, jnp.asarray([1.0, -2.0]))
    for j, (row, amount) in enumerate(zip(rows, (1.0, -2.0), strict=True)):
        indices = [row] * 3 if isinstance(row, int) else row
        same(tree.take(out, j), one_by_one(indices, tree.take(state, j), [amount] * 3))


def test_switch_in_a_loop():
    """Each element goes its own number of times through the loop, another branch each time."""
    starts, ends = [0, 1, 2, 0], [5, 2, 4, 0]

    def loop(start, end, state):
        def body(carry):
            t, state = carry
            return t + 1, chosen(t % 3, state, 0.5)

        return jax.lax.while_loop(lambda c: c[0] < end, body, (start, state))[1]

    out = jax.jit(jax.vmap(loop))(jnp.asarray(starts), jnp.asarray(ends), states(4))
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        state = tree.take(states(4), i)
        for t in range(start, end):
            state = BRANCHES[t % 3](state, 0.5)
        same(tree.take(out, i), state)


def test_switch_mapped_does_not_compute_what_nobody_takes():
    """The branches tell when they run; JAX's own switch runs them all. A switch inside a branch keeps it so."""
    ran = set()

    def telling(name, value):
        jax.debug.callback(lambda _: ran.add(name), value)
        return value + 1

    inner = [lambda v: v, lambda v: telling("inner", v)]
    branches = [
        lambda v: v,
        lambda v: telling("one", v),
        lambda v: telling("two", v),
        lambda v: tree.switch((v > 0).astype(jnp.int32), inner, v),
    ]

    def who_ran(switch):
        mapped = jax.jit(jax.vmap(lambda i, v: switch(i, branches, v)))

        def ask(indices, values=(0.0, 0.0, 0.0)):
            ran.clear()
            jax.block_until_ready(mapped(jnp.asarray(indices), jnp.asarray(values)))
            jax.effects_barrier()
            return set(ran)

        return ask

    assert {"one", "two"} <= who_ran(jax.lax.switch)([0, 0, 0])
    ours = who_ran(tree.switch)
    assert ours([0, 0, 0]) == set()
    assert ours([0, 2, 0]) == {"two"}
    assert ours([1, 2, 1]) == {"one", "two"}
    assert ours([3, 0, 3]) == set()  # the outer one is taken, its own second branch is not
    assert ours([3, 0, 3], (0.0, 0.0, 1.0)) == {"inner"}
