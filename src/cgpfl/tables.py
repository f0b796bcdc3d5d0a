"""A table of text, and the ways to show it: on a terminal, as Markdown, LaTeX, HTML; numbers as people write them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType


LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "≈": r"$\approx$", "−": "$-$", "–": "--", "×": r"$\times$", "‖": r"$\|$", "²": "$^2$"},
    **{"<": "$<$", ">": "$>$", "≥": r"$\geq$", "≤": r"$\leq$", "→": r"$\to$", "†": r"\dag{}"},
    **{"λ": r"$\lambda$", "μ": r"$\mu$", "η": r"$\eta$", "β": r"$\beta$", "ρ": r"$\rho$", "θ": r"$\theta$"},
}
"""What LaTeX writes otherwise, with no package."""


def latex(text: str) -> str:
    """A text as LaTeX: nothing in it is a command."""
    return "".join(LATEX.get(c, c) for c in text)


def three_digits(value: float) -> str:
    """A number to three digits, as people write it: 0.042, 43.3, 1,760."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:.10f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Table:
    """Columns and rows of text; the first column is names, the others are figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    strong: Sequence[Sequence[int]] = field(default_factory=list)
    """Cells (row, column) that stand out."""
    left: Sequence[int] = field(default_factory=lambda: [0])
    """Columns of words."""
    help: Sequence[str] = field(default_factory=list)
    """What each column means, where that is told."""

    def rich(self) -> RenderableType:
        """For a terminal; words wrap where they must, figures and first columns never. Without title and note."""
        from rich.table import Table as View
        from rich.text import Text

        view, strong = View(box=None, header_style="bold", padding=(0, 2, 0, 0)), self._strong()
        for c, name in enumerate(self.columns):
            words = c in self.left
            view.add_column(Text(name), justify="left" if words else "right", no_wrap=c == 0 or not words)
        for r, row in enumerate(self.rows):
            view.add_row(*(Text(v, "bold" if (r, c) in strong else "") for c, v in enumerate(row)))
        return view

    def text(self) -> str:
        """As :meth:`rich` has it, in lines as long as they need to be."""
        from rich.console import Console

        out = io.StringIO()
        Console(file=out, width=1000, color_system=None).print(self.rich())
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines())

    def markdown(self) -> str:
        strong = self._strong()
        rows = [[f"**{v}**" if (r, c) in strong else v for c, v in enumerate(row)] for r, row in enumerate(self.rows)]
        head, *body = ("| " + " | ".join(row) + " |" for row in (self.columns, *rows))
        rule = "|" + "|".join("---" if c in self.left else "--:" for c in range(len(self.columns))) + "|"
        above, below = ([f"**{self.title}**", ""] if self.title else []), (["", self.note] if self.note else [])
        return "\n".join([*above, head, rule, *body, *below]) + "\n"

    def legend(self) -> list[str]:
        """What each column means, a line each."""
        pairs = zip(self.columns, self.help, strict=False)
        return [f"{name}: {text}" if name else text for name, text in pairs if text]

    def latex(self) -> str:
        """As LaTeX's own ``tabular``, which needs no package; title and note are comments."""
        strong = self._strong()
        head = " & ".join(latex(name) for name in self.columns)
        rows = [
            " & ".join(f"\\textbf{{{latex(v)}}}" if (r, c) in strong and v else latex(v) for c, v in enumerate(row))
            for r, row in enumerate(self.rows)
        ]
        places = "".join("l" if c in self.left else "r" for c in range(len(self.columns)))
        above, below = ([f"% {text}" for text in part.splitlines()] for part in (self.title, self.note))
        body = [f"{row} \\\\" for row in rows]
        lines = [f"\\begin{{tabular}}{{{places}}}", r"\hline", f"{head} \\\\", r"\hline", *body, r"\hline"]
        return "\n".join([*above, *lines, r"\end{tabular}", *below]) + "\n"

    def html(self, cell: Callable[[int, int, str], tuple[str, str]] | None = None, words: bool = False) -> str:
        """As HTML, without the note; every text is escaped here.

        ``cell`` (row, column, escaped text; row -1 is the head) → the cell's attributes and content. ``words``: a
        class for tables of words.
        """
        strong = self._strong()

        def plain(r: int, c: int, text: str) -> tuple[str, str]:
            return "", f"<b>{text}</b>" if (r, c) in strong else text

        def line(r: int, row: Sequence[str], tag: str) -> str:
            made = [(cell or plain)(r, c, escape(v)) for c, v in enumerate(row)]
            return "<tr>" + "".join(f"<{tag}{of}>{inner}</{tag}>" for of, inner in made) + "</tr>"

        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        body = "".join(line(r, row, "td") for r, row in enumerate(self.rows))
        head = f"<thead>{line(-1, self.columns, 'th')}</thead>"
        kind = ' class="words"' if words else ""
        return f"<table{kind}>{caption}{head}<tbody>{body}</tbody></table>"

    def notebook(self, notes: Sequence[str] = ()) -> str:
        """As HTML for a notebook, where nothing but the cells themselves can say how they stand; notes below."""

        def cell(r: int, c: int, text: str) -> tuple[str, str]:
            return f' style="text-align: {"left" if c in self.left else "right"}"', text

        return self.html(cell) + "".join(f"<p>{escape(note)}</p>" for note in notes)

    def _strong(self) -> set[tuple[int, int]]:
        return {(r, c) for r, c in self.strong}


def origin(data: Mapping[str, Any]) -> str:
    """Where a federation's samples come from, by a summary's facts: ``digits split by rotation``, or ``shops.csv``."""
    source, split = str(data.get("source", "data")), str(data.get("split", "own"))
    return source if split == "own" else f"{source} split by {split}"
