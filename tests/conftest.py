import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import jax
from jax.experimental.compilation_cache import compilation_cache

from cgpfl.data import make_data
from cgpfl.models import as_model

jax.config.update("jax_num_cpu_devices", 3)  # what is not asked to use several uses the first
if jax.default_backend() != "cpu":  # numbers worked out by hand have more digits than tf32
    jax.config.update("jax_default_matmul_precision", "highest")


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forget compiled programs after each file: hundreds of them in one process exhaust its memory maps."""
    yield
    jax.clear_caches()


@pytest.fixture
def programs(tmp_path):
    """An empty compilation cache, and nothing compiled; called, it lists the engine's programs in it."""
    settings = {"jax_compilation_cache_dir": str(tmp_path), "jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: jax.config.values[name] for name in settings}

    def use(values):
        for name, value in values.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        jax.clear_caches()

    use(settings)
    yield lambda: sorted(f.name for name in ("advance", "begin") for f in tmp_path.glob(f"jit_{name}-*-cache"))
    use(before)


@pytest.fixture(scope="session")
def digits():
    """A small federation: 8 clients, 2 rotation contexts."""
    return make_data("digits", "rotation", clients=8, contexts=2, seed=0)


@pytest.fixture(scope="session")
def mlr(digits):
    return as_model("mlr", digits.shape, digits.classes)
