"""Where compiled programs are kept. The tests have a cache of their own, so this is the only one that asks."""

from types import SimpleNamespace

import jax
import pytest

from cgpfl.engine import cache
from helpers import Instead


@pytest.fixture
def settings(monkeypatch):
    """JAX's settings, as far as the cache changes them: no cache is chosen yet."""
    values = {"jax_compilation_cache_dir": None}
    monkeypatch.setattr(cache, "jax", Instead(jax, config=SimpleNamespace(values=values, update=values.__setitem__)))
    return values


def test_programs_are_kept_in_our_folder(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("CGPFL_CACHE", str(tmp_path / "ours"))
    cache.use_compilation_cache()
    assert settings == {
        "jax_compilation_cache_dir": str(tmp_path / "ours" / "xla"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    assert (tmp_path / "ours" / "xla").is_dir()
    assert all(name in jax.config.values for name in settings)


def test_the_users_own_cache_stays(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("CGPFL_CACHE", str(tmp_path / "ours"))
    settings["jax_compilation_cache_dir"] = "theirs"
    cache.use_compilation_cache()
    assert settings == {"jax_compilation_cache_dir": "theirs"}
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_no_error(settings, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CGPFL_CACHE", str(tmp_path / "file"))
    cache.use_compilation_cache()
    assert settings == {"jax_compilation_cache_dir": None}
