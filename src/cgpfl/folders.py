"""Where things are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$CGPFL_CACHE``, else ``cgpfl`` in the user's cache folder."""
    if chosen := os.environ.get("CGPFL_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cgpfl"
