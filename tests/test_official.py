"""Every recorded answer of every dialect, as clients of the four model APIs get it, by the rules of the wire and
by what the documents require."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from bridge.contract import WireResponse, registry
from bridge.model import Event, FinishReason, RunFailed, RunFinished, UsageReported, verify
from bridge.model.jsontext import loads
from bridge.testing.wires import context
from bridge.translation import AnswerDecoder
from bridge.translation.framing import sse
from tests import official
from tests.cases import all_cases
from tests.recorded import answers
from tests.responses_judge import judge
from tests.wire_judge import JUDGES, Frames, frames_of
from tests.wire_scenes import prepared

Json = dict[str, Any]

_STRANGE = ("unknown-things.sse",)
"""Answers with types of objects that nobody knows, which clients of the same dialect get all the same."""


@cache
def recorded(back: str, name: str) -> list[Event]:
    """The events of a recorded answer; it ended at a known time, as in every run."""
    dialect = registry.get(back)
    reading = AnswerDecoder(dialect, context(dialect.back_options()))
    events = verify(reading.receive(answers(back)[name]) + reading.close())
    end = events[-1]
    assert isinstance(end, (RunFinished, RunFailed))
    end.ended_at = 1_700_000_009.5
    return events


def translated(front: str, events: list[Event]) -> tuple[Frames, WireResponse, set[str]]:
    """The stream, the answer in one piece, and what both name as lost."""
    dialect = registry.get(front)
    streamed, at_once = prepared(front, {}, True), prepared(front, {}, False)
    encoder = dialect.encoder(streamed)
    frames = frames_of(sse.join(encoder.encode(events)))
    whole = dialect.assemble(events, at_once)
    assert failed(events) or set(streamed.lost.names) == set(at_once.lost.names)
    return frames, whole, set(streamed.lost.names)


def reports_usage(back: str, name: str) -> bool:
    return any(isinstance(event, UsageReported) for event in recorded(back, name))


def failed(events: list[Event]) -> bool:
    end = events[-1]
    return isinstance(end, RunFailed) or (isinstance(end, RunFinished) and end.reason is FinishReason.CANCELED)


def judged(front: str, back: str, name: str) -> tuple[list[Json], Json, set[str], bool]:
    """The payloads of the stream and the answer in one piece, both as the rules of the wire want them; what is named
    as lost; and whether the run failed. Sums, and fields between servers and clients of one dialect, are the backend's.
    """
    events = recorded(back, name)
    frames, answer, lost = translated(front, events)
    whole, is_failed = loads(answer.body), failed(events)
    stream, in_one_piece, error = JUDGES[front]
    assert is_failed is (answer.status >= 400)
    for found in (stream(frames), (error if is_failed else in_one_piece)(whole)):
        ours = [fault for fault in found if front != back or ": unknown in " not in fault]
        assert name in _STRANGE or [fault for fault in ours if "the total is another one" not in fault] == []
    return [loads(data) for _, data in frames if data != b"[DONE]"], whole, lost, is_failed


def check_responses(back: str, name: str) -> None:
    streamed, value, lost, is_failed = judged("openai-responses", back, name)
    judge(streamed)
    if is_failed:
        return
    official.judge_response(value)
    assert value == streamed[-1]["response"]
    counts = (value["usage"]["input_tokens"], value["usage"]["output_tokens"], value["usage"]["total_tokens"])
    assert ("usage" in lost) == (not reports_usage(back, name))
    assert reports_usage(back, name) or counts == (0, 0, 0)


def check_messages(back: str, name: str) -> None:
    streamed, value, lost, is_failed = judged("anthropic-messages", back, name)
    for event in streamed:
        official.judge_message_event(event)
    if is_failed:
        official.judge_message_event(value)
        return
    official.judge_message(value)
    assert ("usage" in lost) == (not reports_usage(back, name))


def check_chat(back: str, name: str) -> None:
    streamed, value, lost, is_failed = judged("openai-chat", back, name)
    official.judge_chunks(streamed)
    if is_failed:
        official.ChatFailure.model_validate(value)
        return
    official.judge_completion(value)
    assert value["usage"] == streamed[-1]["usage"]
    assert ("usage" in lost) == (not reports_usage(back, name))


def check_gemini(back: str, name: str) -> None:
    judged("gemini", back, name)


@pytest.mark.parametrize("back", [name for name in registry.names() if registry.get(name).called])
@pytest.mark.parametrize("check", [check_responses, check_messages, check_chat, check_gemini])
def test_recorded_answers_are_written_as_the_documents_require(check: Callable[[str, str], None], back: str) -> None:
    with all_cases() as case:
        for name in answers(back):
            with case(name):
                check(back, name)
