"""Links of the documents: where they lead in a checkout, and on a package index."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from tests.docs.tables import ROOT

INDEX_PAGE = ROOT / "deploy" / "release" / "README.md"
"""README.md as package indexes show it: its links are absolute, since an index has none of the files."""

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def documents() -> list[Path]:
    """What people read: the documents at the top of the repository and below docs/."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def targets(text: str) -> list[str]:
    """The targets of a document's links and pictures, those of code left out."""
    return [match[3] for match in _LINK.finditer(re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text)))]


def slug(heading: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", re.sub(_LINK, r"\2", heading).lower()).strip().replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a document: its headings and its `<a id>`."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    return frozenset([*map(slug, headings(path)), *re.findall(r'<a id="([^"]+)">', text)])


def headings(path: Path, level: int | None = None) -> list[str]:
    """The headings of a document, of all levels or of one; lines of code that begin with `#` are none."""
    marks = "#+" if level is None else "#" * level
    return re.findall(rf"^{marks} (.+)$", _FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)


def broken(path: Path, text: str) -> list[str]:
    """The links of a document that lead nowhere in this repository."""
    found = []
    for target in targets(text):
        name, _, anchor = target.partition("#")
        if re.match(r"\w+:", name):
            continue
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            found.append(target)
    return found


def index_page() -> str:
    """README.md with absolute links, to the repository that pyproject.toml names; without one, links are text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = project["urls"].get("Source")

    def absolute(match: re.Match[str]) -> str:
        if source is None:
            return "" if match[1] else match[2]
        kind = "raw" if match[1] else "blob"
        return f"{match[1]}[{match[2]}]({source}/{kind}/v{project['version']}/{match[3]})"

    return _LINK.sub(absolute, (ROOT / "README.md").read_text(encoding="utf-8"))
