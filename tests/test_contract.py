"""The contract suite: every method passes it, and each of its checks can fail."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import CFL, METHODS, CGPFLAuto, FedAvg, Local, Method, algorithm, hyper
from cgpfl.engine import Simulation
from cgpfl.testing import CHECKS, ContractError, check_algorithm
from cgpfl.testing.privacy import are_labels, recognised, windows
from cgpfl.testing.suite import Suite
from cgpfl.tree import axpy, weighted_mean

OF_EACH_KIND = ("ditto", "ifca")
"""One model and a model of each client beside it; a choice among several."""


@pytest.mark.parametrize("name", [n if n in OF_EACH_KIND else pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
def test_every_method_keeps_the_contract(name):
    check_algorithm(name)


@pytest.mark.slow
def test_a_split_happens_inside_the_suite():
    """With CFL's thresholds at their defaults the tiny federation is never split; here it is, and all still holds."""
    check_algorithm(CFL(rest=1e3, unrest=0.0))


@pytest.mark.slow
def test_measured_contexts_inside_the_suite():
    """Left alone, CGPFL-Auto finds six strangers there; here it has two contexts, known or to be found."""
    for contexts in (2, (0, 1, 0, 1, 0, 1)):
        check_algorithm(CGPFLAuto(contexts=contexts))


def test_a_method_has_as_many_rounds_as_its_settings_need():
    assert Suite(FedAvg(), "fedavg").rounds == 5
    suite = Suite(CGPFLAuto(), "cgpfl-auto")
    assert (suite.method.folds, suite.method.warmup, suite.rounds) == (3, 6, 15)
    assert suite.settings["rounds"] == 15
    assert Suite(CFL(), "cfl").method == CFL()
    assert Suite(object(), "nothing").rounds == 5


def only(check):
    return tuple(c for c in CHECKS if c not in ("contract", check))


def small(method):
    """Steps on all samples: programs without draws of minibatches compile in half the time."""
    return dataclasses.replace(method, batch_size=0) if isinstance(method, FedAvg | Local) else method


def refused(method, check, why=""):
    with pytest.raises(ContractError, match=f": {check}: .*{why}") as error:
        check_algorithm(small(method), skip=only(check))
    assert "\n" not in str(error.value)
    return error.value


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
    refused(Growing(), "contract", "the state of the server changes .* float32.* becomes bfloat16")


@algorithm
class Longer(Local):
    """A state that has a number more after each round."""

    name = "longer"

    def train(self, task, message, client, data, key):
        upload, new = super().train(task, message, client, data, key)
        return upload, {**new, "bias": jnp.append(new["bias"], 0.0)}

    def personal(self, task, message, client, data, key):
        return {**client, "bias": client["bias"][:3]}


@algorithm
class Masking(FedAvg):
    """Picks samples by a boolean mask: how many there are is not known before they are."""

    name = "masking"

    def train(self, task, message, client, data, key):
        return {**message, "bias": message["bias"] + data.x[data.y == 1].mean()}, ()


@algorithm
class Broken(FedAvg):
    """Raises an error of several lines, or one that says nothing."""

    name = "broken"
    words: str = hyper("", "what it says")

    def personal(self, task, message, client, data, key):
        raise ValueError(self.words)


@algorithm
class Narrow(FedAvg):
    """A function that takes other arguments."""

    name = "narrow"

    def aggregate(self, server, uploads):
        return server


class Plain(Method):
    """No dataclass."""

    name = "plain"

    init_server = train = aggregate = gradients = lambda self, *args: ()


def test_every_failure_is_one_line():
    refused(Longer(), "contract", r"the state of a client changes .*bias.*float32\[6, 3\] becomes float32\[6, 4\]")
    refused(Masking(), "contract", "cannot be traced by JAX: .*boolean")
    error = refused(Broken(words="the first line\n\nand a second"), "contract", "ValueError: the first line$")
    assert isinstance(error.__cause__, ValueError)
    refused(Broken(), "contract", "ValueError: no reason given")
    refused(Narrow(), "contract", "TypeError: .*aggregate.*positional arguments")
    refused(Plain(), "contract", "use @cgpfl.algorithm")
    refused(FedAvg, "contract", r"this is a class; give an object, FedAvg\(\)")


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
    refused(Leaking(), "private", r"\['bias'\] is what the client keeps; if")


@algorithm
class Disguised(FedAvg):
    """Uploads, beside FedAvg's model, what it should not: ``how`` is traced, so all of them are one program."""

    name = "disguised"
    how: float = hyper(0.0, "which of them")

    def init_client(self, task, key):
        return task.initial

    def train(self, task, message, client, data, key):
        sent, own = self.descend(task, message, data, key), self.descend(task, client, data, jax.random.fold_in(key, 1))

        def flat(model):
            return jnp.pad(jnp.concatenate([model["weight"].ravel(), model["bias"]]), (0, 9))

        forms = {
            "nothing": flat(sent),
            "factor": 2 - 5 * flat(own),
            "transposed": jnp.pad(own["weight"].T.ravel(), (0, 12)),
            "backwards": flat(own)[::-1],
            "interleaved": jnp.stack([sent["weight"], own["weight"]], axis=-1).ravel(),
            "half": flat(own).astype(jnp.float16).astype(jnp.float32),
            "old": flat(client),
            "difference": 0.3 * flat(axpy(-1.0, message, own)),
            "among others": jnp.concatenate([sent["weight"].ravel(), -own["weight"].ravel()]),
            "samples": data.take(data.rows[jnp.arange(6) % 5], jnp.ones(6)).x.ravel(),
            "a scaled sample": jnp.concatenate([flat(sent)[:20], 1 - 3 * data.x[data.rows[2]]]),
            "samples by column": data.batch(key, 6).x.T.ravel(),
            "labels": data.batch(key, 24).y.astype(jnp.float32),
            "scaled labels": 1 - 0.5 * data.batch(key, 24).y.astype(jnp.float32),
        }
        assert list(forms) == DISGUISES
        extra = jax.lax.switch(jnp.asarray(self.how, jnp.int32), [lambda v=v: v for v in forms.values()])
        return {"model": sent, "extra": extra}, own

    def aggregate(self, server, uploads, cohort, key):
        return super().aggregate(server, uploads["model"], cohort, key)


DISGUISES = ["nothing", "factor", "transposed", "backwards", "interleaved", "half", "old", "difference", "among others"]
SAMPLES = ["samples", "a scaled sample", "samples by column", "labels", "scaled labels"]
DISGUISES += SAMPLES


@pytest.mark.parametrize("how", DISGUISES)
def test_private_in_disguise(how, monkeypatch):
    method = Disguised(how=float(DISGUISES.index(how)))
    if how != "nothing":
        refused(method, "private", r"\['extra'\] (holds|is what the client keeps)")
        monkeypatch.setattr(Disguised, "reveals", True)
    if how in SAMPLES:  # which no method may send
        refused(method, "private", r"\['extra'\] holds")
    else:
        check_algorithm(small(method), skip=only("private"))


def test_what_is_recognised():
    rng = np.random.default_rng(0)
    kept, same = rng.normal(size=(6, 5)), np.ones((6, 5))
    assert recognised(kept, 7 - 2 * kept[:, ::-1])
    assert not recognised(kept, kept + 0.05 * rng.normal(size=(6, 5)))  # a model like it
    assert not recognised(kept, np.concatenate([kept[:5], rng.normal(size=(1, 5))]))  # not everybody's
    assert not recognised(same, same)  # constants tell nothing
    assert not recognised(0 * kept, 0 * kept)
    assert recognised(kept[:, :3], kept[:, :3])
    assert not recognised(kept[:, :3], 2 * kept[:, :3])  # of few numbers only themselves
    assert not list(windows(kept, 1))
    assert [w.tolist() for w in windows(kept, 2)] == [[0, 1], [1, 2], [2, 3], [3, 4], [0, 2], [1, 3], [2, 4]]
    labels = rng.integers(0, 3, size=(6, 5))
    assert are_labels(labels / 2, (labels + 1) % 3 / 2, 3)
    assert not are_labels(labels, labels, 3)
    assert not are_labels(np.sign(kept), np.sign(rng.normal(size=(6, 5))), 3)  # an upload of signs
    assert not are_labels(labels[:, :1], (labels[:, :1] + 1) % 3, 3)  # a context


@algorithm
class Peeking(FedAvg):
    """Adapts to all samples there are, test samples among them."""

    name = "peeking"

    def personal(self, task, message, client, data, key):
        return {**message, "bias": message["bias"] + data.x.mean()}


def test_own_data():
    refused(Peeking(), "own_data", "not the client's own give another personal model")


@algorithm
class Nosy(FedAvg):
    """Looks at what is not its own, or at nothing: ``how`` is traced, so all of them are one program."""

    name = "nosy"
    how: float = hyper(0.0, "which of them")

    def init_server(self, task, key):
        everything = jnp.where(self.how == 1, task.public.x.mean(), 0.0)
        return {**task.initial, "bias": task.initial["bias"] + everything}

    def init_client(self, task, key):
        return jnp.zeros(3)

    def train(self, task, message, client, data, key):
        theirs = 0.01 * (data.x[0] + data.x[5])[:3]  # training samples of the first two clients
        through_public = 0.01 * task.public.x[0][:3]
        upload = self.descend(task, message, data, key)
        more = jnp.where(self.how == 2, theirs, 0.0) + jnp.where(self.how == 3, through_public, 0.0)
        state = jnp.where(self.how == 4, theirs, 0.0)
        return {**upload, "bias": upload["bias"] + more}, state

    def personal(self, task, message, client, data, key):
        more = jnp.where(self.how == 5, (data.y[0] + data.y[5]).astype(jnp.float32), 0.0)
        used = {**message, "bias": message["bias"] + more}
        return jax.tree.map(lambda own, start: jnp.where(self.how == 6, start, own), used, task.initial)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (1, "another first state"),
        (2, "not the client's own give another upload"),
        (3, "not the client's own give another upload"),
        (4, "not the client's own give another state"),
        (5, "not the client's own give another personal model"),
        (6, "the same whatever its own training samples are"),
    ],
)
def test_a_client_learns_from_its_own_samples(how, why):
    refused(Nosy(how=float(how)), "own_data", why)


def test_public_samples_are_everybodys():
    check_algorithm(small(Nosy()), skip=only("own_data"))


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
