"""The command line imports pandas when something of it is used."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from cgpfl import cli
import cgpfl.experiment.experiment, cgpfl.report.page
assert "pandas.core" not in sys.modules
import importlib.util, pickle
assert importlib.util.find_spec("pandas").origin.endswith("__init__.py")
import pandas as early
kept = pickle.dumps(early)
assert "pandas.core" not in sys.modules
assert early.DataFrame({"a": [1]})["a"].tolist() == [1]
import pandas as pd
assert early is not pd and early.DataFrame is pd.DataFrame
assert pickle.loads(kept) is pd
assert sys.modules["cgpfl.experiment.result"].pd.concat is pd.concat
"""


@pytest.mark.slow
def test_pandas_is_imported_when_it_is_used():
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
