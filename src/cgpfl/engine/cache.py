"""The persistent compilation cache: a program compiled once is not compiled again."""

from __future__ import annotations

import jax

from cgpfl.folders import cache_folder


def in_use() -> bool:
    """Whether compiled programs go to our own folder."""
    return bool(jax.config.values["jax_compilation_cache_dir"] == str(cache_folder() / "xla"))


def use_compilation_cache() -> bool:
    """Turn JAX's compilation cache on, unless the user has set one → whether there is one."""
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return True
    folder = cache_folder() / "xla"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False  # a read-only home costs compile time, nothing else
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a small one is loaded in a tenth of the time
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return True
