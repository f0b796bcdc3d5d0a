"""Random bits as plain steps are JAX's own, to the bit."""

import jax
import numpy as np
import pytest
from jax.extend.core.primitives import threefry2x32_p

import cgpfl.engine.round  # noqa: F401  which replaces JAX's own
from cgpfl.engine.hashing import hash_without_loop, threefry

ZERO, ONES = np.uint32(0), np.uint32(0xFFFFFFFF)
KNOWN = {
    (ZERO, ZERO, ZERO, ZERO): (0x6B200159, 0x99BA4EFE),
    (ONES, ONES, ONES, ONES): (0x1CB996FC, 0xBB002BE7),
    (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3): (0xC4923A9C, 0x483DF7A0),
}
"""Known answers of Threefry-2x32 with 20 rounds, of Random123's kat_vectors."""


@pytest.mark.parametrize("hashed", [threefry, jax.jit(threefry2x32_p.bind)], ids=["steps", "program"])
def test_the_published_answers(hashed):
    found = hashed(*np.array(list(KNOWN), np.uint32).T)
    np.testing.assert_array_equal(np.transpose(found), list(KNOWN.values()))


@pytest.mark.parametrize("form", [(), (2, 1)])
def test_a_key_for_many_words(form):
    """As in programs: a key is two words, or two for each row, and what it hashes an array of any form."""
    keys = np.arange(2 * np.prod(form, dtype=int), dtype=np.uint32).reshape(2, *form)
    words = np.arange(12, dtype=np.uint32).reshape(2, 2, 3)
    found = jax.jit(threefry2x32_p.bind)(*keys, *words)
    np.testing.assert_array_equal(found, threefry(*np.array([np.broadcast_to(k, (2, 3)) for k in keys]), *words))


def test_programs_have_no_loop_for_random_bits():
    """On a CPU, since rounds are imported; other devices have JAX's own."""
    if jax.default_backend() != "cpu":
        pytest.skip("for CPUs")
    text = jax.jit(lambda k: jax.random.bits(k, (5,))).lower(jax.random.key(3)).as_text()
    assert "stablehlo.while" not in text
    assert "stablehlo.xor" in text
    assert text.count("stablehlo.broadcast_in_dim") < 10  # written as it stands: traced, each constant is broadcast


def test_a_jax_without_these_names_keeps_its_own(monkeypatch):
    from jax.extend.core import primitives

    monkeypatch.delattr(primitives, "threefry2x32_p")
    hash_without_loop()
