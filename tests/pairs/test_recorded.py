"""Every recorded answer of every backend, translated for the clients of every dialect that is installed.

`test_captures.py` sends the models' captures through real sockets to real clients; this is every pair there is, agents
included, by what the two cards say.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from bridge.contract import CallSignatures, Dialect, Feature, Support, registry
from bridge.model import (
    Event,
    Media,
    MediaKind,
    RunFailed,
    RunFinished,
    ToolCall,
    ToolResult,
    fold,
    interrupt_text,
    question_about,
    unfold,
    verify,
)
from bridge.testing.pairs import visible_to
from bridge.testing.wires import context, decode
from bridge.translation import AnswerDecoder
from bridge.translation.library import Translator
from tests.cases import all_cases
from tests.recorded import CAPTURES, answers

DIALECTS = registry.called()


@cache
def meant(back: str, name: str) -> list[Event]:
    """What the backend's own dialect reads in it."""
    dialect = registry.get(back)
    reading = AnswerDecoder(dialect, context(dialect.back_options()))
    return verify(reading.receive(answers(back)[name]) + reading.close())


def expected(events: list[Event], front: Dialect) -> dict[str, Any]:
    """What the client is told of this: by its card, and without calls that it would run a second time."""
    answer = fold(events)
    if front.capabilities.client_runs_calls and answer.interrupts:
        # A call of the agent's own that waits is told by the question.
        done = {result.call_id for result in answer.results}
        calls = {c.call_id: f"{c.name}({c.arguments})" for c in answer.calls if c.call_id not in done}
        for message in answer.messages:
            message.parts = [p for p in message.parts if not isinstance(p, ToolCall)]
        about = [[calls.pop(asked.call_id or "")] if asked.call_id in calls else [] for asked in answer.interrupts]
        # What else waits stands before the first question.
        about[0] += calls.values()
        answer.interrupts = [
            replace(asked, payload=question_about(told, interrupt_text(asked))) if told else asked
            for asked, told in zip(answer.interrupts, about, strict=True)
        ]
    out = visible_to(unfold(answer), front)
    if front.capabilities.client_runs_calls:
        done = {p.call_id for m in answer.messages for p in m.parts if isinstance(p, ToolResult)}
        out["calls"] = [call for call in out["calls"] if call[0] not in done]
    return out


def translated(back: Dialect, front: Dialect, reads: list[bytes]) -> tuple[bytes, set[str]]:
    """What the client reads, and what is named as lost."""
    translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
    return b"".join(map(translator.feed, reads)) + translator.close(), set(translator.lost)


def losable(front: Dialect) -> set[str]:
    """What a translation for this client may name as lost: what is not exact, or only in part."""
    capabilities = front.capabilities
    told = {str(f) for f in capabilities.answers if capabilities.answer(f) is not Support.EXACT}
    if not (capabilities.citations and capabilities.logprobs):
        told.add(str(Feature.RAW))
    return told | ({str(kind) for kind in MediaKind} if capabilities.inline_media_only else set())


def cut(wire: bytes) -> list[bytes]:
    """The bytes in at most 13 pieces; the same ones in every run."""
    cuts = sorted(random.Random(len(wire)).sample(range(len(wire) + 1), min(12, len(wire))))
    return [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]


@pytest.mark.parametrize("front", [name for name in registry.called() if registry.get(name).served])
@pytest.mark.parametrize("back", DIALECTS)
def test_a_recorded_answer_arrives_as_the_cards_say(
    back: str, front: str, record_property: Callable[[str, object], None]
) -> None:
    """Each pair also gets a quarter of the recordings in pieces; every decoder gets all of them in pieces below."""
    first = DIALECTS.index(front)
    with all_cases() as case:
        for number, name in enumerate(answers(back), first):
            record_property("recording", f"{back}/{name}")
            with case(name):
                check_recorded(back, name, front, in_pieces=number % 4 == 0)


def check_recorded(back: str, name: str, front: str, *, in_pieces: bool) -> None:
    source, target, wire = registry.get(back), registry.get(front), answers(back)[name]
    out, lost = translated(source, target, [wire])
    if in_pieces:
        assert translated(source, target, cut(wire)) == (out, lost), "where reads end changes what is written"
    came, wanted = visible_to(verify(decode(target, [out])), target), expected(meant(back, name), target)
    if wanted["failed"]:
        # Nobody shall run the calls of a run that failed; what is held back until it is known whose they are stays so.
        assert came.pop("calls") in ([], wanted.pop("calls"))
    assert came == wanted
    results = fold(meant(back, name)).results
    shown = {str(p.kind) for r in results for p in r.parts if isinstance(p, Media)}
    # A result arrives without the mark that it is an error.
    unmarked = {"tool_result"} if target.name == "ag-kit" and any(r.is_error for r in results) else set()
    # AgentScope sends media of a result as text. What an agent takes back has been said.
    taken_back = {"text"} if name.startswith("stream-replace") else set()
    # Cards name signatures of reasoning. Those of calls and texts have a fact of their own.
    signs, returns = source.capabilities.call_signatures, target.capabilities.call_signatures
    unsigned = {"reasoning_signature"} if signs.with_calls and returns not in (signs, CallSignatures.IN_PART) else set()
    cut_off = {"tool_call"} if target.capabilities.drops_invalid_calls else set()
    assert (
        lost
        <= losable(target) | {"usage", "usage_details", "choices"} | shown | taken_back | unsigned | cut_off | unmarked
    )


@pytest.mark.parametrize("back", DIALECTS)
def test_where_reads_end_changes_no_event(back: str) -> None:
    dialect = registry.get(back)
    with all_cases() as case:
        for name, wire in answers(back).items():
            with case(name):
                reading = AnswerDecoder(dialect, context(dialect.back_options()))
                events = [event for piece in cut(wire) for event in reading.receive(piece)] + reading.close()
                assert events == meant(back, name)


@pytest.mark.parametrize("back", DIALECTS)
def test_what_was_recorded_is_read_as_answers(back: str) -> None:
    """Of each dialect some that end well and some that do not: the test above compares no failures alone."""
    assert {type(meant(back, name)[-1]) for name in answers(back)} == {RunFinished, RunFailed}


def test_each_folder_of_captures_is_a_backend() -> None:
    assert {path.name for path in CAPTURES.iterdir()} - set(DIALECTS) == {"mcp"}, "only clients speak MCP"
