"""The licence of every installed package that cgpfl needs, against a list of those it may have.

    python tools/licences.py [EXTRA ...]     cgpfl's own needs, and those of its extras (default: dev)

What is not on the list, or says nothing, is printed, and the exit code is 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

ALLOWED = {
    "MIT", "MIT-0", "MIT-CMU", "HPND", "BSD", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "Zlib", "Apache-2.0",
    "PSF-2.0", "Python-2.0", "MPL-2.0", "CC0-1.0", "Unlicense", "BSL-1.0", "CNRI-Python", "LLVM-exception",
    "Apache-2.0 WITH LLVM-exception", "Unicode-DFS-2016", "Unicode-3.0", "CDDL-1.0", "OFL-1.1", "FSFAP",
}  # fmt: skip
"""Permissive ones, and MPL-2.0, whose duties end with its own files. SPDX names."""
BUNDLED = {
    "numpy": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "scipy": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "scikit-learn": "GPL-3.0-or-later WITH GCC-exception-3.1",
}
"""The compiler's runtime library inside some wheels, whose exception lets anybody use it."""
SPELLED = {
    "apache": "Apache-2.0", "mit": "MIT", "bsd": "BSD", "new bsd": "BSD", "3-clause bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause", "isc": "ISC", "python software foundation": "PSF-2.0", "psf": "PSF-2.0",
    "mozilla public license 2.0": "MPL-2.0", "mpl-2.0": "MPL-2.0", "matplotlib": "PSF-2.0", "hpnd": "HPND",
    "zlib": "Zlib", "unlicense": "Unlicense", "dual license": "Apache-2.0 OR BSD-3-Clause",
}  # fmt: skip
"""How older packages say it, in lower case, the more precise first to be found by length."""


def needed(extras: Iterable[str], root: str = "cgpfl") -> Iterator[Distribution]:
    """What ``root[extras]`` needs, as far as it is installed, each once."""
    waiting, seen = [(root, frozenset(extras))], dict[str, frozenset[str]]()
    while waiting:
        name, wanted = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen and wanted <= seen[key]:
            continue
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        if key not in seen and name != root:
            yield found
        seen[key] = seen.get(key, frozenset()) | wanted
        for text in found.requires or []:
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                waiting.append((need.name, frozenset(need.extras)))


def licence_of(found: Distribution) -> str:
    """As SPDX says it; empty where a package says nothing that is understood."""
    about = found.metadata
    if expression := about.get("License-Expression"):
        return str(expression)
    kinds = [
        c.split(" :: ")[-1] for c in about.get_all("Classifier") or [] if c.startswith("License :: OSI Approved ::")
    ]
    for said in (*kinds, (about.get("License") or "").splitlines()[0] if about.get("License") else ""):
        if said in ALLOWED:
            return said
        near = [name for name in SPELLED if name in said.lower()]
        if near:
            return SPELLED[max(near, key=len)]
    return ""


def is_allowed(name: str, expression: str) -> bool:
    """Whether all parts joined by AND, and one of those joined by OR, may be."""
    text = expression.replace(BUNDLED.get(name.lower(), "\0"), "MIT")
    ways = [way.strip(" ()") for way in re.split(r"\s+OR\s+", text)]
    return bool(expression) and any(
        all(part.strip(" ()") in ALLOWED for part in re.split(r"\s+AND\s+", way)) for way in ways
    )


def main() -> int:
    """The command."""
    extras, wrong, count = sys.argv[1:] or ["dev"], [], 0
    for found in needed(extras):
        name, licence = found.metadata["Name"], licence_of(found)
        count += 1
        if not is_allowed(name, licence):
            wrong.append(f"{name} {found.version}: {licence or 'no licence that is understood'}")
    print("\n".join([*wrong, f"{count} packages, {len(wrong)} with a licence that is not on the list"]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
