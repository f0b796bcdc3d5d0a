import numpy as np
import pytest

from cgpfl.data import load, make_data
from cgpfl.errors import CgpflError


def rows_of(data):
    return np.concatenate([*data.train.parts(), *data.test.parts()])


def test_a_share_of_the_samples():
    whole, half = (make_data("digits", "iid", clients=8, seed=3, share=s) for s in (1.0, 0.5))
    used = rows_of(half)
    assert len(rows_of(whole)) == 1797
    assert abs(len(used) - 1797 / 2) <= 5
    assert len(np.unique(used)) == len(used)
    assert half.x.shape == whole.x.shape  # positions only: the samples are not copied
    shares = np.bincount(half.y[used]) / np.bincount(whole.y)
    assert np.allclose(shares, 0.5, atol=0.01)
    assert "share" not in whole.about
    assert half.about["share"] == 0.5
    assert half.digest != whole.digest


def test_a_share_is_drawn_by_the_seed():
    used = [set(rows_of(make_data("digits", "iid", clients=8, seed=s, share=0.3)).tolist()) for s in (0, 0, 1)]
    assert used[0] == used[1] != used[2]


def test_context_makers_copy_only_the_share():
    data = make_data("digits", "labels", clients=8, contexts=2, seed=0, share=0.25)
    assert abs(len(data.x) - 1797 / 4) <= 10
    assert sorted(rows_of(data)) == list(range(len(data.x)))
    originals = {image.tobytes() for image in load("digits").x}
    assert all(image.tobytes() in originals for image in data.x)


def test_public_samples_are_of_the_share():
    data = make_data("digits", "cyclic", clients=10, seed=0, share=0.5, public=0.2)
    assert abs(len(data.public) - 0.2 * 1797 / 2) <= 2
    assert not set(data.public.tolist()) & set(rows_of(data).tolist())
    assert len(data.public) + len(rows_of(data)) == pytest.approx(1797 / 2, abs=5)


def test_largest_counts_all_of_a_clients_samples():
    data = make_data("digits", "cyclic", clients=20, spread=0.4, smallest=40, largest=160, seed=0)
    sizes = data.train.counts + data.test.counts
    assert sizes.max() <= 160
    assert sizes.min() >= 40
    assert sizes.std() > 10
    assert data.about["largest"] == 160


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_bad_shares_say_so(share):
    with pytest.raises(CgpflError, match=r"share = .*: must be above 0 and at most 1"):
        make_data("digits", "iid", share=share)


@pytest.mark.parametrize("setting", [{"share": 0.5}, {"largest": 20}, {"public": 0.1}])
def test_a_files_own_clients_keep_their_samples(tmp_path, setting):
    path = tmp_path / "mine.npz"
    np.savez(path, x=np.zeros((30, 2), np.float32), y=np.arange(30) % 2, client=np.arange(30) % 3)
    assert make_data(str(path), "own").clients == 3
    (name,) = setting
    with pytest.raises(CgpflError, match=f"{name}: the data's own clients keep their samples; use another split, or"):
        make_data(str(path), "own", **setting)
