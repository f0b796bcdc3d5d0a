"""Contexts by cross-fitting on evidence that was made: X[f, i] = common + centre of i's context + i's own + noise.

What a client says of all samples but a fold is the mean of what it says of the others, here: a linear model's.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.cluster import KMeans as Oracle
from sklearn.metrics import adjusted_rand_score

from cgpfl.contexts import cross_fit, crossfit, placed, prediction
from cgpfl.contexts.crossfit import rand_index
from cgpfl.contexts.evidence import FLOOR
from cgpfl.contexts.frames import Frame, leading, scaled, signal_and_noise
from cgpfl.contexts.prediction import chosen, differ, forgotten, gradients, gradual, products, worthwhile

FOLDS, MOST, PLACES, P = 5, 6, 40, 30


def made(sizes, seed=0, *, own=0.0, noise=1.0, apart=1.0, common=1.0, folds=FOLDS):
    """(X [F, N, P], labels [N], X without noise [N, P]); ``noise`` is one number or one for each client."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    pure = common * rng.standard_normal(P) + apart * rng.standard_normal((len(sizes), P))[labels]
    pure = pure + own * rng.standard_normal((len(labels), P))
    spread = np.broadcast_to(noise, len(labels))[:, None]
    return pure + spread * rng.standard_normal((folds, len(labels), P)), labels, pure


def parts_of(x):
    """Updates ``[2F, N, P]`` on folds, and on all but each."""
    return jnp.concatenate([x, (x.sum(axis=0) - x) / (len(x) - 1)])


@partial(jax.jit, static_argnames=("largest", "given"))
def program(x, heard, key, ids, largest, given=None, noised=False):
    return cross_fit(parts_of(x), heard, key, largest=largest, given=given, ids=ids, restarts=16, noised=noised)


def found(x, seed=0, ids=None, garbage=50.0, noised=False):
    """Cross-fitted in one program for all sizes: 40 places, and who is not there was not heard."""
    n = x.shape[1]
    x = np.concatenate([x, garbage * np.ones((FOLDS, PLACES - n, P))], axis=1)
    heard = np.arange(PLACES) < n
    ids = np.arange(PLACES) if ids is None else np.concatenate([ids, np.arange(n, PLACES)])
    where = jnp.asarray(heard), jax.random.key(seed), jnp.asarray(ids)
    fit = program(jnp.asarray(x, jnp.float32), *where, MOST, noised=noised)
    assert 0 <= int(fit.labels.min()) <= int(fit.labels.max()) < MOST  # who was not heard, too
    return jax.tree.map(np.asarray, fit), np.asarray(fit.labels)[:n]


@pytest.mark.parametrize(
    "sizes", [(4, 4), (10, 10), (4, 4, 4), (13, 13, 13), (4,) * 5, (8,) * 5, (25, 8, 5), (20, 10, 6, 4)]
)
def test_groups_are_found_as_they_are(sizes):
    """K and every label, equal groups of four on and unequal ones."""
    for seed in range(2):
        x, truth, _ = made(sizes, seed)
        fit, labels = found(x, seed)
        assert fit.k == len(sizes)
        assert not fit.alone
        assert adjusted_rand_score(truth, labels) == 1.0
        assert fit.agreement > 0.95


@pytest.mark.parametrize("noise", [0.1, 1e-3])
def test_contexts_are_found_where_noise_is_little_and_much_is_common(noise):
    """Then K = 1 and everybody's own difference predict nearly as well: what contexts lower is the error."""
    x, truth, _ = made((10, 10), 0, noise=noise, common=5.0)
    fit, labels = found(x)
    assert fit.k == 2
    assert adjusted_rand_score(truth, labels) == 1.0


@pytest.mark.parametrize(("noise", "times"), [(1.0, 20), (1e-3, 5), (1e-5, 5)])
def test_clients_that_are_alike_are_one_context(noise, times):
    """At least 19 times in 20; also where noise is tiny: many samples, few parameters. Float32 must not make groups."""
    ks = [int(found(made((20,), seed, noise=noise)[0], seed)[0].k) for seed in range(times)]
    assert ks.count(1) >= 0.95 * times, ks


def test_alike_but_for_their_noise():
    """Sizes from 5 to 500 samples are noise with a variance a hundredfold: neither contexts nor trust come of it."""
    noise = np.geomspace(0.3, 3, 30)
    ks = [int(found(made((30,), seed, noise=noise)[0], seed)[0].k) for seed in range(10)]
    assert ks.count(1) >= 9, ks


def test_noise_that_differs_a_hundredfold_hides_no_context():
    for seed in range(3):
        noise = np.random.default_rng(seed).permutation(np.geomspace(0.2, 2, 36))
        x, truth, _ = made((12, 12, 12), seed, noise=noise, apart=1.5)
        fit, labels = found(x, seed)
        assert fit.k == 3
        assert adjusted_rand_score(truth, labels) == 1.0


def alone(seed, n=40, noise=1.0):
    """Nothing in common: the shared model has gone to where clients' updates cancel."""
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((n, P))
    return own - own.mean(axis=0) + noise * rng.standard_normal((FOLDS, n, P))


def test_everybody_alone():
    """However much noise there is: what a client says of itself does not count."""
    for noise in (0.1, 1.0, 3.0):
        for seed in range(3):
            fit, labels = found(alone(seed, noise=noise), seed)
            assert fit.alone
            assert fit.k == PLACES
            assert not labels.any()
            assert fit.trust.mean() > (0.5 if noise < 2 else 0.1)


def converged(x):
    """As after a long warm-up: the shared model is where updates cancel."""
    return x - x.mean(axis=(0, 1))


def test_clients_that_are_alike_are_not_alone_when_all_is_learnt():
    """Nothing is left in common, and nobody differs: one context, not N."""
    fits = [found(made((30,), seed, common=0.0, apart=0.0)[0], seed)[0] for seed in range(10)]
    assert not any(fit.alone for fit in fits)
    assert sum(fit.k == 1 for fit in fits) >= 9


def test_who_says_nothing_stands_alone_where_noise_of_privacy_may_hide_it():
    """The evidence of the test before; contexts that are seen are contexts with such noise, too."""
    for seed in range(3):
        fit = found(made((30,), seed, common=0.0, apart=0.0)[0], seed, noised=True)[0]
        assert fit.alone
        assert fit.k == PLACES
    x, truth, _ = made((10, 10))
    assert adjusted_rand_score(truth, found(x, noised=True)[1]) == 1.0


def test_contexts_are_not_everybody_alone_when_all_is_learnt():
    """What one context says is nothing then, what two say is not; also with eight clients."""
    for seed in range(4):
        for noise in (0.3, 1.0):
            x, truth, _ = made((4, 4), seed, noise=noise)
            fit, labels = found(converged(x), seed)
            assert fit.k == 2
            assert adjusted_rand_score(truth, labels) == 1.0


def test_a_client_says_more_of_itself_by_two_standard_errors():
    """Own words less the others': 2 on average, by 1/√3 or 2/√3 of an error; who was not heard does not count."""
    for more, certain in (([1, 3, 1, 3, 90], True), ([0, 4, 0, 4, 90], False)):
        terms = np.zeros((2, 3, 5, 13))
        terms[:, 0, :, 10], terms[:, -1, :, 10] = 0.5, 0.5 + np.array(more)
        terms[0, -1, :, 10] += 7  # folds are averaged
        terms[1, -1, :, 10] -= 7
        assert bool(differ(jnp.asarray(terms), jnp.array([1.0, 1, 1, 1, 0]))) == certain


def test_what_all_have_in_common_is_gone_at_last_by_hand(monkeypatch):
    """Two clients, of whom folds say 2 and 0, all but a fold a and a − 6: what lasts in common is 2·a·(a − 6).

    About their means they are ±1 and ±3, so 3 each, of their own, and twice that (a mean of two has half of each): 12.
    At trust ½ 0.12 of it must last, 1.44; at ¾, where a pull is a third as strong, a ninth of that, 0.16.
    """
    monkeypatch.setattr(prediction, "ENOUGH", 2)
    x = np.ones((3, 2, 1), np.float32) * np.array([[2], [0]], np.float32)
    cases = ((1.4, 0.5, True), (1.5, 0.5, False), (1.4, 0.75, False), (0.15, 0.75, True), (-1.0, 0.99, True))
    for lasts, trust, gone in (
        *cases,
        (-11.9, 0.5, True),
        (-12.1, 0.5, False),
    ):  # less than −12/(2 − 1): updates cancel
        first = np.roots([1.0, -6.0, -lasts / 2]).max()  # a·(a − 6) is half of what lasts
        most = np.tile(np.array([[first], [first - 6.0]], np.float32), (3, 1, 1))
        assert bool(forgotten(x, most, np.ones(2), np.float32(trust))) == gone
        more = np.concatenate([x, 9 * x[:, :1]], axis=1), np.concatenate([most, 9 * most[:, :1]], axis=1)
        assert bool(forgotten(*more, np.array([1.0, 1, 0]), np.float32(trust))) == gone  # who was not heard
    monkeypatch.setattr(prediction, "ENOUGH", 3)
    assert not forgotten(x, most, np.ones(2), np.float32(0.5))


def fading(seed, lasts):
    """30 clients alone, whose folds have a direction in common; of it ``lasts`` is left in the last round."""
    rng = np.random.default_rng(seed)
    common, own = rng.standard_normal(P), rng.standard_normal((30, P))
    x = common + own - own.mean(axis=0) + 1.5 * rng.standard_normal((3, 30, P))
    most = (x.sum(axis=0) - x) / 2 - np.array([0.0, 0.5, 1.0 - lasts])[:, None, None] * common
    return jnp.asarray(np.concatenate([x, most]), jnp.float32)


def test_networks_that_forget_together_stand_alone():
    """By what their folds have in common they would be one context, and are where that lasts."""
    fit = jax.jit(partial(cross_fit, largest=3, restarts=8), static_argnames="layered")
    for seed in range(3):
        for lasts, layered, lonely in ((0.3, True, True), (1.0, True, False), (0.3, False, False)):
            made_of = fit(fading(seed, lasts), jnp.ones(30), jax.random.key(seed), layered=layered)
            assert bool(made_of.alone) == lonely
            assert made_of.k == (30 if lonely else 1)
            assert made_of.shared[0] > prediction.ALONE


def test_alone_is_not_what_differs_and_has_much_in_common():
    """Clients with differences of their own beside a common part as large are one context (by chance two), never N."""
    for seed in range(5):
        fit, _ = found(made((1,) * 30, seed)[0], seed)
        assert not fit.alone
        assert fit.k <= 2
        assert fit.trust[:30].mean() > 0.7


def test_nobody_heard_is_one_context_and_no_trust():
    x, _, _ = made((40,), 0)
    fit = program(
        jnp.asarray(x, jnp.float32), jnp.zeros(40, bool), jax.random.key(0), jnp.arange(40), MOST, noised=False
    )
    assert (int(fit.k), bool(fit.alone)) == (1, False)
    assert not fit.trust.any()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fit))


def truth_of(pure, labels, noise):
    """Squared lengths between contexts, inside, and of noise in the mean of F folds, of what was really drawn."""
    n = len(labels)
    centres = np.stack([pure[labels == k].mean(axis=0) for k in range(labels.max() + 1)])
    sizes = np.bincount(labels)
    inside = ((pure - centres[labels]) ** 2).sum(axis=1) / (1 - 1 / sizes[labels])
    between = ((centres - pure.mean(axis=0)) ** 2).sum(axis=1)[labels]
    parts = np.array([between.sum() / n, inside.sum() / n, P * noise**2 / FOLDS])
    return parts / parts.sum(), inside


@pytest.mark.parametrize("own", [0.5, 1.0])
def test_shares_trust_and_rho2_are_those_of_the_truth(own):
    """Three contexts of twelve with differences inside. Common is large: clients' lengths are nearly equal.

    signal: τ² in each of P coordinates, noise: σ² = 1. Squared lengths of P coordinates have a relative variance of
    about (2τ⁴ + 4τ²σ²/F + 2σ⁴/F(F − 1))/(Pτ⁴) for one client; trust takes τ² less two standard errors of their mean.
    """
    x, labels, pure = made((12, 12, 12), 3, own=own, apart=2.0, common=5.0)
    fit, ours = found(x)
    assert adjusted_rand_score(labels, ours) == 1.0
    (between, within, noise), _ = truth_of(pure, labels, 1.0)
    assert fit.between + fit.within + fit.noise == pytest.approx(1.0, abs=1e-5)
    each = np.sqrt((2 * own**4 + 4 * own**2 / FOLDS + 2 / (FOLDS * (FOLDS - 1))) / P) / own**2
    se = each / np.sqrt(36)
    assert fit.within == pytest.approx(within, rel=3 * se + 0.06)  # 0.06: of lengths, and of the whitening
    assert fit.noise == pytest.approx(noise, rel=0.1)
    assert fit.between == pytest.approx(between, rel=0.1)
    ours_of = 1 / (1 + 1 / (FOLDS - 1) / own**2)
    assert fit.personal[fit.k - 1] == pytest.approx(ours_of, abs=3 * se * ours_of * (1 - ours_of) + 0.04)
    trust = fit.trust[:36]
    low, high = (t / (t + 1 / FOLDS) for t in (own**2 * (1 - 5 * se), own**2 * (1 + se)))
    assert low - 0.03 < np.median(trust) < high + 0.03
    assert (fit.trust[36:] == 0).all()  # nobody's


def test_no_trust_where_clients_do_not_differ_inside():
    fits = [found(made((10, 10, 10), seed, apart=2.0)[0], seed)[0] for seed in range(10)]
    trusted = np.array([fit.trust[:30] for fit in fits])
    assert (trusted > 0.05).mean() < 0.02
    assert np.mean([fit.within for fit in fits]) < 0.02


def test_a_stranger_is_trusted_and_its_context_is_not():
    """One client of twenty that differs from all: not enough for a context; its own model is its best."""
    x, _, _ = made((20,), 1, noise=0.7)
    x[:, 7] += np.random.default_rng(9).standard_normal(P)
    fit, _ = found(x)
    if fit.k == 1:
        assert fit.trust[7] > 0.7
        assert np.delete(fit.trust[:20], 7).max() < 0.2
    else:
        assert (fit.labels[:20] == fit.labels[7]).sum() == 1


@pytest.mark.parametrize("sizes", [(20,), (10, 10), (25, 8, 5)])
def test_units_do_not_matter(sizes):
    for scale in (1e-3, 1e3):
        x, _, _ = made(sizes, 4)
        (one, labels), (other, scaled) = found(x), found(scale * x, garbage=1.0)
        assert one.k == other.k
        np.testing.assert_array_equal(labels, scaled)
        np.testing.assert_allclose(one.score, other.score, rtol=1e-3)
        np.testing.assert_allclose(one.trust, other.trust, atol=1e-3)


def test_another_order_of_clients():
    """With their ids the very same result; with other draws the same partition where groups are clear."""
    order = np.random.default_rng(0).permutation(38)
    x, truth, _ = made((25, 8, 5), 5)
    (one, labels), (other, moved) = found(x), found(x[:, order], ids=order)
    np.testing.assert_array_equal(labels[order], moved)
    np.testing.assert_allclose(one.score, other.score, rtol=1e-4)
    np.testing.assert_allclose(one.trust[:38][order], other.trust[:38], atol=1e-4)
    fit, fresh = found(x[:, order], seed=11)
    assert fit.k == 3
    assert adjusted_rand_score(truth[order], fresh) == 1.0


def test_who_was_not_heard_has_no_influence():
    x, _, _ = made((10, 10), 6, own=0.3)
    (one, labels), (other, same) = found(x, garbage=1.0), found(x, garbage=-1e4)
    for name in ("k", "score", "error", "shared", "personal", "agreement", "between", "within", "noise", "trust"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_array_equal(labels, same)


def test_who_was_not_heard_enough_joins_the_nearest():
    """By what is known of it: here everything, but of samples that repeat."""
    x, truth, _ = made((10, 10, 10), 2)
    heard = np.ones(40, bool)
    heard[[0, 15, 29]] = heard[30:] = False
    x = np.concatenate([x, np.zeros((FOLDS, 10, P))], axis=1)
    fit = program(
        jnp.asarray(x, jnp.float32), jnp.asarray(heard), jax.random.key(0), jnp.arange(40), MOST, noised=False
    )
    assert int(fit.k) == 3
    assert adjusted_rand_score(truth, fit.labels[:30]) == 1.0
    assert not np.asarray(fit.trust)[~heard].any()


TWELVE = tuple(np.repeat([2, 0, 1], 4).tolist())


def twelve(given, x):
    return program(jnp.asarray(x, jnp.float32), jnp.ones(12), jax.random.key(0), jnp.arange(12), 3, given)


def by_loops(x, labels, least=0.5):
    """ρ0, ρ2 and the score for known contexts, from the module's words, client by client in float64."""
    folds, n, _ = x.shape
    variance = np.mean([x[:, i].var(axis=0, ddof=1) for i in range(n)], axis=0)
    x = x / np.sqrt(variance + FLOOR * variance.mean())

    def alike(x, used):
        """Squared length of what repeats, and of what does not, of one client."""
        pairs = [x[f] @ x[g] for f in used for g in used if f != g]
        return np.mean(pairs), np.mean([x[f] @ x[f] for f in used]) - np.mean(pairs)

    predictions, targets, weights = [], [], []
    for g in range(folds):
        used = [f for f in range(folds) if f != g]
        signal = np.array([alike(x[:, i], used)[0] for i in range(n)])
        scaled = x / np.sqrt(np.maximum(signal, np.median(signal) / 4))[:, None]
        apart = scaled - scaled.mean(axis=1, keepdims=True)
        ours = [alike(apart[:, i], used) for i in range(n)]
        usual = max(np.median([s for s, _ in ours]), 1e-3 * np.median([v for _, v in ours]))
        w = np.array([1 / (v / len(used) + usual) for _, v in ours])
        w = w / w.mean()
        a = scaled[used].mean(axis=0)
        c = np.stack([np.average(a[labels == labels[i]], axis=0, weights=w[labels == labels[i]]) for i in range(n)])
        m = np.broadcast_to(np.average(a, axis=0, weights=w), a.shape)
        predictions.append((m, c - m, a - c))
        targets.append(scaled[g])
        weights.append(w)
    fold_client = [(f, i) for f in range(folds) for i in range(n)]

    def least_squares(part):
        if not any(predictions[f][part].any() for f in range(folds)):
            return 0.0
        top = sum(weights[f][i] * (targets[f][i] @ predictions[f][part][i]) for f, i in fold_client)
        return top / sum(weights[f][i] * (predictions[f][part][i] @ predictions[f][part][i]) for f, i in fold_client)

    rho0, rho2 = (np.clip(least_squares(part), 0, 1) for part in (0, 2))
    rho1 = np.clip(least_squares(1), least, 1)
    errors = np.zeros((folds, n))
    for f, i in fold_client:
        left = targets[f][i] - sum(r * part[i] for r, part in zip((rho0, rho1, rho2), predictions[f], strict=True))
        errors[f, i] = weights[f][i] * (left @ left)
    nothing = sum(weights[f][i] * (targets[f][i] @ targets[f][i]) for f, i in fold_client)
    return rho0, rho2, errors.sum() / nothing


@pytest.mark.parametrize("own", [0.5, 0.0])
def test_the_score_is_what_loops_say(own):
    x, _, _ = made((4, 4, 4), 7, own=own, noise=np.geomspace(0.5, 2, 12))
    fit = twelve(TWELVE, x)
    rho0, rho2, score = by_loops(x.astype(np.float32).astype(float), np.array(TWELVE))
    np.testing.assert_allclose(fit.shared[:3], rho0, rtol=1e-4)
    np.testing.assert_allclose(fit.personal[:3], rho2, rtol=1e-4)
    np.testing.assert_allclose(fit.score[:3], score, rtol=1e-4)
    assert 0.3 < rho2 < 0.9 if own else rho2 < 0.3
    assert 0.9 < rho0 <= 1
    lonely = by_loops(x.astype(np.float32).astype(float), np.arange(12), least=0.0)
    np.testing.assert_allclose(fit.score[3], lonely[2], rtol=1e-4)
    np.testing.assert_allclose(fit.shared[3], lonely[0], rtol=1e-4)


def test_contexts_that_are_given_are_kept():
    x, truth, _ = made((4, 4, 4), 8, apart=2.0)
    labels = twelve(TWELVE, x)
    np.testing.assert_array_equal(labels.labels, TWELVE)
    assert int(labels.k) == 3
    number = twelve(3, x)
    assert int(number.k) == 3
    assert adjusted_rand_score(truth, number.labels) == 1.0
    np.testing.assert_allclose(number.score[2], labels.score[2], rtol=1e-4)
    for alike in (made((12,), 0)[0], made((1,) * 12, 0, common=0.0)[0]):  # K is what was said, also where it is wrong
        fit = twelve(3, alike)
        assert int(fit.k) == 3
        assert not bool(fit.alone)
        assert len(np.unique(fit.labels)) == 3


def test_without_noise_contexts_are_k_means():
    """K given and every fold the same: scikit-learn's partition."""
    for seed in range(5):
        x, _, pure = made((5, 4, 3), seed, own=0.4, noise=0.0, common=5.0)
        fit = twelve(3, x)
        oracle = Oracle(3, n_init=20, random_state=0).fit(pure / np.linalg.norm(pure, axis=1, keepdims=True))
        assert adjusted_rand_score(oracle.labels_, fit.labels) == 1.0
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fit))
        assert float(fit.trust.min()) > 0.99  # all that is seen is there


def test_evidence_without_any_signal_is_finite():
    for x in (np.zeros((FOLDS, 12, P)), np.ones((FOLDS, 12, P)), 1e6 * np.ones((FOLDS, 12, P))):
        fit = twelve(3, x)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fit))


@pytest.fixture
def samples_of_24(monkeypatch):
    """Very many clients are more than 24."""
    monkeypatch.setattr(crossfit, "SAMPLE", 24)
    program.clear_cache()
    yield
    program.clear_cache()


@pytest.mark.slow
def test_a_sample_of_very_many_clients_says_where_everybody_belongs(samples_of_24):
    for (sizes, own), k in {((16, 12, 10), 0.0): 3, ((20, 18), 0.3): 2, ((38,), 0.0): 1}.items():
        x, truth, _ = made(sizes, 9, own=own)
        fit, labels = found(x)
        assert fit.k == k
        assert adjusted_rand_score(truth, labels) == 1.0
        assert fit.trust.shape == (PLACES,)
        assert (fit.trust[38:] == 0).all()
        (between, _, _), _ = truth_of(x.mean(axis=0), truth, 1.0)  # of everybody, not of the sample
        assert fit.between == pytest.approx(between, abs=0.15)
    assert found(alone(0, noise=1.5))[0].k == PLACES


def mend(x, heard, labels, k, slots):
    return jax.jit(placed, static_argnames="slots")(
        parts_of(jnp.asarray(x, jnp.float32)), jnp.asarray(heard), jnp.asarray(labels), jnp.int32(k), slots=slots
    )


@pytest.mark.parametrize("most", [512, 10])
def test_going_on_from_contexts_mends_them(most, monkeypatch):
    """k-means from labels of which some are wrong: they are put right; who was not heard joins the nearest."""
    monkeypatch.setattr(crossfit, "SAMPLE", most)
    x, truth, _ = made((8, 8, 8), 10)
    wrong, heard = truth.copy(), np.ones(24)
    wrong[[0, 9]] = 2
    wrong[20], heard[20] = 0, 0
    np.testing.assert_array_equal(mend(x, heard, wrong, 3, 12), truth)


def test_signal_and_noise_by_hand():
    """Two folds, one client: (3, 1) and (1, 1). Repeats: ⟨(3, 1), (1, 1)⟩ = 4; the rest of (10 + 2)/2 is noise."""
    x = jnp.asarray([[[3.0, 1.0]], [[1.0, 1.0]], [[100.0, 0.0]]])
    signal, noise = signal_and_noise(x, jnp.asarray([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(signal, [4.0])
    np.testing.assert_allclose(noise, [2.0])


def test_a_clients_noise_does_not_meet_itself_by_hand():
    """Signals (1, 1, −2) in folds and twice that on all samples; client 0 has noise in its folds, and in the whole.

    Folds say S_ij = s_i s_j also of i = j, the whole 4 s_i s_j of i ≠ j, and of client 0 itself 4 + 25: γ = 4.
    """
    x = jnp.asarray([[[1, 3, 0], [1, 0, 0], [-2, 0, 0]], [[1, 0, 3], [1, 0, 0], [-2, 0, 0]]], jnp.float32)
    whole = jnp.asarray([[2, 5, 0], [2, 0, 0], [-4, 0, 0]], jnp.float32)
    places = np.asarray(leading(x, whole, jnp.ones(2), jnp.ones(3), 2))
    np.testing.assert_allclose(places[:, 0] * np.sign(places[0, 0]), [2, 2, -4], rtol=1e-5)
    np.testing.assert_allclose(places[:, 1], 0, atol=2e-3)


def test_evidence_by_its_parts_by_hand():
    """Three folds; the whole is the mean by samples: (2 + 4 + 6)/3 of a third each, (3 + 6 + 9)/3 of two thirds."""
    updates = jnp.asarray([2.0, 4, 6, 3, 6, 9])[:, None, None]
    x, most, whole = scaled(updates, jnp.ones(1))
    np.testing.assert_allclose(x / x[0], [[[1]], [[2]], [[3]]], rtol=1e-6)
    np.testing.assert_allclose(most / x[0], [[[1.5]], [[3]], [[4.5]]], rtol=1e-6)
    np.testing.assert_allclose(whole / x[0, 0], [[(4 + 2 * 6) / 3 / 2]], rtol=1e-6)


@pytest.mark.parametrize("differ", [0.14, 0.16])
def test_contexts_that_are_not_found_again_are_not_real_where_clients_differ(differ):
    """Directions gain nothing, so contexts gain enough; what is left is whether they are found again."""
    terms, score = jnp.zeros((3, 5, 4, 13)), jnp.asarray([1.0, 0.9, 0.8, 0.7, 1.0])
    agreement = jnp.asarray([1.0, 0.71, 0.69, 0.2])
    real = worthwhile(terms, score, jnp.full(5, differ), jnp.zeros((2, 3)), agreement)
    assert real.tolist() == [True, True, *[differ < 0.15] * 2]


def test_agreement_is_scikit_learns():
    rng = np.random.default_rng(0)
    index = jax.jit(partial(rand_index, slots=4))
    for _ in range(20):
        a, b = rng.integers(0, 4, (2, 15))
        b = np.where(rng.random(15) < 0.5, a, b)
        away = (np.arange(15) >= 12).astype(float)
        ours = index(jnp.asarray(a), jnp.asarray(b), weights=jnp.asarray(1 - away))
        assert float(ours) == pytest.approx(adjusted_rand_score(a[:12], b[:12]), abs=1e-5)
    one, other = jnp.zeros(6, int), jnp.asarray([0, 0, 0, 1, 1, 1])
    assert [float(index(x, y, weights=jnp.ones(6))) for x, y in ((one, one), (one, other), (other, other))] == [1, 0, 1]


def test_the_standard_error_by_hand():
    """Two folds, three clients. Means of clients 1, 2, 6: sd √7, of their mean √(7/3). Of folds 1 and 5: sd √8, √4 = 2.

    A client not heard is a 0 among four: the sum over three of four, and the folds' means are 3/4 of what they were.
    """
    values = jnp.asarray([[[0.0, 1.0, 2.0]], [[2.0, 3.0, 10.0]]])
    np.testing.assert_allclose(prediction.standard_error(values, jnp.ones(3)), [2.0], rtol=1e-6)
    level = jnp.asarray([[[1.0, 2.0, 6.0]], [[1.0, 2.0, 6.0]]])
    np.testing.assert_allclose(prediction.standard_error(level, jnp.ones(3)), [np.sqrt(7 / 3)], rtol=1e-6)
    more = jnp.concatenate([level, jnp.zeros((2, 1, 1))], axis=2)
    one_away = prediction.standard_error(more, jnp.asarray([1.0, 1, 1, 0]))
    np.testing.assert_allclose(one_away, [0.75 * np.sqrt(7 / 3)], rtol=1e-6)


choosing = jax.jit(chosen)


def choice(means, wobble, others=(1.0,) * 5, personal=0.0, real=(True,) * 4):
    """Errors of K = 1..4 and N with these means; clients' differ by ± ``wobble`` in turn, the same in each fold."""
    signs = np.array([1, -1, 1, -1])
    errors = np.asarray(means)[None, :, None] + np.asarray(wobble)[None, :, None] * signs
    tiled = np.tile(errors, (3, 1, 1))
    parts = (tiled, others, np.full(5, personal), np.ones(4))
    return choosing(*(np.asarray(v, np.float32) for v in parts), np.asarray(real, bool))


def test_the_smallest_that_none_beats():
    """Where clients of a context hardly differ any gain counts, but over one context."""
    means = [1.0, 0.6, 0.5, 0.49, 0.0]
    steady = [0.0] * 5
    assert [int(v) for v in choice(means, steady)] == [4, 0]
    assert int(choice(means, [0, 0, 0, 0.1, 0])[0]) == 4
    assert int(choice(means, [0, 1.0, 1.0, 1.0, 0])[0]) == 1  # 0.51 within 0.577, see below; N is no candidate here
    assert int(choice(means, [0, 0.6, 0.6, 0.6, 0])[0]) == 4  # 0.4 is beyond 0.346
    assert int(choice([0.5, 0.6, 0.7, 0.8, 0.0], steady)[0]) == 1


def test_two_standard_errors_where_clients_differ_inside_contexts():
    """Differences of four clients ± w about their mean: standard error w·√(4/3)/√4 = 0.577 w, two are 1.155 w."""
    means, differ = [1.0, 0.6, 0.5, 0.49, 0.0], partial(choice, personal=0.16)
    assert int(differ(means, [0.0] * 5)[0]) == 4
    assert int(differ(means, [0, 0, 0, 0.1, 0])[0]) == 3  # 0.01 of 4 over 3 is within 0.1155; 3's 0.1 over 2 is not
    assert int(differ(means, [0, 0, 0.2, 0.2, 0])[0]) == 2  # 0.1 and 0.11 are within 0.231
    assert int(differ(means, [0, 0, 0.2, 0.09, 0])[0]) == 3  # 4 beats 2, 0.11 over 0.104, but not 3: 0.01 and 0.127
    means = [1.0, 0.8, 0.9, 0.95, 0.96]  # 2 gains 0.2 over 1, for which one is enough: 0.173 or 0.231
    for personal in (0.14, 0.16):
        assert int(choice(means, [0.3, 0, 0, 0, 0], personal=personal)[0]) == 2
        assert int(choice(means, [0.4, 0, 0, 0, 0], personal=personal)[0]) == 1


def test_a_number_of_contexts_that_is_not_real_is_not_taken():
    means, steady = [1.0, 0.6, 0.5, 0.49, 0.0], [0.0] * 5
    assert int(choice(means, steady, real=(True, True, True, False))[0]) == 3
    assert int(choice(means, steady, real=(True, True, False, False))[0]) == 2
    assert int(choice(means, steady, real=(False,) * 4)[0]) == 1  # one may always be taken
    differ = choice(means, [0, 0, 0.2, 0.2, 0], personal=0.16, real=(True, False, True, True))
    assert int(differ[0]) == 4  # else 2: see above
    silent = [0.2, 0.9, 0.9, 0.9, 0.9]  # but where one says nothing, and contexts do: a gradual difference has one
    assert [int(v) for v in choice([1, 0.5, 0.6, 0.9, 0.96], [3.0, 0, 0, 0, 0], silent, real=(1, 0, 0, 0))] == [2, 0]


@jax.jit
def gained(frame, target, labels):
    """Gains of K = 1..4 by one fold left out."""
    terms = jnp.stack([products(frame, target, labels, 3), products(frame, target, labels * 0, 3)])[::-1, None]
    return gradients(frame, target), gradual(terms.transpose(1, 0, 2, 3), gradients(frame, target), 5)


def test_gradual_differences_by_numpy():
    """Twelve clients, three directions: by QR, and by least squares with every prediction written out."""
    rng = np.random.default_rng(5)
    n, p, r = 12, 30, 3
    own = rng.standard_normal((n, 2)) @ rng.standard_normal((2, p)) + 0.3 * rng.standard_normal((n, p)) + 1
    target, w = own + 0.5 * rng.standard_normal((n, p)), rng.uniform(0.5, 2, n)
    places, labels = rng.standard_normal((n, r)), jnp.arange(n) % 3
    frame = Frame(*(jnp.asarray(v, jnp.float32) for v in (own, w, places)))
    along, gains = gained(frame, jnp.asarray(target, jnp.float32), labels)
    apart, left = own - w @ own / w.sum(), target - w @ own / w.sum()
    v = np.linalg.qr(apart.T @ (w[:, None] * places))[0]  # [p, r]
    c, b = apart @ v, left @ v
    np.testing.assert_allclose(along, [w @ c**2, w @ (c * b)], rtol=2e-4)

    def error(k):
        rest = apart - c[:, :k] @ v[:, :k].T
        parts = [c[:, j : j + 1] * v[:, j] for j in range(k)] + [rest]
        for part in parts:
            s = np.clip((w @ (part * left).sum(1)) / (w @ (part**2).sum(1)), 0, 1)
            yield s * part

    def loss(k):
        return w @ ((left - sum(error(k))) ** 2).sum(axis=1) / (w @ (target**2).sum(axis=1))

    np.testing.assert_allclose(gains[:4], [loss(0) - loss(k) for k in range(4)], rtol=1e-3, atol=1e-6)
    assert gains[4] == gains[3]  # there are no more directions
    assert gains[3] > 1e-4


def along_a_plane(seed, groups=0):
    """40 clients that differ along two directions: gradually, or in groups and a little by themselves."""
    rng = np.random.default_rng(seed)
    where = 1.5 * rng.standard_normal((40, 2))
    if groups:
        where = 1.5 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])[np.arange(40) % groups] + 0.1 * where
    pure = rng.standard_normal(P) + where @ rng.standard_normal((2, P)) + 0.5 * rng.standard_normal((40, P))
    return pure + rng.standard_normal((FOLDS, 40, P))


def test_a_gradual_difference_is_no_context():
    for seed in range(3):
        fit, _ = found(along_a_plane(seed))
        assert fit.personal[0] > prediction.DIFFER
        assert fit.k == 1
        fit, labels = found(along_a_plane(seed, groups=4))
        assert fit.k == 4
        assert adjusted_rand_score(np.arange(40) % 4, labels) == 1.0


@pytest.mark.slow
def test_a_gradual_difference_would_be_sliced(monkeypatch):
    """Slices predict better than one context, by more than two standard errors."""
    monkeypatch.setattr(prediction, "WORTH", -1.0)
    program.clear_cache()
    assert all(found(along_a_plane(seed))[0].k > 1 for seed in range(3))
    program.clear_cache()


def test_alone_is_where_others_say_nothing_and_no_contexts_predict_better_than_oneself():
    means, wobble = [1.0, 0.8, 0.9, 0.95, 0.96], [0.5, 0, 0, 0, 0]  # 2 gains 0.2 over 1, within 0.289: it is 1
    assert [int(v) for v in choice(means, wobble)] == [1, 0]
    assert [int(v) for v in choice(means, wobble, [0.2, 0.2, 0.9, 0.9, 0.9])] == [1, 1]  # 2 is best, and says nothing
    assert [int(v) for v in choice(means, wobble, [0.2, 0.9, 0.9, 0.9, 0.9])] == [2, 0]  # it does: 0.8, alone 0.96
    worse = [1.0, 0.8, 0.9, 0.95, 0.79]
    assert [int(v) for v in choice(worse, wobble, [0.2, 0.9, 0.9, 0.9, 0.9])] == [1, 1]  # alone is better than 2
    doubt = [0.5, 0, 0, 0, 0.3]
    assert [int(v) for v in choice(means, doubt, [0.2, 0.9, 0.9, 0.9, 0.9])] == [1, 1]  # 0.16 within 0.173
