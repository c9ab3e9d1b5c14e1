"""No code reads the texts of errors, except those of others.

A sentence that is tested somewhere cannot be reworded: who acts on a kind of failure reads `Failure.code`, `wrong`,
`param` or `details`. Words of servers and libraries have no kind, so that the places that read them stand here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("adapters", "bridge")
NOT_READ = ("bridge/testing",)
"""Suites for authors of dialects: their tests read what they sent themselves."""

ALLOWED = {
    "adapters/a2a/calling.py failure.message.lower()": "the agent's words: an unknown context has no code",
    "adapters/aip/addresses.py 'host bits' in str(error)": "of ipaddress, which has no other sign of it",
    "bridge/model/jsontext.py str(error).partition(':')": "of orjson: the reason, without the position",
    "bridge/jsonrpc/rpc_messages.py str(error).partition(':')": "of orjson: the reason, without the position",
    "bridge/toolkit/inner_errors.py failure.message[:_LONGEST]": "a backend's words: an error of a model's API",
    "bridge/toolkit/errors.py is_full_context(failure.message)": "a backend's words",
    "bridge/run/amendments.py failure.message[:_LONGEST]": "a backend's words: what it refuses",
    "bridge/run/backends/http_backend.py _NO_COUNTS.search(failure.message)": "a backend's words: it counts no tokens",
    "bridge/run/amendments.py failure.message[:200]": "a backend's words, cut for the log",
    "bridge/translation/policies/signatures.py "
    "_REFUSED.search(f'{failure.message} {failure.backend_code} {failure.param}')": "a backend's words: of a refusal",
    "bridge/server/host/server_connection.py error.message == 'Too many headers received'": "of aiohttp",
    "bridge/toolkit/redact.py self._address.sub('(address)', failure.message)": "hides the backend's address",
    "bridge/toolkit/redact.py masked(failure.message)": "hides what a client sent, wherever a message quotes it",
}  # fmt: skip
"""Place and expression -> whose words they are."""

_TESTS = frozenset({
    "startswith", "endswith", "removeprefix", "removesuffix", "replace", "partition", "rpartition", "split", "rsplit",
    "splitlines", "find", "rfind", "index", "count", "lower", "upper", "casefold",
})  # fmt: skip
_SEARCHES = frozenset({"match", "search", "fullmatch", "findall", "finditer", "sub", "split"})
_READERS = frozenset({"is_full_context"})


def _is_text(node: ast.expr, errors: frozenset[str]) -> bool:
    """Return whether an expression is the text of an error: `x.message`, `str(error)`, `error.args[0]`."""
    match node:
        case ast.Attribute(attr="message", value=ast.Name(id=name)):
            return name in errors or "err" in name or "fail" in name or "refus" in name or name in ("caught", "again")
        case ast.Attribute(attr="message", value=ast.Attribute(attr=name)):
            return "error" in name or "fail" in name
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in errors
        case ast.Subscript(value=ast.Attribute(attr="args", value=ast.Name(id=name))):
            return name in errors
    return False


def _holds(node: ast.AST, errors: frozenset[str]) -> bool:
    return any(isinstance(each, ast.expr) and _is_text(each, errors) for each in ast.walk(node))


def _caught(tree: ast.Module) -> frozenset[str]:
    """Names of caught exceptions."""
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name)


def reads(text: str) -> Iterator[tuple[int, str]]:
    """The expressions that read the text of an error, with their lines."""
    tree = ast.parse(text)
    errors = _caught(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare | ast.Call | ast.Subscript):
            continue
        match node:
            case ast.Compare(left=left, comparators=others) if any(_is_text(e, errors) for e in (left, *others)):
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr=name, value=value)) if name in _TESTS and _is_text(value, errors):
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr=name), args=args) if name in _SEARCHES:
                if any(_holds(arg, errors) for arg in args):
                    yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id=name), args=args) if name in _READERS:
                if any(_holds(arg, errors) for arg in args):
                    yield node.lineno, ast.unparse(node)
            case ast.Subscript(value=value) if _is_text(value, errors):
                yield node.lineno, ast.unparse(node)


@cache
def found() -> dict[str, str]:
    out: dict[str, str] = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith((*NOT_READ, "bridge/dialects")):
                for line, expression in reads(path.read_text(encoding="utf-8")):
                    out[f"{name} {expression}"] = f"{name}:{line}"
    return out


def test_no_code_reads_the_sentences_of_the_bridge() -> None:
    allowed = tuple(ALLOWED)
    assert {name: place for name, place in found().items() if not _is_allowed(name, allowed)} == {}


def _is_allowed(name: str, allowed: tuple[str, ...]) -> bool:
    """Return whether a row is the expression, or the part of it that reads the text."""
    file, _, expression = name.partition(" ")
    return any(row.partition(" ")[0] == file and row.partition(" ")[2] in expression for row in allowed)


def test_each_row_is_read() -> None:
    names = found()
    assert [row for row in ALLOWED if not any(_is_allowed(name, (row,)) for name in names)] == []


@pytest.mark.parametrize(
    "line",
    [
        "if 'not valid JSON' in failure.message: pass",
        "if failure.message == TEXT: pass",
        "failure.message.replace('a', 'b')",
        "text = error.failure.message.partition(': ')[0]",
        "re.search('x', failure.message)",
        "_PATTERN.fullmatch(f'{failure.message}')",
        "try: pass\nexcept ValueError as wrong:\n    if 'x' in str(wrong): pass",
        "try: pass\nexcept ValueError as wrong:\n    wrong.args[0].startswith('x')\n    wrong.args[0] == 'x'",
        "failure.message[:3]",
    ],
)
def test_readers_are_found(line: str) -> None:
    assert list(reads(line))


@pytest.mark.parametrize(
    "line",
    [
        "log.info('%s', failure.message)",
        "text = masked(failure.message)",
        "if failure.code is ErrorCode.INTERNAL: pass",
        "if not failure.message: pass",
        "Failure(code, f'{failure.message} More.')",
        "if connection.message == 1: pass",
    ],
)
def test_what_is_no_reader(line: str) -> None:
    assert list(reads(line)) == []
