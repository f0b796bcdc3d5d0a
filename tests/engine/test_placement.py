"""How many devices a run takes by itself, and where JAX's devices come from."""

import os
import subprocess
import sys

import jax
import pytest

from cgpfl.algorithms import get_method
from cgpfl.engine import Simulation, engine_for
from cgpfl.engine.placement import enough_devices
from cgpfl.models import as_model
from helpers import ENVIRONMENT

on_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="of a CPU's cores")


@on_cpu
def test_one_client_a_core_where_little_fits_a_cache():
    """What a convolution unfolds of CIFAR's images; dense layers' products use all cores by themselves."""
    cores = len(jax.devices())
    assert enough_devices(as_model("cnn", (32, 32, 3), 10), 40, 1 << 20) == cores == 3
    assert enough_devices(as_model("cnn", (32, 32, 3), 10), 2, 1 << 20) == 2  # no more than clients
    assert enough_devices(as_model("cnn", (32, 32, 3), 10), 40, 1 << 60) == 1  # each would have a copy of the samples
    assert enough_devices(as_model("dnn", (28, 28), 10), 40, 1 << 20) == 1
    assert enough_devices(as_model("mlr", (28, 28), 10), 40, 1 << 20) == 1


def test_small_models_stay_on_one_device(digits, mlr):
    engine = engine_for(get_method("fedavg"), digits, mlr, rounds=1)
    assert isinstance(engine, Simulation)
    assert engine.static.mesh is None
    assert engine_for(get_method("fedavg"), digits, mlr, rounds=1, devices="all").static.mesh.size == len(jax.devices())


@on_cpu
@pytest.mark.parametrize(
    ("flags", "first", "seen"),
    [
        ("", "", len(os.sched_getaffinity(0))),
        ("--xla_force_host_platform_device_count=5", "", 5),
        ("", "import jax; jax.config.update('jax_num_cpu_devices', 4)", 4),
        ("", "import jax; jax.devices()", 1),
    ],
)
def test_each_core_is_a_device_unless_the_user_chose(flags, first, seen):
    code = f"{first}\nimport jax, cgpfl.engine.problem\nprint(len(jax.devices()))"
    env = {**ENVIRONMENT, "XLA_FLAGS": flags}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert int(done.stdout) == seen
