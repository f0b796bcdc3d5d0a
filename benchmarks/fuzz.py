"""A fuzzer that looks for new paths through our code (atheris, coverage-guided): parsers, files and the wire format.

    pip install atheris
    python -m benchmarks.fuzz TARGET [-runs=100000] [-max_total_time=300] [CORPUS]

Whatever the bytes, each target must give a value or the errors its callers expect; anything else ends the fuzzer with
the input in a file ``crash-...``. Options are libFuzzer's.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import warnings
from io import BytesIO
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["cgpfl", "tomllib", "numpy.lib"]):
    import numpy as np

    from cgpfl.data import make_data
    from cgpfl.engine.flower.link import _array
    from cgpfl.engine.flower.orders import cleaned, from_bytes, to_bytes
    from cgpfl.errors import CgpflError
    from cgpfl.experiment.config import apply_setting, from_dict, read_toml
    from cgpfl.files import load_arrays, save_arrays

PLACE = Path(tempfile.mkdtemp(prefix="cgpfl-fuzz-")) / "input"


def configuration(content: bytes) -> None:
    """A configuration file."""
    PLACE.write_bytes(content)
    from_dict(read_toml(PLACE), str(PLACE))


def setting(content: bytes) -> None:
    """``--set``, as any text."""
    values = {"method": [{"name": "fedavg"}, {"name": "cgpfl"}]}
    apply_setting(values, content.decode("utf-8", "replace"))
    from_dict(values, "command line")


def table(content: bytes) -> None:
    """A CSV file."""
    file = PLACE.with_suffix(".csv")
    file.write_bytes(b"client,a,label\n" + content)
    make_data(str(file), client="client", label="label")


def arrays(content: bytes) -> None:
    """A checkpoint, a model, an export."""
    PLACE.write_bytes(content)
    load_arrays(PLACE, bare=True)


def upload(content: bytes) -> None:
    """An array that a node sends: whoever reads it expects these errors alone."""
    with contextlib.suppress(ValueError, OSError, EOFError):
        found = _array(content, (3, 2), np.dtype(np.float32))
        assert (found.shape, found.dtype) == ((3, 2), np.float32)


def words(content: bytes) -> None:
    """What a node says, on its way to a terminal."""
    line = cleaned(content.decode("utf-8", "replace"))
    assert len(line) <= 200
    assert line.isprintable()


def between(content: bytes) -> None:
    """What passes between a node's two processes; its reader answers any error, but must not hang or grow."""
    with contextlib.suppress(Exception):
        from_bytes(content)


def seeds(name: str, folder: Path) -> Path:
    """Good inputs to begin with."""
    stored, weights = BytesIO(), folder / "weights"
    np.save(stored, np.zeros((3, 2), np.float32))
    save_arrays(weights, {"w": np.zeros(3)}, {"round": 1})
    good = {
        "configuration": b'rounds = 3\n[data]\nsource = "digits"\n[[method]]\nname = "cgpfl"\ncontexts = 2\n',
        "setting": b"cgpfl.contexts=[1, 2]",
        "table": b"a,1,0\na,2,1\nb,x,0\nb,,1\n",
        "arrays": weights.read_bytes(),
        "upload": stored.getvalue(),
        "between": to_bytes({"order": {"token": "t"}}, {"w": np.zeros(3)}),
    }
    weights.write_bytes(good.get(name, b"words"))
    return folder


TARGETS = {f.__name__: f for f in (configuration, setting, table, arrays, upload, words, between)}


def main() -> None:
    """The command."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        raise SystemExit(f"target: must be one of {', '.join(TARGETS)}")
    target = TARGETS[sys.argv.pop(1)]
    warnings.simplefilter("ignore")

    def one(content: bytes) -> None:
        with contextlib.suppress(CgpflError):
            target(content)

    with tempfile.TemporaryDirectory(prefix="cgpfl-seeds-") as folder:
        atheris.Setup([*sys.argv, str(seeds(target.__name__, Path(folder)))], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
