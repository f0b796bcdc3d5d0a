"""Results as HTML tables: what a notebook shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def as_html(head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A table whose first column is text and whose others are figures, with a line below for each note."""

    def line(tag: str, cells: Sequence[str]) -> str:
        sides = ["left", *["right"] * (len(cells) - 1)]
        return "".join(
            f'<{tag} style="text-align: {side}">{escape(cell)}</{tag}>' for side, cell in zip(sides, cells, strict=True)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<table><thead><tr>{line('th', head)}</tr></thead><tbody>{body}</tbody></table>{below}"
