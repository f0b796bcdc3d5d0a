"""The methods against the papers' pseudo-code, transcribed line by line into NumPy (float64).

Written from the papers, not from the library: plain loops over rounds, clients and steps, one client at a
time, full-batch gradients by hand. A model is a vector w; D[i] is client i's training data, m[i] its size,
cohorts[t] the clients of round t.
"""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import APFL, IFCA, L2SGD, SCAFFOLD, Ditto, FedAvg, FedOpt, PerFedAvg, PFedMe
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, simulate
from cgpfl.engine.problem import draw_cohort, keys_of, round_keys
from cgpfl.models import DNN

N, ROUNDS, SEED = 5, 5, 0
SIZES = (4, 6, 7, 9, 12)
INPUTS, HIDDEN, CLASSES = 4, 5, 3
MODEL = DNN(shape=(INPUTS,), classes=CLASSES, hidden=HIDDEN)
LOCAL = {"rate": 0.3, "local_rounds": 3, "batch_size": 0}
SHAPES = {
    "hidden.weight": (HIDDEN, INPUTS),
    "hidden.bias": (HIDDEN,),
    "output.weight": (CLASSES, HIDDEN),
    "output.bias": (CLASSES,),
}


def slow(*values):
    """Other settings of a method that is tried."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


everyone_or_some = pytest.mark.parametrize("participation", [*slow(1.0), 0.6])


# The problem


def make_clients(sizes, seed):
    """Gaussian inputs; labels by one of two random linear rules, so that clients disagree."""
    rules = np.random.default_rng(7).normal(size=(2, CLASSES, INPUTS))
    rng = np.random.default_rng(seed)
    clients = []
    for i, size in enumerate(sizes):
        x = rng.normal(size=(size, INPUTS)).astype(np.float32)
        clients.append((x, np.argmax(x @ rules[i % 2].T, axis=1)))
    return clients


# With this seed the corner cases occur: IFCA's clients change models, a model stays without clients for a round, and
# a client's last choice is not its best at the end; APFL's α is clipped for some clients and not for others
TRAIN = make_clients(SIZES, seed=179)
DATA = FederatedData.from_clients(TRAIN, test=make_clients([3] * N, seed=2), classes=CLASSES)
D = [(x.astype(np.float64), y) for x, y in TRAIN]
m = np.array(SIZES, np.float64)


# The model: softmax cross-entropy of one hidden layer of ReLUs, and its gradient, by hand


def arrays(w):
    """A vector as a flat dict of arrays."""
    ends = np.cumsum([np.prod(shape) for shape in SHAPES.values()])
    parts = np.split(w, ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(SHAPES.items(), parts, strict=True)}


def forward(p, x):
    before = x @ p["hidden.weight"].T + p["hidden.bias"]
    hidden = np.maximum(before, 0)
    logits = hidden @ p["output.weight"].T + p["output.bias"]
    logits = logits - logits.max(axis=1, keepdims=True)
    return before, hidden, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def f(w, data):
    x, y = data
    return -forward(arrays(w), x)[2][np.arange(len(y)), y].mean()


def grad(w, data):
    x, y = data
    p = arrays(w)
    before, hidden, log_probability = forward(p, x)
    to_logits = (np.exp(log_probability) - np.eye(CLASSES)[y]) / len(y)
    to_before = (to_logits @ p["output.weight"]) * (before > 0)
    g = {
        "hidden.weight": to_before.T @ x,
        "hidden.bias": to_before.sum(axis=0),
        "output.weight": to_logits.T @ hidden,
        "output.bias": to_logits.sum(axis=0),
    }
    return np.concatenate([g[name].ravel() for name in SHAPES])


def weighted_mean(models, weights):
    """Σ m_i w_i / Σ m_i."""
    return sum(weight * model for model, weight in zip(models, weights, strict=True)) / sum(weights)


def mean(models):
    """Σ w_i / |S|."""
    return sum(models) / len(models)


# The library's side


def vectors(tree):
    """The library's models, stacked along any leading axes, as vectors."""
    rows = []
    for name, shape in SHAPES.items():
        layer, kind = name.split(".")
        leaf = np.asarray(tree[layer][kind], np.float64)
        lead = leaf.shape[: leaf.ndim - len(shape)]
        assert leaf.shape == (*lead, *shape)
        rows.append(leaf.reshape(*lead, -1))
    return np.concatenate(rows, axis=-1)


def simulation(method, participation=1.0):
    return Simulation(method, DATA, MODEL, rounds=ROUNDS, seed=SEED, participation=participation)


def personal_models(method, state, participation):
    sim = simulation(method, participation)
    return np.stack([vectors(sim.personal(state, i)) for i in range(N)])


def library(method, participation):
    """The final state, and every client's personal model."""
    state, _, _ = simulate(method, DATA, MODEL, rounds=ROUNDS, seed=SEED, participation=participation)
    assert int(state.diverged) == -1
    return state, personal_models(method, state, participation)


@cache
def initial():
    return vectors(simulation(FedAvg(**LOCAL)).task.initial)


@cache
def cohorts_of(participation):
    """Who takes part in each round: the one random input that the transcriptions share with the library."""
    size = round(participation * N)
    draws = [
        draw_cohort(FedAvg(), None, round_keys(keys_of(SEED), t), jnp.arange(N), jnp.ones(N), size)
        for t in range(ROUNDS)
    ]
    return [[int(i) for i in draw] for draw in draws]


def same(ours, papers, atol=1e-5):
    ours, papers = np.asarray(ours), np.asarray(papers)
    assert ours.shape == papers.shape
    np.testing.assert_allclose(ours, papers, rtol=0, atol=atol)


# Premises


def test_gradient_matches_finite_differences():
    rng = np.random.default_rng(3)
    for data in D:
        w, step = rng.normal(size=initial().size), 1e-6
        directions = np.eye(w.size)
        slopes = [(f(w + step * e, data) - f(w - step * e, data)) / (2 * step) for e in directions]
        np.testing.assert_allclose(grad(w, data), slopes, rtol=0, atol=1e-8)


def test_cohorts_differ_and_leave_somebody_out():
    cohorts = cohorts_of(0.6)
    assert {len(c) for c in cohorts} == {3}
    assert len({tuple(c) for c in cohorts}) > 1
    assert set().union(*cohorts) == set(range(N))
    assert set(cohorts[-1]) != set(range(N))


# FedAvg: McMahan et al. 2017, Algorithm 1 (B = ∞)


def fedavg(w, cohorts, eta, steps):
    for S in cohorts:
        uploads = []
        for i in S:
            w_i = w.copy()
            for _ in range(steps):
                w_i = w_i - eta * grad(w_i, D[i])
            uploads.append(w_i)
        w = weighted_mean(uploads, m[S])
    return w


@everyone_or_some
def test_fedavg(participation):
    state, personal = library(FedAvg(**LOCAL), participation)
    w = fedavg(initial(), cohorts_of(participation), LOCAL["rate"], LOCAL["local_rounds"])
    same(vectors(state.server), w)
    same(personal, np.tile(w, (N, 1)))


# SCAFFOLD: Karimireddy et al. 2020, Algorithm 1, option II


def scaffold(x, cohorts, eta_l, eta_g, K):
    c = np.zeros_like(x)
    c_i = [np.zeros_like(x) for _ in range(N)]
    for S in cohorts:
        delta_y, delta_c = [], []
        for i in S:
            y = x.copy()
            for _ in range(K):
                y = y - eta_l * (grad(y, D[i]) - c_i[i] + c)
            c_plus = c_i[i] - c + (x - y) / (K * eta_l)
            delta_y.append(y - x)
            delta_c.append(c_plus - c_i[i])
            c_i[i] = c_plus
        x = x + eta_g * mean(delta_y)
        c = c + len(S) / N * mean(delta_c)
    return x, c, c_i


@everyone_or_some
def test_scaffold(participation):
    method = SCAFFOLD(**LOCAL, server_rate=0.7)
    state, personal = library(method, participation)
    x, c, c_i = scaffold(initial(), cohorts_of(participation), LOCAL["rate"], 0.7, LOCAL["local_rounds"])
    same(vectors(state.server.model), x)
    same(vectors(state.server.control), c)
    same(vectors(state.clients), c_i)
    same(personal, np.tile(x, (N, 1)))


# FedOpt: Reddi et al. 2021, Algorithm 2 (FedAdagrad, FedYogi, FedAdam), Algorithm 1 with SGD as the server's
# optimizer, and FedAvgM (Hsu et al. 2019)


def fedopt(x, cohorts, eta_l, K, optimizer, eta, beta1, beta2, tau):
    momentum = np.zeros_like(x)
    v = np.full_like(x, tau**2)
    for S in cohorts:
        deltas = []
        for i in S:
            x_i = x.copy()
            for _ in range(K):
                x_i = x_i - eta_l * grad(x_i, D[i])
            deltas.append(x_i - x)
        delta = weighted_mean(deltas, m[S])
        if optimizer == "sgd":
            x = x + eta * delta
            continue
        if optimizer == "momentum":
            momentum = beta1 * momentum - delta  # the pseudo-gradient is −Δ
            x = x - eta * momentum
            continue
        momentum = beta1 * momentum + (1 - beta1) * delta
        if optimizer == "adagrad":
            v = v + delta**2
        if optimizer == "yogi":
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        if optimizer == "adam":
            v = beta2 * v + (1 - beta2) * delta**2
        x = x + eta * momentum / (np.sqrt(v) + tau)
    return x


@everyone_or_some
@pytest.mark.parametrize("optimizer", ["adam", *slow("yogi", "adagrad", "momentum", "sgd")])
def test_fedopt(optimizer, participation):
    # τ is of the order of Δ, so that Yogi's sign takes both values
    method = FedOpt(**LOCAL, optimizer=optimizer, server_rate=0.3, momentum=0.6, decay=0.8, adaptivity=0.05)
    state, personal = library(method, participation)
    cohorts = cohorts_of(participation)
    x = fedopt(initial(), cohorts, LOCAL["rate"], LOCAL["local_rounds"], optimizer, 0.3, 0.6, 0.8, 0.05)
    same(vectors(state.server.model), x)
    same(personal, np.tile(x, (N, 1)))


# Ditto: Li et al. 2021, Algorithm 1 with FedAvg as the solver of the global problem


def ditto(w, cohorts, eta, eta_p, lam, steps):
    v = [w.copy() for _ in range(N)]
    for S in cohorts:
        uploads = []
        for i in S:
            w_i = w.copy()
            for _ in range(steps):
                w_i = w_i - eta * grad(w_i, D[i])
            uploads.append(w_i)
            for _ in range(steps):
                v[i] = v[i] - eta_p * (grad(v[i], D[i]) + lam * (v[i] - w))  # w is w^t, as received
        w = weighted_mean(uploads, m[S])
    return w, v


@everyone_or_some
def test_ditto(participation):
    state, personal = library(Ditto(**LOCAL, prox=0.8, personal_rate=0.2), participation)
    w, v = ditto(initial(), cohorts_of(participation), LOCAL["rate"], 0.2, 0.8, LOCAL["local_rounds"])
    same(vectors(state.server), w)
    same(vectors(state.clients), v)
    same(personal, v)


# APFL: Deng et al. 2020, Algorithm 1 and the adaptive α_i of its section 3; every update of a step uses the
# values from before the step


def apfl(w, cohorts, eta, steps, alpha0, adaptive):
    v = [w.copy() for _ in range(N)]
    alpha = np.full(N, alpha0)
    for S in cohorts:
        uploads = []
        for i in S:
            w_i = w.copy()
            for _ in range(steps):
                g_w = grad(w_i, D[i])
                g_bar = grad(alpha[i] * v[i] + (1 - alpha[i]) * w_i, D[i])
                slope = (v[i] - w_i) @ g_bar
                w_i = w_i - eta * g_w
                v[i] = v[i] - eta * alpha[i] * g_bar
                if adaptive:
                    alpha[i] = np.clip(alpha[i] - eta * slope, 0, 1)
            uploads.append(w_i)
        w = weighted_mean(uploads, m[S])
    personal = [alpha[i] * v[i] + (1 - alpha[i]) * w for i in range(N)]
    return w, v, alpha, personal


@everyone_or_some
@pytest.mark.parametrize("adaptive", [True, *slow(False)])
def test_apfl(adaptive, participation):
    state, ours = library(APFL(**LOCAL, mixture=0.4, adaptive=adaptive), participation)
    w, v, alpha, personal = apfl(
        initial(), cohorts_of(participation), LOCAL["rate"], LOCAL["local_rounds"], 0.4, adaptive
    )
    assert np.ptp(alpha) > 1e-3 if adaptive else np.ptp(alpha) == 0
    same(vectors(state.server), w)
    same(vectors(state.clients.model), v)
    same(state.clients.mixture, alpha)
    same(ours, personal)


# pFedMe: Dinh et al. 2020, Algorithm 1; θ̃_i solves the proximal problem inexactly, by S gradient steps from
# its previous value


def pfedme(w, cohorts, lam, eta, lr, beta, R, K):
    theta = [w.copy() for _ in range(N)]
    for S in cohorts:
        uploads = []
        for i in S:
            w_i = w.copy()
            for _ in range(R):
                for _ in range(K):
                    theta[i] = theta[i] - eta * (grad(theta[i], D[i]) + lam * (theta[i] - w_i))
                w_i = w_i - lr * lam * (w_i - theta[i])
            uploads.append(w_i)
        w = (1 - beta) * w + beta * mean(uploads)
    return w, theta


@everyone_or_some
def test_pfedme(participation):
    lam, eta, lr, beta, R, K = 2.0, 0.15, 0.2, 0.8, 3, 4
    method = PFedMe(
        prox=lam,
        personal_rate=eta,
        global_rate=lam * lr,
        server_rate=beta,
        local_rounds=R,
        inner_steps=K,
        batch_size=0,
        warm_start=True,
    )
    state, personal = library(method, participation)
    w, theta = pfedme(initial(), cohorts_of(participation), lam, eta, lr, beta, R, K)
    same(vectors(state.server), w[None])
    same(vectors(state.clients), theta)
    same(personal, theta)


# Per-FedAvg: Fallah et al. 2020, Algorithm 1; the Hessian is left out (FO, eq. 11) or replaced by a difference
# of gradients (HF, eq. 12)


def per_fedavg(w, cohorts, alpha, beta, steps, order, delta):
    for S in cohorts:
        uploads = []
        for i in S:
            w_i = w.copy()
            for _ in range(steps):
                adapted = w_i - alpha * grad(w_i, D[i])
                g = grad(adapted, D[i])
                if order == "hf":
                    h = (grad(w_i + delta * g, D[i]) - grad(w_i - delta * g, D[i])) / (2 * delta)
                    w_i = w_i - beta * (g - alpha * h)
                else:
                    w_i = w_i - beta * g
            uploads.append(w_i)
        w = weighted_mean(uploads, m[S])
    personal = [w - alpha * grad(w, D[i]) for i in range(N)]
    return w, personal


@everyone_or_some
@pytest.mark.parametrize("order", [*slow("hf"), "fo"])
def test_per_fedavg(order, participation):
    alpha, delta = 0.4, 1e-2
    state, ours = library(PerFedAvg(**LOCAL, order=order, adapt_rate=alpha, delta=delta), participation)
    w, personal = per_fedavg(
        initial(), cohorts_of(participation), alpha, LOCAL["rate"], LOCAL["local_rounds"], order, delta
    )
    # HF divides a difference of float32 gradients by 2δ: δ = 1e-2 and a wider tolerance
    atol = 1e-4 if order == "hf" else 1e-5
    same(vectors(state.server), w, atol)
    same(ours, personal, atol)


# IFCA: Ghosh et al. 2020, Algorithm 1, option II (model averaging)


def ifca(models, cohorts, gamma, steps):
    models = [model.copy() for model in models]
    assignment = np.full(N, -1)
    for S in cohorts:
        uploads = {j: [] for j in range(len(models))}
        for i in S:
            j = int(np.argmin([f(model, D[i]) for model in models]))
            assignment[i] = j
            w_i = models[j].copy()
            for _ in range(steps):
                w_i = w_i - gamma * grad(w_i, D[i])
            uploads[j].append(w_i)
        models = [mean(uploads[j]) if uploads[j] else models[j] for j in range(len(models))]
    personal = [min(models, key=lambda model: f(model, D[i])) for i in range(N)]
    return models, assignment, personal


@everyone_or_some
def test_ifca(participation):
    method = IFCA(**LOCAL, contexts=2, weighted=False)
    start = vectors(simulation(method, participation).start().server.models)
    assert start.shape == (2, initial().size)
    assert np.abs(start[0] - start[1]).max() > 0.1
    state, ours = library(method, participation)
    models, assignment, personal = ifca(start, cohorts_of(participation), LOCAL["rate"], LOCAL["local_rounds"])
    assert set(assignment) == {0, 1}  # both models are in use, everybody has taken part
    same(vectors(state.server.models), models)
    np.testing.assert_array_equal(state.server.assignment, assignment)
    same(ours, personal)


# L2GD: Hanzely & Richtárik 2020, Algorithm 1. The coins ξ of a round are 1, 0, …, 0: an aggregation, then the
# local steps up to the next one


def l2gd(x, coins, cohorts, rate, lam, p):
    """``rate`` is α/n."""
    x = [x.copy() for _ in range(N)]
    average = x[0]
    for S, xi in zip(cohorts, coins, strict=True):
        for coin in xi:
            for i in S:
                if coin:
                    x[i] = x[i] - rate * lam / p * (x[i] - average)
                else:
                    x[i] = x[i] - rate / (1 - p) * grad(x[i], D[i])
        average = mean([x[i] for i in S])
    return x, average


@everyone_or_some
def test_l2sgd(participation):
    # The paper has everybody in every step; with absent clients the average is of those who came last
    rate, lam, p = 0.2, 0.6, 0.3
    method = L2SGD(rate=rate, prox=lam, coin=p, batch_size=0)
    sim = simulation(method, participation)
    state, coins = sim.start(), []
    for t in range(ROUNDS):
        coins.append([1] + [0] * int(state.server.steps))
        state, _, _ = sim.advance(state, t, t + 1)
    assert sum(map(len, coins)) > ROUNDS
    x, average = l2gd(initial(), coins, cohorts_of(participation), rate, lam, p)
    same(vectors(state.clients), x)
    same(vectors(state.server.mean), average)
    same(personal_models(method, state, participation), x)
