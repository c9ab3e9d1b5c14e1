"""Docstrings and documents are plain technical English, and comments refer to nothing outside of the repository."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.contract import registry
from tests.docs.links import documents
from tests.docs.tables import dialects

ROOT = Path(__file__).parents[1]
FILES = sorted(p for room in ("bridge", "adapters") for p in (ROOT / room).rglob("*.py") if "dialects" not in p.parts)

# Openings of a question, and words that this code once used for what the field has names for.
ODD = re.compile(
    r"^(Whether (?!each |`)|Whom?\b|Whose\b|Where (?!backends|a dialect)|Says\b|Whatever\b|Whoever\b)"
    r"|\b(whoever|somebody|the talk|talks|is told|he|his|him)\b"
)
OUTSIDE = re.compile(r"(?<!RFC )\b[Ss]ections? \d|protocol page|REDESIGN|audits/")


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def notes(text: str) -> Iterator[tuple[int, str]]:
    """Comments and docstrings."""
    yield from docstrings(text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def odd(text: str) -> list[int]:
    return [line for line, words in docstrings(text) if ODD.search(words)]


def outside(text: str) -> list[int]:
    return [line for line, words in notes(text) if OUTSIDE.search(re.sub(r"RFC \d+, section [\d.]+", "", words))]


def test_docstrings_are_statements() -> None:
    assert [f"{p.relative_to(ROOT)}:{line}" for p in FILES for line in odd(p.read_text(encoding="utf-8"))] == []


def test_comments_refer_to_what_a_reader_has() -> None:
    assert [f"{p.relative_to(ROOT)}:{line}" for p in FILES for line in outside(p.read_text(encoding="utf-8"))] == []


# Words by which people, not software, were meant, and translated idioms.
QUAINT = re.compile(
    r"\b(the talk|whoever|somebody|nobody|he|his|him|mends?|mended|desk|no words? for"
    r"|(is|are|were) told|told as|told apart"
    r"|with a memory|travels? on|named as lost|goes? on (from|behind)|asked (once more|again)|lets go of|what came"
    r"|(as it|as they) (comes?|came)|stream warm|without a word|anew|spoke nonsense|whole card|does not go with"
    r"|took the place of|is given up)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_documents_are_plain_english(path: Path) -> None:
    """Outside of code, whose examples have users of their own."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`|<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert [match[0] for match in QUAINT.finditer(text)] == []


# Reasons of losses are shown to users: on the page, in the log and by `dialect-bridge dialects`.
UNCLEAR = re.compile(r"\b(told|tells|says?|talks?|nobody|somebody|whoever|wire|word|form)\b|\bis no\b|\bhas no word")


@pytest.mark.parametrize("name", dialects())
def test_reasons_on_cards_are_plain_english(name: str) -> None:
    card = registry.get(name).capabilities
    reasons = {entry.reason for entries in (card.answers, card.requests) for entry in entries.values()}
    assert sorted(reason for reason in reasons if UNCLEAR.search(reason)) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('"""Whether it is open."""', (1, 0)),
        ('"""Return whether it is open."""', (0, 0)),
        ('"""What is kept of the talk."""', (1, 0)),
        ("x = 1  # as clients do (section 5)", (0, 1)),
        ('"""The delay (RFC 9110, section 10.2.3)."""', (0, 0)),
    ],
)
def test_the_rules_bite(code: str, found: tuple[int, int]) -> None:
    assert (len(odd(code)), len(outside(code))) == found
