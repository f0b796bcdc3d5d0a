"""pandas, imported when something of it is first used: a fifth of all imports, and no round needs it."""

from __future__ import annotations

import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

LOCK = threading.RLock()


class Pandas(ModuleType):
    """Stands for pandas; who has imported it goes on with what it stands for."""

    def __getattr__(self, name: str) -> Any:
        with LOCK:
            if sys.modules.get("pandas") is self:
                del sys.modules["pandas"]
            import pandas
        return getattr(pandas, name)

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return themselves, ()


def themselves() -> ModuleType:
    """pandas, for who was pickled with what stands for it."""
    import pandas

    return pandas


if "pandas" not in sys.modules and (spec := importlib.util.find_spec("pandas")):
    late = Pandas("pandas")
    late.__spec__ = spec  # for who only asks whether it is there
    sys.modules["pandas"] = late
