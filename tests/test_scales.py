"""Inputs of very different scales are said before anything is trained."""

import numpy as np
import pandas as pd
import pytest

from cgpfl import FederatedData
from cgpfl.data.scales import scale_note
from helpers import cgpfl


def table(**more):
    n = 24
    frame = pd.DataFrame({"who": np.arange(n) % 3, "income": [-4e4, 4e4] * (n // 2), "code": [2e-3, -2e-3] * (n // 2)})
    return FederatedData.from_frame(frame.assign(y=np.arange(n) // 12), client="who", label="y", **more)


def test_a_tables_columns():
    # Of ±40,000 the root mean square is 40,000, whichever rows are for training.
    said = scale_note(table(standardise=False))
    assert said.startswith("inputs differ in scale: income is about 4e+04, code about 0.002;")
    assert "say standardise = true" in said
    assert scale_note(table()) is None
    near = table(standardise=False, ignore=["code"])
    assert scale_note(near) is None  # one column alone has no other scale beside it


@pytest.mark.parametrize(("factor", "is_said"), [(99.0, False), (101.0, True)])
def test_flat_arrays_and_the_edge(factor, is_said):
    x = np.ones((12, 2), np.float32) * [1.0, factor]
    x[::3, 1] = 0  # an input that is rarely there is not a small one
    data = FederatedData.from_arrays(x, np.arange(12) % 2, np.arange(12) // 4)
    said = scale_note(data)
    assert (said is not None) is is_said
    if said:
        assert "input 1 is about 1e+02, input 0 about 1;" in said
    images = FederatedData.from_arrays(x[:, :, None], np.arange(12) % 2, np.arange(12) // 4)
    assert scale_note(images) is None


def test_it_is_printed_before_training(tmp_path):
    n = 24
    frame = pd.DataFrame({"who": np.arange(n) % 3, "big": [3e4, 5e4] * (n // 2), "small": [1e-3, 3e-3] * (n // 2)})
    frame.assign(label=np.arange(n) // 12).to_csv(tmp_path / "t.csv", index=False)
    own = ("--data", tmp_path / "t.csv", "--client", "who", "--rounds", 2, "--set", "data.standardise=false")
    whole = ("--set", "fedavg.batch_size=0")
    for i, command in enumerate(
        (("run", "--method", "fedavg", *whole), ("compare", "--methods", "local", "--seeds", 1))
    ):
        done = cgpfl(*command, *own, "--out", tmp_path / str(i))
        assert "note: inputs differ in scale: big is about" in done.stderr
    quiet = cgpfl("run", "--method", "fedavg", *whole, *own, "--quiet", "--out", tmp_path / "quiet")
    assert quiet.stderr == ""
