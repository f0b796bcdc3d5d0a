import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "engine" / "flower")]
