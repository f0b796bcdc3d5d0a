"""Hashes in the requirement files: what is installed is what was published when a version was chosen.

    python tools/requirements.py [FILE ...]           write the hashes of every pinned version, from the package index
    python tools/requirements.py --check [FILE ...]   every line is pinned and has hashes; nothing is asked of anybody

To choose another version, edit its line and run the first. Of each version the source and the wheels for the Pythons
in ``PYTHONS`` are listed, for all systems.
"""

from __future__ import annotations

import argparse
import re
import sys
import urllib.request
from html import unescape
from pathlib import Path

FILES = [Path(__file__).parents[1] / f"requirements{kind}.txt" for kind in ("", "-test", "-docs")]
INDEX = "https://pypi.org/simple"
PYTHONS = ("cp311", "cp312", "cp313", "py3", "py2.py3")
LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?P<rest>(\s*;[^\\]*)?)")
LINK = re.compile(r'<a href="[^"#]*#sha256=([0-9a-f]{64})"[^>]*>([^<]+)</a>')


def pinned(text: str) -> list[tuple[str, str, str]]:
    """(name, version, marker) of every requirement of a file, hashes left out."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        line = line.split("#")[0].split("--hash")[0].strip()
        if not line:
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise SystemExit(f"requirements: {line!r}: must be NAME==VERSION")
        found.append((match["name"], match["version"], match["rest"].strip()))
    return found


def normal(name: str) -> str:
    """A project's name as the index writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def fits(file: str, name: str, version: str) -> bool:
    """Whether a file is of this version, and a source or a wheel for a Python of ours."""
    if file.endswith(".whl"):
        own, its, *_, python, abi, _ = file.removesuffix(".whl").split("-")
        ours = set(python.split(".")) & set(PYTHONS) or python in PYTHONS or (abi == "abi3" and python[:3] == "cp3")
        return normal(own) == normal(name) and its == version and bool(ours) and not abi.endswith("t")
    own, _, its = file.removesuffix(".tar.gz").removesuffix(".zip").rpartition("-")
    return file.endswith((".tar.gz", ".zip")) and normal(own) == normal(name) and its == version


def hashes(name: str, version: str) -> list[str]:
    """Of the files of a version, from the index."""
    with urllib.request.urlopen(f"{INDEX}/{normal(name)}/", timeout=60) as page:
        found = LINK.findall(page.read().decode())
    chosen = sorted({digest for digest, file in found if fits(unescape(file), name, version)})
    if not chosen:
        raise SystemExit(f"{name}=={version}: the index has no file of it")
    return chosen


def written(text: str) -> str:
    """The file again, with hashes; its comments stay on top."""
    head = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("#"))
    for name, version, marker in pinned(text):
        lines = [f"{name}=={version}{f' {marker}' if marker else ''}"]
        head += " \\\n    ".join(lines + [f"--hash=sha256:{digest}" for digest in hashes(name, version)]) + "\n"
    return head


def faults(text: str) -> list[str]:
    """What has no hash, or stands twice."""
    names = [normal(name) for name, _, _ in pinned(text)]
    twice = sorted({f"{name}: stands twice" for name in names if names.count(name) > 1})
    whole = text.replace("\\\n", " ").splitlines()
    bare = [line for line in whole if line.strip() and not line.startswith("#") and "--hash=sha256:" not in line]
    return twice + [f"{line.split()[0]}: has no hash" for line in bare]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Hashes in requirement files.")
    parser.add_argument("files", nargs="*", type=Path, default=FILES)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    wrong = []
    for file in asked.files:
        text = file.read_text()
        if asked.check:
            wrong += [f"{file.name}: {fault}" for fault in faults(text)]
        else:
            file.write_text(written(text))
            print(f"{file.name}: {len(pinned(text))} versions")
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
