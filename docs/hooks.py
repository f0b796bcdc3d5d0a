"""What MkDocs does not know of these pages: links to the source, and roles in docstrings.

Pages are read in the repository, too, where a link to a source file leads there. The site has only what is under
docs/: such a link becomes the file's path, after a look whether it is there (a warning, which ends a strict build).
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.cgpfl")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)\)")
ROLE = re.compile(r":(?:class|func|meth|mod|attr):<code>~?([\w.]+)</code>")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links that leave docs/ as paths."""
    docs = Path(config["docs_dir"]).resolve()
    folder = Path(page.file.abs_src_path).resolve().parent

    def path_of(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if target.is_relative_to(docs):
            return match[0]
        if not target.exists():
            log.warning("%s: links to %s, which does not exist", page.file.src_path, match[2])
        path = f"`{target.relative_to(docs.parent)}`"
        return path if match[1].strip("`") == target.name else f"{match[1]} ({path})"

    return LINK.sub(path_of, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Roles of docstrings, as :class:`~cgpfl.models.Model`, as the name alone."""
    return ROLE.sub(lambda match: f"<code>{match[1].rpartition('.')[2]}</code>", html)
