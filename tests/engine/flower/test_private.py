"""A client's private state on disk."""

import numpy as np
import pytest

from cgpfl.engine.flower.private import MESSAGE, RUNS_KEPT, Private
from cgpfl.errors import CgpflError
from cgpfl.files import load_arrays, load_facts


def state(value):
    return {"w": np.full(3, value, np.float32), "n": np.int32(value)}


def test_a_version_and_what_it_came_from(tmp_path):
    private = Private(tmp_path, "run")
    assert private.load(1, state(0)) is None
    for version, base in ((1, 0), (2, 1), (3, 2)):
        private.save(version, state(version), base)
    assert private.versions() == [2, 3]
    np.testing.assert_array_equal(private.load(3, state(0))["w"], state(3)["w"])
    assert int(private.load(2, state(0))["n"]) == 2


def test_a_round_that_did_not_count_is_forgotten_by_the_next_that_does(tmp_path):
    private = Private(tmp_path, "run")
    private.save(1, state(1), 0)
    private.save(2, state(2), 1)  # too late: the server still counts round 1
    private.save(3, state(30), 1)
    assert private.versions() == [1, 3]
    private.save(2, state(20), 1)  # an order that comes out of turn takes nothing away that counts
    assert private.versions() == [1, 2, 3]
    assert int(private.load(3, state(0))["n"]) == 30
    assert int(private.load(1, state(0))["n"]) == 1


def test_runs_do_not_touch_each_other_and_old_ones_go(tmp_path):
    for i in range(RUNS_KEPT + 3):
        Private(tmp_path, f"run-{i}").save(1, state(i), 0)
    assert len(list(tmp_path.iterdir())) == RUNS_KEPT
    assert int(Private(tmp_path, f"run-{RUNS_KEPT + 2}").load(1, state(0))["n"]) == RUNS_KEPT + 2
    assert Private(tmp_path, "run-0").versions() == []


@pytest.mark.parametrize("token", ["", "..", "a/b", "../x", ".hidden", "x" * 101])
def test_a_token_is_no_path(token, tmp_path):
    with pytest.raises(CgpflError, match="is no name of a run"):
        Private(tmp_path, token)


def test_a_broken_file_says_what_to_do(tmp_path):
    private = Private(tmp_path, "run")
    private.save(1, state(1), 0)
    (tmp_path / "run" / "round-000001.safetensors").write_bytes(b"garbage")
    with pytest.raises(CgpflError, match=r"cannot be read .*; delete it to start this client anew"):
        private.load(1, state(0))


def test_a_state_of_another_form_is_refused(tmp_path):
    private = Private(tmp_path, "run")
    private.save(1, state(1), 0)
    with pytest.raises(CgpflError, match="has shape"):
        private.load(1, {"w": np.zeros(4, np.float32), "n": np.int32(0)})


def test_the_last_message_is_kept_with_its_state(tmp_path):
    private = Private(tmp_path, "run")
    private.keep({"m": np.ones(2)}, 3, 2, {"label": "a"})
    private.keep({"m": np.zeros(2)}, 2, 1, {"label": "a"})  # out of turn
    arrays, facts = load_arrays(tmp_path / "run" / MESSAGE)
    assert facts == {"label": "a", "round": 3, "base": 2}
    np.testing.assert_array_equal(arrays["m"], np.ones(2))
    private.keep({"m": np.zeros(2)}, 3, 3, {"label": "a"})  # the round was repeated
    assert load_facts(tmp_path / "run" / MESSAGE)["base"] == 3
    assert private.versions() == []
