"""The paper's five settings: what is stated is what is run."""

import dataclasses

import jax
import numpy as np
import pytest

from cgpfl.data import Source
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import normalised, replace
from cgpfl.paper.cells import federation
from cgpfl.paper.published import LAMBDAS
from cgpfl.paper.settings import (
    FAMILY,
    FULL,
    ORIGINS,
    Rates,
    at_k,
    competitors,
    family,
    first_rates,
    l2sgd_coin,
    settings,
    small,
)
from cgpfl.paper.split import counts
from cgpfl.paper.table1 import ROWS

NAMES = ("mnist-mlr", "mnist-dnn", "fmnist-mlr", "fmnist-dnn", "cifar10-cnn")


def values(method, *names):
    return tuple(getattr(method, name) for name in names)


def test_the_five_settings():
    full = settings(quick=False)
    assert tuple(full) == NAMES
    assert [s.data.source for s in full.values()] == ["mnist", "mnist", "fashion-mnist", "fashion-mnist", "cifar10"]
    assert [s.model for s in full.values()] == ["mlr", "dnn", "mlr", "dnn", "cnn"]
    assert [s.rounds for s in full.values()] == [200] * 4 + [300]
    assert [s.eval_every for s in full.values()] == [5] * 4 + [75]  # nothing is drawn over the CNN's rounds
    assert [s.tune_rounds for s in full.values()] == [None] * 4 + [100]
    assert [(s.seeds, s.first_seeds) for s in full.values()] == [(None, None)] * 4 + [(None, 1)]
    assert [s.lr for s in full.values()] == [0.005] * 4 + [0.03]
    assert [s.adapt_rate for s in full.values()] == [0.1] * 4 + [0.03]
    assert [s.lambdas for s in full.values()] == [*LAMBDAS.values(), ()]
    assert [s.ks for s in full.values()] == [tuple(range(1, 21))] * 4 + [()]
    assert [s.title for s in full.values()] == ["MNIST-MLR", "MNIST-DNN", "FMNIST-MLR", "FMNIST-DNN", "CIFAR10-CNN"]
    assert all(s.pixels is None for s in full.values())


def test_the_papers_split(sets):
    """60,000 samples over 40 clients, three neighbouring classes each, 400 to 5000 samples, a quarter to test on."""
    x = np.zeros((60_000, 1, 1), np.uint8)
    sets(Source(x, np.repeat(np.arange(10), 6000), 10, 1 / 255, 0.0))
    for seed in (0, 1):
        data = federation(FULL["mnist-mlr"], seed)
        table = counts(data)
        assert table.shape == (40, 10)
        for i, row in enumerate(table):
            assert set(np.flatnonzero(row)) == {i % 10, (i + 1) % 10, (i + 2) % 10}
        sizes = table.sum(axis=1)
        assert sizes.min() >= 400
        assert sizes.max() <= 5000
        assert sizes.sum() == 60_000
        assert sizes.max() > 4 * sizes.min()
        np.testing.assert_allclose(data.test.counts / sizes, 0.25, atol=0.002)
    assert not np.array_equal(counts(federation(FULL["mnist-mlr"], 0)), table)  # the seed is the split's, too


@pytest.mark.parametrize(("name", "lr"), [("mnist-mlr", 0.005), ("cifar10-cnn", 0.03)])
@pytest.mark.parametrize("prox", [12.0, 15.0])
def test_the_family_is_run_as_stated(name, lr, prox):
    own = family(FULL[name], prox)
    assert tuple(own) == FAMILY
    for method in own.values():
        assert values(method, "prox", "personal_rate", "server_rate") == (prox, lr, 1.0)
        assert values(method, "local_rounds", "inner_steps", "batch_size", "warm_start") == (10, 5, 20, True)
    assert own["pfedme"].global_rate == prox * lr
    for label, k in (("cgpfl-2", 2), ("cgpfl-4", 4), ("cgpfl-heur", "auto")):
        assert values(own[label], "contexts", "context_rate", "warmup", "mu") == (k, prox * lr, 0, "auto")
    assert family(FULL[name])["cgpfl-4"].prox == 12.0


def test_the_family_with_other_rates_differs_in_them_alone():
    setting, rates = FULL["mnist-dnn"], Rates(1.0, 0.1)
    assert first_rates(setting, 15.0) == (pytest.approx(0.075), 0.005)
    for label, method in family(setting, 15.0, rates).items():
        own = "global_rate" if label == "pfedme" else "context_rate"
        assert replace(family(setting, 15.0)[label], {own: 1.0, "personal_rate": 0.1}) == method
    assert replace(at_k(setting, 3), {"context_rate": 1.0, "personal_rate": 0.1}) == at_k(setting, 3, rates)


def test_a_point_of_the_sweep_over_k_differs_in_k_alone():
    setting = FULL["fmnist-dnn"]
    one, four = at_k(setting, 1), at_k(setting, 4)
    assert replace(one, {"k": 4.0}) == four
    given = family(setting)["cgpfl-4"]
    shared = [f.name for f in dataclasses.fields(given) if f.name != "contexts"]
    assert values(four, *shared) == values(given, *shared)
    four.check(8, 8.0, 1)
    with pytest.raises(CgpflError, match="k = 4: must be at most half the clients, 3"):
        four.check(7, 7.0, 1)


@pytest.mark.parametrize(("name", "lr", "alpha"), [("fmnist-mlr", 0.005, 0.1), ("cifar10-cnn", 0.03, 0.03)])
def test_competitors_have_the_same_rate_and_lambda(name, lr, alpha):
    others = competitors(FULL[name])
    assert tuple(others) == ("local", "fedavg", "ifca", "l2sgd", "apfl", "per-fedavg", "ditto")
    assert {m.rate for label, m in others.items() if label != "l2sgd"} == {lr}
    assert {m.batch_size for m in others.values()} == {20}
    assert values(others["ditto"], "personal_rate", "prox") == (lr, 12.0)
    assert others["l2sgd"].prox == 12.0
    assert others["ifca"].contexts == 4
    assert others["per-fedavg"].adapt_rate == alpha


@pytest.mark.parametrize(("name", "coin"), [("mnist-mlr", 0.108), ("cifar10-cnn", 0.419)])
def test_l2sgd_communicates_as_rarely_as_it_may(name, coin):
    setting = FULL[name]
    assert l2sgd_coin(setting.lr) == coin
    method = competitors(setting)["l2sgd"]
    assert method.coin == coin
    assert method.rate / (1 - coin) == pytest.approx(setting.lr)  # a local step
    assert method.rate * 12 / coin <= 0.5
    rarer = coin - 0.001
    assert setting.lr * (1 - rarer) * 12 / rarer > 0.5
    told = {row[0]: row[3] for row in ORIGINS}
    assert coin in (0.108, 0.419)
    assert "0.108; CIFAR-10 0.419" in told["L2SGD's p"]


@pytest.mark.parametrize("quick", [False, True])
def test_every_method_may_be_run(quick):
    for setting in settings(quick).values():
        clients, rounds = setting.data.clients, setting.rounds
        methods = family(setting) | competitors(setting)
        assert set(ROWS) <= set(methods)
        methods |= {f"{label}-7": m for label, m in family(setting, 7.0).items()}
        methods |= {f"k-{k}": at_k(setting, k) for k in setting.ks}
        for method in methods.values():
            normalised(method)  # its ranges
            if hasattr(method, "check"):
                method.check(clients, float(clients * rounds), rounds)


def test_lambdas_and_ks_share_a_program():
    setting = FULL["mnist-mlr"]
    for label in FAMILY:
        shapes = {jax.tree.structure(family(setting, prox)[label]) for prox in setting.lambdas}
        assert len(shapes) == 1
    assert len({jax.tree.structure(at_k(setting, k)) for k in setting.ks}) == 1
    assert jax.tree.structure(family(setting)["cgpfl-2"]) != jax.tree.structure(family(setting)["cgpfl-4"])


def test_the_small_settings():
    quick = settings(quick=True)
    assert tuple(quick) == NAMES
    for name, setting in quick.items():
        assert setting == small(FULL[name])
        assert setting.data.split == "cyclic"
        samples = 60_000 * setting.data.share
        assert samples <= 6000
        assert 80 * setting.data.clients <= samples  # the smallest client's 80 for everybody
        assert values(setting.data, "smallest", "largest") == (80, 1000)
        assert max(setting.ks, default=0) <= setting.data.clients // 2
        assert values(setting, "lr", "model") == values(FULL[name], "lr", "model")
        if name != "cifar10-cnn":
            assert setting.ks == (1, 2, 4, 10)
            ends = (float(LAMBDAS[name][0]), 12.0, float(LAMBDAS[name][-1]))
            assert setting.lambdas == ends
    assert all(2 <= s.rounds <= 20 and s.rounds >= 5 * s.eval_every - 4 for s in quick.values())
    assert quick["cifar10-cnn"].lambdas == quick["cifar10-cnn"].ks == ()
    for setting in quick.values():
        assert (setting.context_rates, setting.etas) == ((12 * setting.lr, 1.0), (setting.lr, 0.1))
        assert setting.tune_rounds is None


def test_the_origins_say_what_is_run():
    told = {row[0]: row[1] for row in ORIGINS}
    assert len(told) == len(ORIGINS)
    assert told["clients N"] == str(FULL["mnist-mlr"].data.clients)
    assert told["rounds T"] == "200; CIFAR-10 300"
    assert told["lr"] == "0.005; CIFAR-10 0.03"
    assert told["batch size"] == "20"
    assert told["IFCA's K"] == "4"
    origins = {row[0]: row[2] for row in ORIGINS}
    assert set(origins.values()) == {
        "stated in the paper",
        "inherited from the code this line of work shares",
        "chosen by us",
        "not stated: chosen on validation samples",
    }
    unstated = ("2β/N, rate of the copies of context models", "η, rate of the inner steps")
    assert {origins[rate] for rate in unstated} == {"not stated: chosen on validation samples"}
    contexts, etas = (told[rate] for rate in unstated)
    mnist, cifar = FULL["mnist-mlr"], FULL["cifar10-cnn"]
    for text, a, b in ((contexts, mnist.context_rates, cifar.context_rates), (etas, mnist.etas, cifar.etas)):
        assert text == f"{a[0]:g} to {a[-1]:g}; CIFAR-10 {b[0]:g} to {b[-1]:g}"
