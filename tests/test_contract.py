"""The contract suite: every method passes it, and each of its checks can fail."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import CFL, METHODS, FedAvg, Local, algorithm
from cgpfl.engine import Simulation
from cgpfl.testing import CHECKS, ContractError, check_algorithm
from cgpfl.tree import weighted_mean


def first_of_its_class(name):
    return name == next(n for n, m in METHODS.items() if type(m) is type(METHODS[name]))


@pytest.mark.parametrize(
    "name", [n if first_of_its_class(n) else pytest.param(n, marks=pytest.mark.slow) for n in METHODS]
)
def test_every_method_keeps_the_contract(name):
    check_algorithm(name)


def test_a_split_happens_inside_the_suite():
    """With CFL's thresholds at their defaults the tiny federation is never split; here it is, and all still holds."""
    check_algorithm(CFL(rest=1e3, unrest=0.0))


def only(check):
    return tuple(c for c in CHECKS if c not in ("contract", check))


def refused(method, check):
    with pytest.raises(ContractError, match=f": {check}: ") as error:
        check_algorithm(method, skip=only(check))
    assert "\n" not in str(error.value)


def host(x, f, **how):
    """``f`` on the host, in the middle of a program."""
    return jax.pure_callback(f, jax.ShapeDtypeStruct(x.shape, x.dtype), x, **how)


@algorithm
class Growing(FedAvg):
    """A state that changes its type."""

    name = "growing"

    def aggregate(self, server, uploads, cohort, key):
        return jax.tree.map(lambda v: v.astype(jnp.bfloat16), super().aggregate(server, uploads, cohort, key))


def test_lacking_functions_are_named():
    with pytest.raises(ContractError, match=r"object: contract: lacks init_server, init_client"):
        check_algorithm(object())


def test_a_state_must_keep_its_form():
    with pytest.raises(ContractError, match="growing: contract:"):
        check_algorithm(Growing())


@algorithm
class Concrete(FedAvg):
    """A hyper-parameter taken for a Python number."""

    name = "concrete"

    def train(self, task, message, client, data, key):
        return super().train(task, message, client, data, key) if self.rate > 0 else (message, ())


def test_what_jax_cannot_trace():
    with pytest.raises(ContractError, match="concrete: contract: cannot be traced by JAX"):
        check_algorithm(Concrete())


@algorithm
class Moody(Local):
    """Randomness that does not come from the key."""

    name = "moody"
    draws = np.random.default_rng()

    def train(self, task, message, client, data, key):
        upload, new = super().train(task, message, client, data, key)
        noisy = host(new["bias"], lambda b: b + self.draws.normal(size=b.shape).astype("f4"), vmap_method="sequential")
        return upload, {**new, "bias": noisy}


def test_deterministic():
    refused(Moody(), "deterministic")


@algorithm
class Deaf(Local):
    """The same start and samples whatever the seed."""

    name = "deaf"

    def init_client(self, task, key):
        return jax.tree.map(jnp.zeros_like, task.initial)

    def train(self, task, message, client, data, key):
        return super().train(task, message, client, data, jax.random.key(0))


def test_another_seed_must_matter():
    method = Deaf(local_rounds=1, batch_size=0)
    with pytest.raises(ContractError, match="another seed gives the same result"):
        # Everyone takes part here, or the cohort would differ.
        check_everyone(method)


def check_everyone(method):
    import cgpfl.testing as suite

    before = dict(suite.SETTINGS)
    suite.SETTINGS |= {"participation": 1.0, "dropout": 0.0}
    try:
        check_algorithm(method, skip=only("deterministic"))
    finally:
        suite.SETTINGS.update(before)


@algorithm
class Crowd(Local):
    """Behaves otherwise among others than alone."""

    name = "crowd"

    def train(self, task, message, client, data, key):
        upload, new = super().train(task, message, client, data, key)
        moved = host(new["bias"], lambda b: b + np.float32(b.ndim - 1), vmap_method="expand_dims")
        return upload, {**new, "bias": moved}


def test_loop():
    refused(Crowd(), "loop")


@algorithm
class FirstCounts(FedAvg):
    """Whoever is listed first counts more."""

    name = "first"

    def aggregate(self, server, uploads, cohort, key):
        return weighted_mean(uploads, cohort.present * jnp.arange(1.0, len(cohort.ids) + 1), fallback=server)


def test_permutation():
    refused(FirstCounts(), "permutation")


@algorithm
class Careless(FedAvg):
    """Averages what did not arrive, too."""

    name = "careless"

    def aggregate(self, server, uploads, cohort, key):
        return weighted_mean(uploads, jnp.ones(len(cohort.ids)), fallback=server)


@algorithm
class Restless(FedAvg):
    """Moves when nobody answered."""

    name = "restless"

    def aggregate(self, server, uploads, cohort, key):
        return jax.tree.map(lambda v: 0.9 * v, super().aggregate(server, uploads, cohort, key))


def test_absent():
    refused(Careless(), "absent")
    refused(Restless(), "absent")


@algorithm
class Leaking(FedAvg):
    """Uploads what it keeps."""

    name = "leaking"

    def init_client(self, task, key):
        return task.initial

    def train(self, task, message, client, data, key):
        upload, _ = super().train(task, message, (), data, key)
        return upload, upload


def test_private():
    refused(Leaking(), "private")


@algorithm
class Peeking(FedAvg):
    """Adapts to all samples there are, test samples among them."""

    name = "peeking"

    def personal(self, task, message, client, data, key):
        return {**message, "bias": message["bias"] + data.x.mean()}


def test_own_data():
    refused(Peeking(), "own_data")


@algorithm
class Baked(FedAvg):
    """Whose rate is another one among several runs."""

    name = "baked"

    def train(self, task, message, client, data, key):
        rate = jnp.asarray(self.rate, jnp.float32)
        scale = host(rate, lambda r: np.full(r.shape, np.ravel(r)[0]), vmap_method="expand_dims")
        return {**message, "bias": message["bias"] * (1 + scale)}, ()


def test_sweep():
    refused(Baked(), "sweep")


@algorithm
class Forgetful(Local):
    """Keeps something outside its state."""

    name = "forgetful"
    calls = itertools.count()

    def train(self, task, message, client, data, key):
        upload, new = super().train(task, message, client, data, key)
        count = host(new["bias"], lambda b: b + np.float32(next(self.calls) * 1e-3), vmap_method="sequential")
        return upload, {**new, "bias": count}


def test_resume():
    refused(Forgetful(), "resume")


def test_bytes(monkeypatch):
    original = Simulation.traffic
    monkeypatch.setattr(Simulation, "traffic", lambda self: original(self).__class__(4, 4, 1.0))
    refused(FedAvg(), "bytes")


def test_names_of_checks_and_methods():
    with pytest.raises(cgpfl.CgpflError, match="no check 'spelling'"):
        cgpfl.check_algorithm(FedAvg(), skip=("spelling",))
    with pytest.raises(cgpfl.CgpflError, match="no method 'nobody'"):
        cgpfl.check_algorithm("nobody")
