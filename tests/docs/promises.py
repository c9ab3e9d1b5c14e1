"""What the documents promise and which tests show it: `docs/promises.md`, printed by `python -m tests.docs.pages`.

A document marks a promise by an HTML comment after it: `<!-- shown by: server/test_x.py::test_a ::test_b -->`. Paths
are below `tests/`, and `::` alone repeats the file. `<!-- no promise: reason -->` marks what is none: at the end of a
block, or, as the first block below a heading, the section. `shown by` may stand for a whole section, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.docs.tables import ROOT

PAGE = ROOT / "docs" / "promises.md"
DOCUMENTS = ("docs/threat-model.md", "docs/security.md", "docs/reliability.md")
_MARK = re.compile(r"<!-- (shown by|no promise): (.*?) -->")
_COMMENT = re.compile(r"<!-- /?\w+ -->")


@dataclass(frozen=True, slots=True)
class Promise:
    """A statement and the tests that show it, as `server/test_x.py::test_a`."""

    section: str
    text: str
    tests: tuple[str, ...]


def blocks(text: str) -> Iterator[str]:
    """Headings, table rows, list items and paragraphs, each as one line."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        starts = re.match(r"\s*([-*] |\d+\. |\||#)", line) is not None
        if lines and (starts or not line.strip()):
            yield " ".join(lines)
            lines = []
        if line.strip():
            lines.append(line.strip())


def promises(text: str) -> tuple[list[Promise], list[str]]:
    """Return the promises of a document, and its blocks that are neither promises nor marked as none."""
    found: list[Promise] = []
    unmarked: list[str] = []
    section, covered, first, header = "", True, False, False
    for block in blocks(text):
        if block.startswith("#"):
            # The first paragraphs, below the title, say what the page is.
            section, covered, first, header = block.lstrip("# "), block.startswith("# "), True, False
            continue
        marks = list(_MARK.finditer(block))
        if first and marks and not block[: marks[0].start()].strip():
            covered = True
            if marks[0][1] == "shown by":
                found.append(Promise(section, "All of this section", tests_of(marks[0][2])))
        first = False
        was_header, header = header, block.startswith("|")
        if covered or _COMMENT.fullmatch(block) or re.fullmatch(r"[|\s:-]+", block) or (header and not was_header):
            continue
        end = 0
        for mark in marks:
            if mark[1] == "shown by":
                found.append(Promise(section, _plain(block[end : mark.start()]), tests_of(mark[2])))
            end = mark.end()
        if block[end:].strip(" |"):
            unmarked.append(block[end:].strip(" |"))
    return found, unmarked


def tests_of(mark: str) -> tuple[str, ...]:
    """Return the tests that a mark names."""
    tests, file = [], ""
    for name in mark.split():
        path, _, test = name.partition("::")
        file = path or file
        tests.append(f"{file}::{test}")
    return tuple(tests)


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def is_there(test: str) -> bool:
    """Return whether there is a test of this name."""
    file, _, name = test.partition("::")
    path = ROOT / "tests" / file
    return name.startswith("test_") and path.is_file() and name in _functions(path)


def _plain(text: str) -> str:
    """Return a statement without the marks of its list or table, fit for a table cell."""
    text = re.sub(r"^([-*]|\d+\.) ", "", text.strip(" |;,"))
    return re.sub(r"\]\([^)]*\)", "]", text).replace("[", "").replace("]", "").replace(" | ", ": ").strip(" ;,:")


def page() -> str:
    lines = [
        "# Promises",
        "",
        "The statements of three documents, and the tests that verify them. `make pages` generates this page; "
        "`tests/docs/test_promises.py` fails if a statement has no test.",
    ]
    for document in DOCUMENTS:
        found, _ = promises((ROOT / document).read_text(encoding="utf-8"))
        lines += ["", f"## {document.removeprefix('docs/')}", "", "| promise | tests |", "|---|---|"]
        lines += [f"| {p.text} | {'<br>'.join(f'`{test}`' for test in p.tests)} |" for p in found]
    return "\n".join(lines) + "\n"
