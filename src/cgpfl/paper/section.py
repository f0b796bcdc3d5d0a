"""What a part of the reproduction leaves behind: text, tables and figures, as files and for the page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cgpfl.files import write
from cgpfl.tables import Table


@dataclass(frozen=True)
class Figure:
    """A picture in the part's folder (``name``.png, .svg and .pdf) and what it shows."""

    name: str
    caption: str


@dataclass(frozen=True)
class Verdict:
    """What became of a claim of the paper."""

    claim: str
    verdict: str  # reproduced, partly, not
    evidence: str


def grade(holds: Iterable[bool]) -> str:
    """Of a claim that was looked at several times: reproduced = it always holds, not = never, else partly."""
    each = [bool(h) for h in holds]
    return "reproduced" if all(each) else "partly" if any(each) else "not"


@dataclass(frozen=True)
class Section:
    """One part."""

    name: str
    title: str
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """As Markdown, and as JSON to make the page from."""
        folder.mkdir(parents=True, exist_ok=True)
        parts = [f"# {self.title}", *self.text, *(t.markdown() for t in self.tables)]
        parts += [f"![{f.caption}]({f.name}.png)\n\n*{f.caption}*" for f in self.figures]
        parts += [f"**{v.claim}** {v.verdict.capitalize()}: {v.evidence}" for v in self.verdicts]
        write(folder / f"{self.name}.md", ("\n\n".join(parts) + "\n").encode())
        write(folder / "section.json", (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, folder: Path) -> Section:
        values = json.loads((folder / "section.json").read_text())
        for name, kind in (("tables", Table), ("figures", Figure), ("verdicts", Verdict)):
            values[name] = [kind(**one) for one in values[name]]
        return cls(**values)
