"""What grows is changed in place: code that copies all of it for each piece takes the square of the pieces.

`tests/conformance/test_growth.py` counts the interpreter's steps, and does not see what C code copies within one. These
rules are about such copies, in all code over foreign input.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("adapters", *(f"bridge/{name}" for name in (
    "contract", "jsonrpc", "model", "run", "server/grpc", "server/operations", "toolkit", "translation",
)))  # fmt: skip
_GET = re.compile(r"^(.+)\.get\(([^(),]+)(?:, .*)?\)$")
_COPIED = ("frozenset", "tuple", "str", "bytes")
"""Types whose `+=` and `|=` make a copy of all that was there."""

ALLOWED = {
    "a2a/whole_answer.py last.error.details": "once, for the end of a run",
    "a2a/tasks.py request.extras": "once, for a request",
    "a2a/tasks.py request.messages": "once, for a request",
    "a2a/write_request.py part['metadata']": "once for each part, with two names",
    "ag_ui/write_answer.py more['metadata']": "once for each result",
    "ag_ui/ending.py wire['metadata']": "once, at the end of a run",
    "ag_ui/ending.py held['metadata']": "once, at the end of a run",
    "ag_ui/parts.py extras['metadata']": "once for each part",
    "ag_ui/reports.py wire['metadata']": "once, at the end of a run",
    "gemini/schema.py out['properties']": "once for each schema",
    "ag_kit/generation2.py request.extras": "once, for a request",
    "ag_kit/generation2.py request.resume": "once, for a request",
    "agentscope/write_answer.py metadata, self._first_metadata": "once: it is empty from then on",
    "agentscope/read_request.py content.value": "once for each content of a request",
    "agentscope/read_request.py part.extras": "once for each part of a request",
    "agentscope_service/write_request.py last['output']": "once, for a request",
    "anthropic_messages/write_request.py block[CONTROL]": "once for each of four marks, with two fields",
    "toolkit/error_table.py failure.headers": "once, for a refusal",
    "gemini/schema.py schema['anyOf']": "once for each schema",
    "gemini/schema.py schema['enum']": "once for each schema",
    "openai_chat/read_request.py extras[NOTES]": "once, for a request",
    "openai_responses/read_items.py item.value": "once for each item, at its end",
    "server/operations/tool_calls.py error.failure.details": "once for each message, with what its dialect knows of it",
    "server/grpc/grpc_server.py self._followed, before._followed": "once for each subscription, on both sides",
    "model/builder.py head.extras": "one entry for each dialect",
    "model/fold.py message.extras": "once for each message, one entry for each dialect",
    "run/conversation/turns.py self._new": "once, for a request",
    "run/conversation/turns.py settled.resume": "once, for a request",
    "run/run.py call.frames": "once for each call",
    "run/run.py self.continued_at": "the backends of a group",
    "translation/policies/stages.py about[0]": "once, at the end of a run",
    "run/retries.py self._saved": "a number",
    "run/backends/http_backend.py wire.headers": "once for each call",
    "agentscope_service/calling.py self._inputs.pop(0)": "two inputs at most",
    "run/retries.py self._others.pop(0)": "the backends of a group",
    "run/templates.py first['parts'].insert(0)": "once, for a request",
    "run/backends/http1.py idle.pop(0)": "the idle connections of one backend",
    "ai_sdk_ui/write_request.py parts.insert(0)": "once, for a request",
    "ai_sdk_ui/write_request.py self._out.insert(0)": "once, for a request",
    "ai_sdk_ui/fields.py request.messages.insert(0)": "once, for a request",
    "gemini/write_messages.py self._turns.insert(0)": "once, for a request",
    "translation/framing/lines.py lines.insert(0)": "once for each read, which was split just before",
}
"""Copies that are made once, or of little, by file and target."""


def copies(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the target of each copy of something that grows."""
    fixed = _copied_names(tree)
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign(target=ast.Attribute(attr=name), op=ast.Add() | ast.BitOr()) if name in fixed:
                yield node.lineno, ast.unparse(node.target)
            case ast.Assign(targets=[target]):
                names = {ast.unparse(each) for each in _targets(target)}
                if any(_holds(node.value, name) for name in names):
                    yield node.lineno, ast.unparse(target).strip("()")
            case ast.Call(func=ast.Attribute(attr="pop" | "insert"), args=[ast.Constant(value=0), *_]):
                yield node.lineno, f"{ast.unparse(node.func)}(0)"


def _copied_names(tree: ast.Module) -> set[str]:
    """Attributes that hold a value of one of `_COPIED`, as their annotations or first values say."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Attribute(attr=name) | ast.Name(id=name), annotation=annotation):
                if ast.unparse(annotation).partition("[")[0] in _COPIED:
                    names.add(name)
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant(value=str() | bytes())):
                names.add(name)
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Tuple() | ast.JoinedStr()):
                names.add(name)
    return names


def _targets(target: ast.expr) -> list[ast.expr]:
    found = target.elts if isinstance(target, ast.Tuple) else [target]
    return [each for each in found if isinstance(each, (ast.Attribute, ast.Subscript))]


def _holds(value: ast.expr, name: str) -> bool:
    """Return whether the value is made of all that `name` held, and more."""
    for node in ast.walk(value):
        match node:
            case ast.Starred(value=inner) if _is(inner, name):
                return True
            case ast.Dict(keys=keys, values=values):
                if any(key is None and _is(inner, name) for key, inner in zip(keys, values, strict=True)):
                    return True
            case ast.BinOp(left=left, op=ast.Add() | ast.BitOr(), right=right) if not isinstance(right, ast.Constant):
                if name in (ast.unparse(left), ast.unparse(right)):
                    return True
    return False


def _is(inner: ast.expr, name: str) -> bool:
    text = ast.unparse(inner).strip("(").partition(" or ")[0]
    return _GET.sub(r"\1[\2]", text) == name


@cache
def found() -> dict[str, str]:
    """Every copy in the code, by file and target, with its place."""
    out: dict[str, str] = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix().removeprefix("adapters/").removeprefix("bridge/")
            for line, target in copies(ast.parse(path.read_text(encoding="utf-8"))):
                out[f"{file} {target}"] = f"{path.relative_to(ROOT)}:{line}"
    return out


def test_nothing_that_grows_is_copied_for_each_piece() -> None:
    assert {name: place for name, place in found().items() if name not in ALLOWED} == {}


def test_no_copy_is_allowed_that_is_not_there() -> None:
    assert ALLOWED.keys() - found().keys() == set()


@pytest.mark.parametrize(
    "line",
    [
        "called: frozenset[str] = frozenset()\nx.called |= {1}",
        "self.text = ''\nself.text += piece",
        "self.parts: tuple[str, ...] = ()\nself.parts += (piece,)",
        "self.all = [*self.all, one]",
        "self.all = self.all + [one]",
        "known.values = {**known.values, **more}",
        "message.extras = {**(message.extras or {}), **more}",
        "message = replace(message)\nmessage.parts, y = [*message.parts, part], 1",
        "more['all'] = [*more.get('all', ()), one]",
        "queue.pop(0)",
        "queue.insert(0, one)",
    ],
)
def test_a_copy_is_seen(line: str) -> None:
    assert list(copies(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "self.all: list[str] = []\nself.all += more",
        "self.count = 0\nself.count += 1",
        "self.number = self.number + 1",
        "self.all = [*other, one]",
        "known = {}\nknown.update(more)",
        "queue.pop()",
        "queue.popleft()",
    ],
)
def test_what_changes_in_place_is_no_copy(line: str) -> None:
    assert list(copies(ast.parse(line))) == []
