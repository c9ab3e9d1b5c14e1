"""The index of the cookbook, in both languages: `make pages` lists the recipes of each page of docs/cookbook.

Each entry has the anchor that the recipe had when all were on one page, so that old links lead to it.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.links import headings, slug
from tests.docs.tables import ROOT, spanned

INDEXES = (ROOT / "docs" / "cookbook.md", ROOT / "docs" / "zh" / "cookbook.md")
PAGES = sorted((ROOT / "docs" / "cookbook").glob("*.md"))


def recipes(page: Path) -> list[tuple[str, str]]:
    """The anchor and the title of each recipe of a page. Translated titles have the anchor of the English one above."""
    titles = headings(page, 2)
    marks = re.findall(r'^<a id="([^"]+)"></a>$', page.read_text(encoding="utf-8"), re.MULTILINE)
    return list(zip(marks or map(slug, titles), titles, strict=True))


def index(path: Path) -> str:
    """The index with the recipes of today."""
    text = path.read_text(encoding="utf-8")
    for page in PAGES:
        listed = [
            f'- <a id="{anchor}"></a>[{title}](cookbook/{page.name}#{anchor})'
            for anchor, title in recipes(path.with_suffix("") / page.name)
        ]
        text = spanned(text, f"recipes: {page.stem}", "\n".join(listed))
    return text


def whole() -> str:
    """All recipes, in the order of the index's pages."""
    names = re.findall(r"^<!-- recipes: (\S+) -->$", INDEXES[0].read_text(encoding="utf-8"), re.MULTILINE)
    return "\n".join((ROOT / "docs" / "cookbook" / f"{name}.md").read_text(encoding="utf-8") for name in names)
