"""README.zh-CN.md, the newcomer's part of README.md in Chinese: `make pages` copies the code blocks anew.

Above each translated heading stands `<!-- = Heading of README.md -->`. The words are a translator's; the fenced blocks
are README.md's, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.docs.tables import README, ROOT

PAGE = ROOT / "README.zh-CN.md"

_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{2,3} (.+)\n", re.MULTILINE)
_MARK = re.compile(r"^<!-- = (.+) -->\n", re.MULTILINE)


def page() -> str:
    """The page with the code blocks of today. Raises `ValueError` where it has more or fewer than README.md."""
    english = dict(sections(README.read_text(encoding="utf-8"), _HEADING))
    told = []
    for name, text in sections(PAGE.read_text(encoding="utf-8"), _MARK):
        blocks = _BLOCK.findall(english[name]) if name in english else []
        if len(blocks) != len(_BLOCK.findall(text)):
            raise ValueError(f"{PAGE.name}, {name!r}: expected {len(blocks)} code blocks as in README.md")
        left = iter(blocks)
        told.append((f"<!-- = {name} -->\n" if name else "") + _BLOCK.sub(lambda _, left=left: next(left), text))
    return "".join(told)


def sections(text: str, heading: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Each part of a text with the name in the heading above it, which is left out; "" for what stands before all."""
    first, *rest = heading.split(text)
    yield "", first
    yield from zip(rest[::2], rest[1::2], strict=True)


def covered() -> list[str]:
    """The headings of README.md that are translated, in order."""
    return _MARK.findall(PAGE.read_text(encoding="utf-8"))
