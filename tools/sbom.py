"""What an installed cgpfl consists of, as CycloneDX 1.6 JSON: every package with version, licence, hashes and needs.

python tools/sbom.py FILE [EXTRA ...]     with the packages of these extras, too (default: report)
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from licences import licence_of, needed
from packaging.requirements import Requirement
from requirements import FILES, normal

HASHES = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?:\s+--hash=sha256:[0-9a-f]{64})+)", re.M)


def reference(found: Distribution) -> str:
    """A package's name for machines."""
    return f"pkg:pypi/{normal(found.metadata['Name'])}@{found.version}"


def known_hashes() -> dict[tuple[str, str], list[str]]:
    """Of each pinned version, from the requirement files."""
    text = "\n".join(file.read_text().replace("\\\n", " ") for file in FILES)
    return {(normal(n), v): re.findall(r"sha256:(\w+)", rest) for n, v, rest in HASHES.findall(text)}


def component(found: Distribution, hashes: dict[tuple[str, str], list[str]]) -> dict[str, Any]:
    """A package as CycloneDX says it; the files of a version are many, each with its hash."""
    name, own = found.metadata["Name"], reference(found)
    made: dict[str, Any] = {"type": "library", "bom-ref": own, "name": name, "version": found.version, "purl": own}
    if licence := licence_of(found):
        made["licenses"] = [{"expression": licence}]
    if files := hashes.get((normal(name), found.version)):
        made["externalReferences"] = [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{normal(name)}/{found.version}/",
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in files],
            }
        ]
    return made


def bill(extras: list[str]) -> dict[str, Any]:
    """The whole."""
    root, hashes = distribution("cgpfl"), known_hashes()
    parts = sorted(needed(extras), key=lambda found: normal(found.metadata["Name"]))
    by_name = {normal(found.metadata["Name"]): reference(found) for found in parts}

    def needs(found: Distribution, wanted: list[str]) -> list[str]:
        asked = [Requirement(text) for text in found.requires or []]
        due = [r for r in asked if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in (*wanted, ""))]
        return sorted({by_name[normal(r.name)] for r in due if normal(r.name) in by_name})

    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(root, hashes) | {"type": "application"}},
        "components": [component(found, hashes) for found in parts],
        "dependencies": [
            {"ref": reference(root), "dependsOn": needs(root, extras)},
            *({"ref": reference(found), "dependsOn": needs(found, [])} for found in parts),
        ],
    }


def main() -> int:
    """The command."""
    out, made = Path(sys.argv[1]), bill(sys.argv[2:] or ["report"])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(made, indent=1) + "\n")
    print(f"{out}: {len(made['components'])} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
