"""Files: whole, checked, never through a link, never without end."""

import os
import shutil
import stat
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cgpfl.errors import CgpflError, DamagedError
from cgpfl.files import (
    SUMS,
    a_path,
    append,
    check_new,
    check_sum,
    load_arrays,
    make_folder,
    read_text,
    regular,
    save_arrays,
    summed,
    write,
)

ARRAYS = {"w": np.linspace(0.1, 0.9, 40, dtype=np.float32), "n": np.arange(3)}


def test_every_bit_counts(tmp_path):
    file = tmp_path / "a.safetensors"
    save_arrays(file, ARRAYS, {"round": 3, "note": '"sha256":"' + "0" * 64 + '"'})
    assert load_arrays(file)[1]["round"] == 3
    assert load_file(file)["w"].tolist() == ARRAYS["w"].tolist()  # for everybody else an ordinary file
    content = file.read_bytes()
    for at in [*range(0, 8), *range(8, len(content), 7), len(content) - 1]:
        damaged = bytearray(content)
        damaged[at] ^= 1 << (at % 8)
        file.write_bytes(damaged)
        with pytest.raises(CgpflError, match=r"damaged|cannot be read"):
            load_arrays(file)


def test_files_without_a_checksum_are_still_read(tmp_path):
    save_file(ARRAYS, tmp_path / "old.safetensors", {"facts": '{"round": 2}'})
    assert load_arrays(tmp_path / "old.safetensors")[1] == {"round": 2}


def test_links_are_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("config.toml", "config.toml.part", "events.jsonl"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(CgpflError, match=r"config\.toml: is a link"):
        write(tmp_path / "config.toml", b"yours")
    with pytest.raises(CgpflError, match=r"events\.jsonl: is a link"):
        append(tmp_path / "events.jsonl", b"yours")
    (tmp_path / "config.toml").unlink()
    write(tmp_path / "config.toml", b"new")
    assert victim.read_text() == "mine"
    assert (tmp_path / "config.toml").read_bytes() == b"new"


def test_nothing_is_left_of_a_failure(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "a", b"1")
    assert not list(tmp_path.iterdir())


def test_files_keep_the_usual_rights(tmp_path):
    write(tmp_path / "a", b"1")
    (tmp_path / "b").write_bytes(b"1")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)


def test_what_never_ends_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in (
        (tmp_path / "pipe", "a pipe"),
        (a_path("/dev/zero"), "a device"),
        (tmp_path, "a folder"),
    ):
        with pytest.raises(CgpflError, match=f"config: is {kind}; must be a file"):
            regular(path, "config")
    with pytest.raises(CgpflError, match="is a pipe"):
        read_text(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(CgpflError, match="cannot be read: Too many levels"):
        regular(tmp_path / "loop")
    with pytest.raises(DamagedError, match="is a pipe; must be a file"):
        load_arrays(tmp_path / "pipe")


def test_nothing_is_written_where_a_folder_is(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / SUMS).mkdir()
    with pytest.raises(CgpflError, match=r"a: is a folder; must be a file or nothing, remove it"):
        write(tmp_path / "a", b"1")
    with pytest.raises(CgpflError, match="is a folder"):
        append(tmp_path / "a", b"1")
    with pytest.raises(CgpflError, match="is a folder"), summed(tmp_path):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", SUMS]


def test_paths(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert a_path("~/runs/a") == tmp_path / "runs" / "a"
    for wrong in (3, b"runs", "", "a\0b", None, "~nobody-of-this-name/a"):
        with pytest.raises(CgpflError, match=r"^out"):
            a_path(wrong)
    (tmp_path / "file").touch()
    for wrong, why in ((tmp_path / "file" / "a", "is no folder"), (tmp_path / ("a" * 300), "a name of 300 characters")):
        with pytest.raises(CgpflError, match=why):
            check_new(wrong)
    deep = tmp_path.joinpath(*["a"] * 2000)
    with pytest.raises(CgpflError, match="a path of"):
        check_new(deep)
    less = tmp_path.joinpath(*["a"] * 1500)
    check_new(less)
    make_folder(less)
    try:
        assert less.is_dir()
    finally:  # pytest clears old folders by recursion, which does not reach so deep
        subprocess.run(["rm", "-rf", str(tmp_path / "a")], check=True)
    make_folder(tmp_path / "b")
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(CgpflError, match="cannot be written to"):
        check_new(tmp_path / "a")


def test_files_for_people_have_checksums_beside_them(tmp_path):
    with summed(tmp_path, "a.json"):
        (tmp_path / "a.json").write_text('{"accuracy": 0.9}')
        check_sum(tmp_path / "a.json")  # not yet
    check_sum(tmp_path / "a.json")
    check_sum(tmp_path / "other")  # nothing is known of it
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", SUMS], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "a.json").write_text('{"accuracy": 0.8}')
    with pytest.raises(DamagedError, match=r"a\.json is damaged: its checksum is another; remove sha256sums\.txt if"):
        check_sum(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to("/dev/zero")
    with pytest.raises(CgpflError, match="is a device; must be a file"):
        check_sum(tmp_path / "b.json")
    with pytest.raises(RuntimeError, match="killed"), summed(tmp_path, "a.json"):
        raise RuntimeError("killed")
    check_sum(tmp_path / "a.json")  # half written: no checksum rather than a wrong one
