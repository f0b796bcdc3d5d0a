"""PyTorch modules against PyTorch: losses, gradients, state_dict, ONNX. Run by ``make test-torch``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch_nets import MLP, LeNet, Recurrent, ResNet18, Small  # noqa: E402

import cgpfl  # noqa: E402
from cgpfl.batch import Batch  # noqa: E402
from cgpfl.data.form import Form  # noqa: E402
from cgpfl.errors import CgpflError  # noqa: E402
from cgpfl.experiment.result import PersonalModel  # noqa: E402
from cgpfl.inference import graph  # noqa: E402
from cgpfl.models import MLR, ResNet, as_model, to_state_dict  # noqa: E402
from cgpfl.models.names import flat  # noqa: E402

CLIENTS, SAMPLES = 3, 4
RNG = np.random.default_rng(0)
TOLERANCE = 1e-5


def steady(make, *args, **settings):
    torch.manual_seed(0)
    return make(*args, **settings)


def given(module, x):
    """Inputs as the module has them."""
    x = torch.tensor(x)
    if any(isinstance(part, nn.Embedding) for part in module.modules()):
        return x.long()
    if any(isinstance(part, nn.Conv2d) for part in module.modules()):
        return x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2)
    return x


def inputs(module, shape):
    if any(isinstance(part, nn.Embedding) for part in module.modules()):
        return RNG.integers(0, 20, (CLIENTS, SAMPLES, *shape)).astype(np.float32)
    return RNG.normal(size=(CLIENTS, SAMPLES, *shape)).astype(np.float32)


def torch_gradient(module, x, y):
    """Loss and gradient by PyTorch, without dropout."""
    module.eval()
    module.zero_grad()
    loss = F.cross_entropy(module(given(module, x)), torch.tensor(y))
    loss.backward()
    return loss.item(), {name: p.grad.numpy().copy() for name, p in module.named_parameters()}


CASES = {
    "mlp": (MLP, (8, 8), 10),
    "lenet": (LeNet, (28, 28), 10),
    "transformer": (Small, (12,), 5),
    "gru and lstm": (Recurrent, (7,), 4),
    "resnet-18": (ResNet18, (32, 32, 3), 10),
}
SLOW = ("resnet-18",)


@jax.default_matmul_precision("highest")
@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] * (c in SLOW)) for c in CASES])
def test_losses_and_gradients_of_several_clients(case, tmp_path):
    """Three clients' models in one program; what comes back is loaded by PyTorch, and the graph answers the same."""
    make, shape, classes = CASES[case]
    module = steady(make)
    model = as_model(module, shape, classes)
    params = model.init(jax.random.key(5))
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(to_state_dict(model, params)[name], tensor)
    apart = jax.tree.map(lambda v: 0.01 * jnp.cos(jnp.arange(v.size).reshape(v.shape)), params)
    own = [jax.tree.map(lambda v, a, i=i: v + i * a, params, apart) for i in range(CLIENTS)]
    stacked = jax.tree.map(lambda *v: jnp.stack(v), *own)
    x, y = inputs(module, shape), RNG.integers(classes, size=(CLIENTS, SAMPLES))
    ones = jnp.ones(SAMPLES)
    learn = jax.jit(jax.vmap(jax.value_and_grad(lambda p, x, y: model.loss(p, Batch(x, y, ones)))))
    losses, gradients = learn(stacked, x, y)
    for i in range(CLIENTS):
        module.load_state_dict(to_state_dict(model, own[i]))
        loss, gradient = torch_gradient(module, x[i], y[i])
        assert float(losses[i]) == pytest.approx(loss, abs=TOLERANCE)
        found = flat(jax.tree.map(lambda v, i=i: np.asarray(v[i]), gradients))
        assert found.keys() == gradient.keys()
        assert max(np.abs(g).max() for g in gradient.values()) > 1e-3
        for name, wanted in gradient.items():
            np.testing.assert_allclose(found[name], wanted, atol=TOLERANCE, rtol=0, err_msg=name)
    one = PersonalModel(jax.tree.map(np.asarray, own[1]), model, Form(model.shape, model.classes))
    (tmp_path / "m.onnx").write_bytes(graph.onnx_bytes(one))
    assert graph.check_graph(tmp_path / "m.onnx", one, x[0]) < TOLERANCE


def test_dropout_is_in_training_alone():
    model = as_model(steady(MLP), (8, 8), 10)
    params, some = model.init(jax.random.key(0)), Batch(jnp.ones((4, 8, 8)), jnp.arange(4), jnp.ones(4))
    assert model.stochastic
    keys = (None, *map(jax.random.key, (1, 1, 2)))
    resting, *trained = (float(model.loss(params, some._replace(key=key))) for key in keys)
    assert trained[0] == trained[1] != trained[2]
    assert resting not in trained
    assert not as_model(steady(LeNet), (28, 28), 10).stochastic
    # values are 0 or twice what they were; of whole channels all or none
    alone = as_model(nn.Sequential(nn.Dropout(0.5)), (64,), 64)
    assert set(np.unique(alone.apply({}, jnp.full((4, 64), 3.0), jax.random.key(0)))) == {0.0, 6.0}
    channels = as_model(nn.Sequential(nn.Dropout2d(0.5), nn.Flatten(1)), (8, 2, 2), 32)
    drawn = np.asarray(channels.apply({}, jnp.ones((9, 8, 2, 2)), jax.random.key(0))).reshape(9, 8, 4)
    assert set(np.unique(drawn.sum(axis=2))) == {0.0, 8.0}


class Tied(nn.Module):
    """Two layers with one weight, a frozen layer, a buffer that is not kept, and half precision."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(4, 3).requires_grad_(False)
        self.register_buffer("scale", torch.tensor([2.0]))
        self.register_buffer("passing", torch.tensor([0.5]), persistent=False)

    def forward(self, x):
        return self.frozen(torch.tanh(self.second(torch.relu(self.first(x * self.scale))))) * self.passing


def test_tied_and_frozen_weights():
    module = steady(Tied)
    model = as_model(module, (4,), 3)
    params = model.init(jax.random.key(0))
    assert set(flat(params)) == {"first.weight", "first.bias", "second.bias"}
    x = RNG.normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_allclose(model.apply(params, x), module(torch.tensor(x)).detach(), atol=1e-6)
    moved = jax.tree.map(lambda v: v + 1, params)
    back = to_state_dict(model, moved)
    assert back.keys() == module.state_dict().keys()
    module.load_state_dict(back)
    np.testing.assert_allclose(model.apply(moved, x), module(torch.tensor(x)).detach(), atol=1e-6)
    assert (module.second.weight == module.first.weight).all()
    with pytest.raises(CgpflError, match="MLR does not come from PyTorch; it has no state_dict"):
        to_state_dict(MLR((4,), 3), {})


def a_module(*parts):
    return lambda: nn.Sequential(*parts)


class Sorted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 3))

    def forward(self, x):
        return torch.linalg.inv(self.inner(x)[:, :3, None] * torch.eye(3))[:, 0]


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("make", "shape", "classes", "message"),
    [
        (
            a_module(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)),
            (8, 8),
            3,
            r"1 \(BatchNorm2d\) keeps running statistics, .*; replace it by nn.GroupNorm\(groups, 4\)",
        ),
        (
            a_module(nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(144, 3)),
            (8, 8, 4),
            3,
            r"0 \(Conv2d\): conv2d has groups = 2; must be 1",
        ),
        (Sorted, (4,), 3, r"the module \(Sorted\): operation linalg_inv.* is not supported; write that part in flax"),
        (a_module(nn.Linear(5, 3)), (4,), 3, r"Sequential cannot be written down by torch.export for inputs \[2, 4\]"),
        (Branching, (3,), 3, "Branching cannot be written down by torch.export"),
        (a_module(nn.Linear(4, 3)), (4,), 5, r"answers \(3,\) for one input; must be 5 logits"),
    ],
)
def test_what_cannot_be_taken_says_so(make, shape, classes, message):
    with pytest.raises(CgpflError, match=message) as error:
        as_model(make(), shape, classes)
    assert "\n" not in str(error.value)


def test_trained_by_name_and_returned(tmp_path):
    """A class by its path begins alike in every process; what was trained is loaded into the module."""
    data = cgpfl.make_data("digits", "rotation", clients=4, contexts=2, seed=0)
    result = cgpfl.run(cgpfl.FedAvg(local_rounds=2), data, "torch_nets:MLP", rounds=3)
    assert result.accuracy > 0.2
    mine = result.personal_model(0)
    module = MLP()
    module.load_state_dict(mine.state_dict())
    module.eval()
    x = data.x[:9]
    wanted = module(torch.tensor(x.astype(np.float32) * data.scale + data.shift)).detach()
    np.testing.assert_allclose(mine.logits(x), wanted, atol=1e-5)
    done = cgpfl.export(result, tmp_path / "out", client=0)
    assert done.note is None
    again = cgpfl.load_model(tmp_path / "out", model=MLP())
    np.testing.assert_allclose(again.logits(x), wanted, atol=1e-5)
    first, second = (as_model("torch_nets:MLP", data.shape, data.classes).init(jax.random.key(i)) for i in (0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_our_resnet_is_pytorch_s():
    """The named model, with the weights of one written in PyTorch."""
    ours = ResNet((9, 8, 2), 4, blocks=(1, 1), width=8, groups=4)
    params = jax.tree.map(lambda v: v + 0.1 * RNG.normal(size=v.shape).astype(np.float32), ours.init(jax.random.key(0)))
    x = RNG.normal(size=(3, 9, 8, 2)).astype(np.float32)

    def conv(layer, h, stride=1, padding=1):
        return F.conv2d(h, torch.tensor(np.asarray(layer["weight"])).permute(3, 2, 0, 1), None, stride, padding)

    def norm(layer, h):
        return F.group_norm(h, 4, *(torch.tensor(np.asarray(layer[name])) for name in ("weight", "bias")))

    h = torch.relu(norm(params["input"]["norm"], conv(params["input"]["conv"], torch.tensor(x).permute(0, 3, 1, 2))))
    for name, stride in (("layer1", 1), ("layer2", 2)):
        p = params[name]
        skip = norm(p["skip_norm"], conv(p["skip"], h, stride, 0)) if "skip" in p else h
        inner = torch.relu(norm(p["norm1"], conv(p["conv1"], h, stride)))
        h = torch.relu(norm(p["norm2"], conv(p["conv2"], inner)) + skip)
    last = [torch.tensor(np.asarray(params["output"][name])) for name in ("weight", "bias")]
    with jax.default_matmul_precision("highest"):
        np.testing.assert_allclose(ours.apply(params, x), F.linear(h.mean((2, 3)), *last), atol=1e-5)
