"""The wheel in fresh environments, without extras and with each: it installs, runs, and says what is missing.

    python tools/wheel.py [EXTRA ...]     default: no extra, and each of those below; "none" is no extra

Versions are those of the requirement files. Each environment is made by venv with nothing of this one in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from requirements import FILES, pinned

ROOT = Path(__file__).parents[1]
TINY = ["run", "--methods", "fedavg", "--clients", "4", "--rounds", "2", "--set", "data.share=0.2", "--out"]
USES = {
    "none": "",
    "flax": "import cgpfl, flax.linen as n; cgpfl.run('fedavg', {'clients': 4}, n.Dense(10), rounds=1, progress=False)",
    "report": "import plotly",
    "export": "import onnx, onnxruntime",
    "deploy": "import cgpfl.deploy.trial, cgpfl.deploy.server, cgpfl.engine.flower.apps",
}
"""What each is for, beside the run that all make."""


def call(*command: object, code: int = 0, cwd: Path | None = None) -> str:
    """Run a command; what it printed, if it ends as it should."""
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, env=own)
    if done.returncode != code:
        said = (done.stdout + done.stderr)[-2000:]
        raise SystemExit(f"{' '.join(map(str, command))[:300]}: exit {done.returncode}: {said}")
    return done.stdout + done.stderr


def tried(extra: str, wheel: Path, scratch: Path) -> str:
    """One environment → a line of what was seen."""
    began, place = time.monotonic(), scratch / extra
    call(sys.executable, "-m", "venv", place)
    python, wanted = place / "bin" / "python", f"{wheel}[{extra}]" if extra != "none" else wheel
    call(python, "-m", "pip", "install", "--quiet", "-c", scratch / "constraints.txt", wanted)
    took = time.monotonic() - began
    cgpfl = place / "bin" / "cgpfl"
    call(cgpfl, "version", cwd=scratch)
    said = call(cgpfl, *TINY, scratch / f"run-{extra}", cwd=scratch)
    page = (scratch / f"run-{extra}" / "report.html").exists()
    if page != (extra == "report"):
        raise SystemExit(f"{extra}: report.html {'is' if page else 'is not'} there: {said}")
    if extra != "report" and "pip install 'cgpfl[report]'" not in said:
        raise SystemExit(f"{extra}: it is not said how to get a report: {said}")
    if extra != "deploy" and "cgpfl[deploy]" not in call(cgpfl, "deploy", "up", code=2, cwd=scratch):
        raise SystemExit(f"{extra}: it is not said how to get deployments")
    call(python, "-c", USES.get(extra, ""), cwd=scratch)
    call(python, "-m", "pip", "check")
    return f"{extra}: installed in {took:.0f} s, runs"


def main() -> int:
    """The command."""
    with tempfile.TemporaryDirectory(prefix="cgpfl-wheel-") as folder:
        scratch = Path(folder)
        pins = [f"{name}=={version}" for file in FILES[:2] for name, version, _ in pinned(file.read_text())]
        (scratch / "constraints.txt").write_text("\n".join(pins) + "\n")
        call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", scratch, ROOT)
        (wheel,) = scratch.glob("*.whl")
        print(f"{wheel.name}: {wheel.stat().st_size >> 10} KB", flush=True)
        for extra in sys.argv[1:] or list(USES):
            print(tried(extra, wheel, scratch), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
