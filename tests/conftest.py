import functools
import gc
import os
import shutil
import sys
import tempfile
import zlib
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # theirs wait by spinning, beside another worker

import jax
from jax._src import compilation_cache as stored
from jax._src.interpreters import mlir
from jax.experimental.compilation_cache import compilation_cache

from cgpfl.data import make_data
from cgpfl.models import as_model
from cgpfl.report import pictures
from processor import Processor

# One compilation cache for all files, workers and processes of this session, and new for each: what is compiled in one
# file is read in the next. Workers and processes find it in their environment.
CACHE = None if "JAX_COMPILATION_CACHE_DIR" in os.environ else tempfile.mkdtemp(prefix="cgpfl-programs-")
if CACHE is not None:
    for name, value in {
        "jax_compilation_cache_dir": CACHE,
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)

stored.compress_executable = partial(zlib.compress, level=1)  # smallest takes as long as compiling a small program
jax.config.update("jax_traceback_in_locations_limit", 0)  # of each operation, into programs that nobody reads
# One for all: JAX makes, and keeps, one for each program, a quarter of a small one's time and more than a megabyte.
mlir.make_ir_context = functools.cache(mlir.make_ir_context)
gc.set_threshold(100_000, 50, 50)  # tracing makes many objects, of which few are garbage

jax.config.update("jax_num_cpu_devices", 3)  # what is not asked to use several uses the first
if jax.default_backend() != "cpu":  # numbers worked out by hand have more digits than tf32
    jax.config.update("jax_default_matmul_precision", "highest")


def pytest_configure(config):
    if os.environ.get("DURATIONS"):
        config.pluginmanager.register(Processor())


LONGEST = [
    "tests/benchmarks/test_crash.py",
    "tests/test_recovery.py",
    "tests/test_pages.py",
    "tests/deploy/test_intruders.py",
    "tests/deploy/test_guide.py",
    "tests/deploy/test_faults.py",
    "tests/deploy/test_hospitals.py",
    "tests/test_open_house.py",
    "tests/test_processes.py",
    "tests/deploy/test_liars.py",
    "tests/auditing/test_audit.py",
    "tests/advice/test_advise.py",
    "tests/paper/test_make.py",
]
"""Files, most processor time first: a minute of few tests, mostly slow ones."""


def pytest_collection_modifyitems(items):
    place = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


def pytest_unconfigure():
    if CACHE is not None:  # the process that made it: xdist's workers and what tests start were given it
        shutil.rmtree(CACHE, ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forget compiled programs, between files, once they have many memory maps, of which Linux allows 65530."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > 40_000:
        jax.clear_caches()


SKETCHES = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>', ".pdf": b"%PDF-1.4\n"}
RENDER, BESIDE, PAINTERS = pictures.write_picture, pictures.beside, pictures.Painters


def sketch(picture, path):
    path.write_bytes(SKETCHES[path.suffix])
    return path


@pytest.fixture(autouse=True, scope="module")
def sketched(request):
    """In make test a picture is painted and its files are there; rendering three of them takes most of a second.

    What is marked ``pictures`` renders there as well, make test-slow renders everything.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "not slow" in request.config.option.markexpr and request.node.get_closest_marker("pictures") is None:
            patch.setattr(pictures, "write_picture", sketch)
            patch.setattr(pictures, "beside", lambda: nullcontext(sketch))
            patch.setattr(pictures, "Painters", nullcontext)
        yield


@pytest.fixture(autouse=True)
def rendered(request, monkeypatch):
    if request.node.get_closest_marker("pictures") is not None:
        monkeypatch.setattr(pictures, "write_picture", RENDER)
        monkeypatch.setattr(pictures, "beside", BESIDE)
        monkeypatch.setattr(pictures, "Painters", PAINTERS)


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
