"""Docstrings and documents are plain technical English, and comments refer to nothing outside of the repository."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable
from functools import cache
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


class Source:
    """The words of a module. Docstrings, comments and classes have their lines."""

    def __init__(self, text: str) -> None:
        self.docstrings: list[tuple[int, str]] = []
        self.comments: list[tuple[int, str]] = []
        self.classes: list[tuple[int, str]] = []
        self.names: set[str] = set()
        """Of classes, functions, arguments and variables."""
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    self.docstrings.append((node.lineno, words))
                case ast.ClassDef(name=name):
                    self.classes.append((node.lineno, name))
                    self.names.add(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                    self.names.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    self.names.add(name)
        if OUTSIDE.search(text):  # in a comment, perhaps
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    self.comments.append((token.start[0], token.string))


@cache
def source(path: Path) -> Source:
    return Source(path.read_text(encoding="utf-8"))


def odd(it: Source) -> list[int]:
    return [line for line, words in it.docstrings if ODD.search(words)]


def outside(it: Source) -> list[int]:
    notes = it.docstrings + it.comments
    return [line for line, words in notes if OUTSIDE.search(re.sub(r"RFC \d+, section [\d.]+", "", words))]


def test_docstrings_are_statements() -> None:
    assert [f"{p.relative_to(ROOT)}:{line}" for p in FILES for line in odd(source(p))] == []


def test_comments_refer_to_what_a_reader_has() -> None:
    assert [f"{p.relative_to(ROOT)}:{line}" for p in FILES for line in outside(source(p))] == []


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
    assert (len(odd(Source(code))), len(outside(Source(code)))) == found


# Each limit is what stands now: a new name that something else has already fails. `bridge/sdk` has the names of the
# protocols' own documents, and adapters are alike on purpose. Names with an underscore are of one module.
# The class is `Splitter`, of each framing: `FramingModule` names it.
MOST_CLASSES, MOST_FILES = 1, 3
CODE = [path for path in FILES if path.is_relative_to(ROOT / "bridge") and "sdk" not in path.parts]

Names = Iterable[tuple[str, str]]


def class_names() -> Names:
    for path in CODE:
        for line, name in source(path).classes:
            if not name.startswith("_"):
                yield name, f"{path.relative_to(ROOT)}:{line}"


def file_names() -> Names:
    return ((p.name, str(p.relative_to(ROOT))) for p in CODE if not p.name.startswith("__"))


def repeated(names: Names) -> dict[str, list[str]]:
    """Return the names that stand for several things, with their places."""
    places: dict[str, list[str]] = {}
    for name, place in names:
        places.setdefault(name, []).append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


@pytest.mark.parametrize(("names", "most"), [(class_names, MOST_CLASSES), (file_names, MOST_FILES)])
def test_a_name_stands_for_one_thing(names: Callable[[], Names], most: int) -> None:
    found = repeated(names())
    assert len(found) <= most, found


def test_repeated_names_are_found() -> None:
    assert repeated([("A", "x:1"), ("B", "x:2"), ("A", "y:1")]) == {"A": ["x:1", "y:1"]}


# Pictures for which the field has words: a pool of workers, an adapter, a conversation, a cross-origin request.
PICTURES = re.compile(r"(^|_)(crew|teller|keeper|talks?|anew|hurry|stranger|handover)(_|$)", re.IGNORECASE)


def pictures(it: Source) -> list[str]:
    return sorted(name for name in it.names if PICTURES.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)))


def test_names_are_the_words_of_the_field() -> None:
    found = {str(p.relative_to(ROOT)): pictures(source(p)) for p in CODE}
    assert {place: names for place, names in found.items() if names} == {}


def test_pictures_are_found() -> None:
    text = "class OldCrew: pass\ndef anew(keeper): self.hurry = talk = 1\nahead = crews = 1\n"
    assert pictures(Source(text)) == ["OldCrew", "anew", "hurry", "keeper", "talk"]
