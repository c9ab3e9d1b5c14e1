"""The Chinese of the page for what the server says in English: every feature, reason of a loss and error code."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.contract import Feature, registry
from bridge.errors import ErrorCode
from bridge.model import Interrupted, Message, Request, Resume, Text
from bridge.model.text import question_of
from bridge.run.backends.demo_backend import CHINESE, SCENES, run
from tests.docs.tables import dialects

ROOT = Path(__file__).parents[2]
FILES = ROOT / "bridge" / "server" / "page" / "files"
TABLE = FILES / "chinese.json"
WORDS = json.loads(TABLE.read_text(encoding="utf-8"))
PLACE = f"add it to {TABLE.relative_to(ROOT)}, under"

_HAN = re.compile("[\u4e00-\u9fff]")
_LOST = re.compile(r"(^|[._])(lost|losses)$")


def pattern(template: str) -> re.Pattern[str]:
    return re.compile("(.+)".join(map(re.escape, template.split("{}"))))


TEMPLATES = [pattern(english) for english in WORDS["reasons"] if "{}" in english]


def missing(reason: str) -> list[str]:
    """Return the statements of a reason that have no Chinese, as `reason` of words.js looks for them."""
    known = WORDS["reasons"]
    if reason in known:
        return []
    return [s for s in reason.split("; ") if s not in known and not any(t.fullmatch(s) for t in TEMPLATES)]


def details(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each detail that code gives to `Losses.add`; `{}` stands for a value."""
    if "lost" not in text and "losses" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="add"), args=[_, detail]) if _LOST.search(
                ast.unparse(owner)
            ):
                yield from ((node.lineno, said) for said in _texts(detail))


def _texts(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(said)):
            yield said
        case ast.JoinedStr(values=values):
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in values)
        case ast.IfExp(body=one, orelse=other):
            yield from _texts(one)
            yield from _texts(other)


@pytest.mark.parametrize("name", dialects())
def test_every_reason_on_a_card_has_a_chinese_one(name: str) -> None:
    card = registry.get(name).capabilities
    reasons = [entry.reason for entries in (card.answers, card.requests) for entry in entries.values() if entry.reason]
    lacking = sorted({statement for reason in reasons for statement in missing(reason)})
    assert lacking == [], f'reasons on the card of {name} have no Chinese: {PLACE} "reasons"'


def test_every_detail_of_a_loss_has_a_chinese_one() -> None:
    code = [p for room in ("bridge", "adapters") for p in (ROOT / room).rglob("*.py") if "dialects" not in p.parts]
    lacking = [
        f"{path.relative_to(ROOT)}:{line}: {said}"
        for path in code
        for line, said in details(path.read_text(encoding="utf-8"))
        if said and missing(said)
    ]
    assert lacking == [], f'details of losses have no Chinese: {PLACE} "reasons"'


def test_every_feature_and_error_code_has_a_chinese_name() -> None:
    assert set(WORDS["features"]) == set(Feature), f'{PLACE} "features"'
    assert set(WORDS["errors"]) == set(ErrorCode), f'{PLACE} "errors"'


_MARK = re.compile(r"`[^`]+`|\]\([^)]+\)")


def test_every_error_code_has_steps_in_both_languages() -> None:
    steps = json.loads((FILES / "steps.json").read_text(encoding="utf-8"))
    assert set(steps) == set(ErrorCode)
    for code, by_language in steps.items():
        assert set(by_language) == {"en", "zh"}, code
        for english, chinese in zip(by_language["en"], by_language["zh"], strict=True):
            assert _HAN.search(chinese), chinese
            assert not _HAN.search(english), english
            assert sorted(_MARK.findall(chinese)) == sorted(_MARK.findall(english)), chinese


def test_the_chinese_is_chinese_with_the_same_values() -> None:
    for table in WORDS.values():
        for english, chinese in table.items():
            assert _HAN.search(chinese), english
            assert chinese.count("{}") == english.count("{}"), english


def test_the_demo_has_a_chinese_name_for_every_scene() -> None:
    assert set(CHINESE) == {"help", *SCENES}
    names = [name for name, _ in CHINESE.values()]
    assert len(set(names)) == len(names)
    shown = re.search(r"zh: (\[.*\])", (FILES / "page.js").read_text(encoding="utf-8"))
    assert shown is not None
    assert set(json.loads(shown[1])) <= set(names), "the page offers scenes that the demo does not know"


async def test_the_demo_asks_and_answers_in_chinese() -> None:
    request = Request([Message("user", [Text("确认")])])
    (asked,) = [event async for event in run(request) if isinstance(event, Interrupted)]
    assert question_of(asked) == 'delete_file({"path": "a.txt"})\n\n请确认'
    answers = (("resolved", True, "同意"), ("resolved", False, "拒绝"), ("cancelled", None, "取消"))
    for decision, payload, told in answers:
        request.resume = [Resume(asked.interrupt_id, decision, payload)]
        assert [event async for event in run(request)] == [f"你的决定：{told}。"]


@pytest.mark.parametrize(
    ("reason", "lacking"),
    [
        ("the protocol has no event for it; option reasoning: text", []),
        ("a wire of glass; option media: drop", ["a wire of glass"]),
        ("anthropic-version 2026-10-21 has no temperature and no top_p", []),
    ],
)
def test_what_is_missing_is_found(reason: str, lacking: list[str]) -> None:
    assert missing(reason) == lacking


def test_details_are_found_in_code() -> None:
    code = 'self._context.lost.add(F, "one" if x else f"{y}: two")\nseen.add(F, "three")\nlost.add(F, name)'
    assert list(details(code)) == [(1, "one"), (1, "{}: two")]
