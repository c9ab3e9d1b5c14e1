"""The pages in Chinese: `make pages` copies the code blocks of the English ones.

Above each heading stands `<a id="...">` with the anchor of the English heading, so that links lead to both. The words
are a translator's; the fenced blocks are those of the English page, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs import cookbook
from tests.docs.links import slug
from tests.docs.tables import ROOT

ENGLISH = {
    ROOT / "README.zh-CN.md": ROOT / "README.md",
    **{ROOT / "docs" / "zh" / name: ROOT / "docs" / name for name in ("quickstart.md", "faq.md")},
    **{ROOT / "docs" / "zh" / "cookbook" / page.name: page for page in cookbook.PAGES},
}
"""Each translated page and its original."""

_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.+)\n", re.MULTILINE)
_MARK = re.compile(r'^<a id="(.+)"></a>\n', re.MULTILINE)


def page(path: Path) -> str:
    """The page with the code blocks of today. Raises `ValueError` where a section has more or fewer."""
    text = path.read_text(encoding="utf-8")
    english = {slug(name): told for name, told in sections(ENGLISH[path].read_text(encoding="utf-8"), HEADING)}
    parts = []
    for name, told in sections(text, _MARK):
        blocks = _BLOCK.findall(english.get(name, ""))
        if len(blocks) != len(_BLOCK.findall(told)):
            raise ValueError(f"{path.name}, {name!r}: expected {len(blocks)} code blocks as in {ENGLISH[path].name}")
        left = iter(blocks)
        parts.append((f'<a id="{name}"></a>\n' if name else "") + _BLOCK.sub(lambda _, left=left: next(left), told))
    return "".join(parts)


def sections(text: str, heading: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Each part of a text with the name in the heading above it, which is left out; "" for what stands before all."""
    first, *rest = heading.split(text)
    yield "", first
    yield from zip(rest[::2], rest[1::2], strict=True)


def covered(path: Path) -> list[str]:
    """The anchors of the sections that are translated, in order."""
    return _MARK.findall(path.read_text(encoding="utf-8"))
