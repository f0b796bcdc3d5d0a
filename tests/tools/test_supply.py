"""Hashes, licences and the bill of materials; no package index is asked."""

from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

import licences
import pytest
import requirements
import sbom
from packaging.requirements import Requirement

A, B = "a" * 64, "b" * 64


@pytest.mark.parametrize("file", requirements.FILES, ids=lambda file: file.name)
def test_every_version_has_hashes(file):
    assert requirements.faults(file.read_text()) == []


def test_what_has_none_is_seen():
    text = f"# head\na==1 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\nb==2\nA==1 --hash=sha256:{A}\n"
    assert requirements.faults(text) == ["a: stands twice", "b==2: has no hash"]
    assert requirements.pinned(text)[:2] == [("a", "1", ""), ("b", "2", "")]
    with pytest.raises(SystemExit, match="must be NAME==VERSION"):
        requirements.pinned("a>=1\n")


@pytest.mark.parametrize(
    ("file", "is_ours"),
    [
        ("num_py-2.0-cp311-cp311-manylinux_2_17_x86_64.whl", True),
        ("num_py-2.0-cp311-abi3-win_amd64.whl", True),
        ("num_py-2.0-cp39-abi3-win_amd64.whl", True),
        ("num_py-2.0-py2.py3-none-any.whl", True),
        ("num-py-2.0.tar.gz", True),
        ("num_py-2.0-cp310-cp310-win_amd64.whl", False),
        ("num_py-2.0-cp313-cp313t-win_amd64.whl", False),
        ("num_py-2.0-pp311-pypy311_pp73-win_amd64.whl", False),
        ("num_py-2.0.1-py3-none-any.whl", False),
        ("num_py_extra-2.0.tar.gz", False),
    ],
)
def test_which_files_are_of_a_version(file, is_ours):
    assert requirements.fits(file, "Num.Py", "2.0") is is_ours


def test_hashes_are_the_indexs(monkeypatch):
    page = f'<a href="https://x/n-1.tar.gz#sha256={B}" data-x="&gt;">n-1.tar.gz</a>\n'
    page += f'<a href="https://x/n-1-py3-none-any.whl#sha256={A}">n-1-py3-none-any.whl</a>\n'
    page += f'<a href="https://x/n-2.tar.gz#sha256={"c" * 64}">n-2.tar.gz</a>\n'

    class Page:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def read(self):
            return page.encode()

    monkeypatch.setattr(requirements.urllib.request, "urlopen", lambda url, timeout: Page())
    made = requirements.written('# about\nn==1 ; python_version < "4"\n')
    assert made == f'# about\nn==1 ; python_version < "4" \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n'
    assert requirements.faults(made) == []
    with pytest.raises(SystemExit, match="n==3: the index has no file of it"):
        requirements.hashes("n", "3")


@pytest.mark.parametrize(
    ("name", "expression", "may"),
    [
        ("a", "MIT", True),
        ("a", "Apache-2.0 OR GPL-3.0-only", True),
        ("a", "BSD-3-Clause AND MIT", True),
        ("a", "BSD-3-Clause AND GPL-3.0-only", False),
        ("a", "GPL-3.0-or-later WITH GCC-exception-3.1", False),
        ("numpy", "BSD-3-Clause AND GPL-3.0-or-later WITH GCC-exception-3.1", True),
        ("a", "", False),
    ],
)
def test_which_licences_may_be(name, expression, may):
    assert licences.is_allowed(name, expression) is may


def test_all_that_is_needed_may_be_used():
    found = {d.metadata["Name"]: licences.licence_of(d) for d in licences.needed(["dev"])}
    assert {"numpy", "jax", "flwr", "mypy"} <= {name.lower() for name in found}
    assert not {name: licence for name, licence in found.items() if not licences.is_allowed(name, licence)}


def test_the_bill_of_materials():
    made = sbom.bill(["report"])
    parts = {c["name"].lower(): c for c in made["components"]}
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert parts["plotly"]["purl"] == f"pkg:pypi/plotly@{distribution('plotly').version}"
    assert parts["plotly"]["licenses"] == [{"expression": "MIT"}]
    assert "flwr" not in parts
    refs = [c["bom-ref"] for c in made["components"]]
    assert len(set(refs)) == len(refs)
    needs = {d["ref"]: d["dependsOn"] for d in made["dependencies"]}
    assert parts["plotly"]["bom-ref"] in needs[made["metadata"]["component"]["bom-ref"]]
    assert {ref for each in needs.values() for ref in each} <= set(refs)
    pinned = dict(v[:2] for f in requirements.FILES[:1] for v in requirements.pinned(f.read_text()))
    if pinned["plotly"] == distribution("plotly").version:
        (reference,) = parts["plotly"]["externalReferences"]
        assert all(len(h["content"]) == 64 for h in reference["hashes"])


def test_nothing_is_needed_that_is_not_pinned():
    """What is installed by hashes takes nothing beside them: pip would refuse."""

    @cache
    def due(name):
        needs = [Requirement(text) for text in distribution(name).requires or []]
        return [r for r in needs if r.marker is None or r.marker.evaluate({"extra": ""})]

    pinned = {requirements.normal(n) for n, _, _ in requirements.pinned(requirements.FILES[0].read_text())}
    for file in requirements.FILES[:2]:
        pinned |= {requirements.normal(n) for n, _, _ in requirements.pinned(file.read_text())}
        for name in sorted(pinned):
            with suppress(PackageNotFoundError):
                assert not [str(r) for r in due(name) if requirements.normal(r.name) not in pinned], name
