"""The documentation of a dialect, to which the page links: `docs/dialects`, of which wheels have a copy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_LINK = re.compile(r"\[([^\[\]]+)\]\([^()]+\)")
_MARK = re.compile(r"^<!--.*?-->\n?", re.MULTILINE)


def plain(text: str) -> str:
    """Return Markdown whose links are text: what they lead to is not served."""
    return _LINK.sub(r"\1", text)


def document_of(dialect: str) -> str | None:
    """Return the page about a dialect; None for one that is not part of this project."""
    pages = _pages()
    page = pages.get(dialect) or next((text for text in pages.values() if f"`{dialect}`" in _heading(text)), None)
    return plain(_MARK.sub("", page)) if page is not None else None


def _heading(text: str) -> str:
    return text.partition("\n")[0]


@cache
def _pages() -> Mapping[str, str]:
    here = Path(__file__).parent
    places = (here / "documents", here.parents[2] / "docs" / "dialects")  # of a wheel, of a checkout
    folder = next((place for place in places if place.is_dir()), None)
    files = folder.glob("*.md") if folder is not None else ()
    return {file.stem: file.read_text(encoding="utf-8") for file in files if file.stem != "index"}
