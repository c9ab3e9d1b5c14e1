"""The table of finish words, and that every dialect's decoder reads an answer's end by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Context, Losses, registry
from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason
from bridge.model.fold import Answer, fold
from bridge.toolkit.words import NOT_OVER, ROWS, UNSURE, Meaning, end_of, meaning_of, plain, reason_of
from bridge.translation.framing.sse import Splitter

Wire = dict[str, Any]


def lines(*objects: Wire) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in objects)


def _chat(word: str) -> bytes:
    def chunk(delta: Wire, end: str | None) -> Wire:
        return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}

    return lines(chunk({"content": "part"}, None), chunk({}, word)) + b"data: [DONE]\n\n"


def _responses(status: str, reason: str | None = None) -> bytes:
    item = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "part"}]}
    response = {"id": "r", "status": status, "output": [item], "incomplete_details": reason and {"reason": reason}}
    return lines({"type": "response.completed", "response": response})


def _messages(word: str) -> bytes:
    return lines(
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "part"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    )


def _gemini(word: str) -> bytes:
    return lines({"candidates": [{"content": {"parts": [{"text": "part"}]}, "finishReason": word}]})


def _ui(word: str) -> bytes:
    text = [{"type": f"text-{kind}", "id": "t", "delta": "part"} for kind in ("start", "delta", "end")]
    return lines({"type": "start"}, *text, {"type": "finish", "finishReason": word})


def _ag_ui(outcome: str, note: str | None = None) -> bytes:
    text = [{"type": f"TEXT_MESSAGE_{kind}", "messageId": "t", "delta": "part"} for kind in ("START", "CONTENT", "END")]
    end = {"type": "RUN_FINISHED", "outcome": {"type": outcome}, "metadata": note and {"finish_reason": note}}
    return lines({"type": "RUN_STARTED"}, *text, end)


def _agentscope(status: str, note: str | None = None) -> bytes:
    content = {"object": "content", "type": "text", "msg_id": "m", "text": "part", "status": "completed"}
    message = {"object": "message", "type": "message", "id": "m", "role": "assistant", "status": "completed"}
    message["metadata"] = {"finish_reason": note}  # type: ignore[assignment]
    return lines({**message, "status": "created"}, content, message, {"object": "response", "status": status})


def _a2a(state: str, note: str | None = None) -> bytes:
    said = {"messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "part"}]}
    status = {"state": state, "message": said}
    metadata = {"finishReason": note} if note else {}
    update = {"kind": "status-update", "taskId": "t", "status": status, "final": True, "metadata": metadata}
    return lines({"jsonrpc": "2.0", "id": 1, "result": update})


# Each place of a wire with a finish word: the dialect, and an answer "part" that ends so.
PLACES: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "chat": ("openai-chat", _chat),
    "responses status": ("openai-responses", _responses),
    "responses reason": ("openai-responses", lambda word: _responses("incomplete", word)),
    "messages": ("anthropic-messages", _messages),
    "gemini": ("gemini", _gemini),
    "ui": ("ai-sdk-ui", _ui),
    "ag-ui outcome": ("ag-ui", _ag_ui),
    "ag-ui metadata": ("ag-ui", lambda word: _ag_ui("success", word)),
    "agentscope status": ("agentscope", _agentscope),
    "agentscope metadata": ("agentscope", lambda word: _agentscope("completed", word)),
    "a2a state": ("a2a", _a2a),
    "a2a metadata": ("a2a", lambda word: _a2a("completed", word)),
}


def decoded(dialect: str, body: bytes) -> Answer:
    each = registry.get(dialect)
    options = each.back_options() if each.back_options is not None else None
    decoder = each.decoder(Context("run", "thread", 1.0, options, "m", None, Losses()))
    return fold([*decoder.feed(Splitter().feed(body)), *decoder.close()])


def ends() -> list[tuple[str, Meaning]]:
    return [(word, meaning) for meaning, words, _ in ROWS for word in words.split()]


def expected(meaning: Meaning) -> FinishReason | ErrorCode | None:
    """How an answer with content ends; None if the word does not end it."""
    if meaning in (UNSURE, NOT_OVER):
        return FinishReason.STOP if meaning == UNSURE else None
    assert isinstance(meaning, FinishReason | ErrorCode)
    return meaning


WHOLE = (FinishReason.STOP, FinishReason.TOOL_CALLS)
STATES = ("responses status", "responses reason", "agentscope status", "a2a state")
"""Places with words of their own beside those of the table."""


@pytest.mark.parametrize("place", [name for name in PLACES if name not in STATES])
def test_a_word_of_the_table_ends_an_answer_as_it_says(place: str) -> None:
    dialect, answer_with = PLACES[place]
    for word, meaning in ends():
        if place == "ui" and word == "interrupted":
            continue  # of another bridge: the answer is cut off
        wanted = expected(meaning)
        for spelling in (word, word.upper(), word.replace("_", "-"), "FINISH_REASON_" + word.upper()):
            answer = decoded(dialect, answer_with(spelling))
            if isinstance(wanted, ErrorCode):
                assert answer.failure is not None, spelling
                assert answer.failure.code is wanted, spelling
            elif wanted is None:
                assert answer.failure is None or answer.failure.code is ErrorCode.TRUNCATED_STREAM, spelling
            else:
                assert answer.reason is (FinishReason.STOP if wanted in WHOLE else wanted), spelling


@pytest.mark.parametrize(
    ("place", "word", "wanted"),
    [
        ("responses status", "completed", FinishReason.STOP),
        ("responses status", "in_progress", FinishReason.STOP),
        ("responses status", "incomplete", FinishReason.LENGTH),
        ("responses status", "cancelled", FinishReason.CANCELED),
        ("responses status", "failed", None),
        ("responses status", "expired", None),
        ("responses reason", "max_output_tokens", FinishReason.LENGTH),
        ("responses reason", "content_filter", FinishReason.CONTENT_FILTER),
        ("responses reason", "stop", FinishReason.LENGTH),
        ("responses reason", "max_tool_calls", FinishReason.LENGTH),
        ("responses reason", "abort", None),
        ("agentscope status", "completed", FinishReason.STOP),
        ("agentscope status", "Completed", FinishReason.STOP),
        ("agentscope status", "canceled", FinishReason.CANCELED),
        ("agentscope status", "cancelled", FinishReason.CANCELED),
        ("agentscope status", "incomplete", FinishReason.LENGTH),
        ("agentscope status", "rejected", FinishReason.CONTENT_FILTER),
        ("agentscope status", "failed", None),
        ("agentscope status", "aborted", None),
        ("a2a state", "completed", FinishReason.STOP),
        ("a2a state", "TASK_STATE_COMPLETED", FinishReason.STOP),
        ("a2a state", "canceled", FinishReason.CANCELED),
        ("a2a state", "TASK_STATE_CANCELED", FinishReason.CANCELED),
        ("a2a state", "TASK_STATE_CANCELLED", FinishReason.CANCELED),
        ("a2a state", "cancelled", FinishReason.CANCELED),
        ("a2a state", "input-required", FinishReason.INTERRUPTED),
        ("a2a state", "input_required", FinishReason.INTERRUPTED),
        ("a2a state", "TASK_STATE_AUTH_REQUIRED", FinishReason.INTERRUPTED),
        ("a2a state", "failed", None),
        ("a2a state", "TASK_STATE_FAILED", None),
        ("a2a state", "rejected", None),
        ("a2a state", "aborted", None),
        ("a2a state", "unknown", None),
        ("a2a state", "TASK_STATE_UNSPECIFIED", None),
        ("a2a state", "working", None),
    ],
)
def test_a_state_ends_an_answer_as_it_says(place: str, word: str, wanted: FinishReason | None) -> None:
    dialect, answer_with = PLACES[place]
    answer = decoded(dialect, answer_with(word))
    assert answer.reason is wanted
    assert (answer.failure is not None) is (wanted is None)


UNKNOWN = ("qux", "QuxQuux", "not_finished", "no_answer", "exit 3", "\u5b8c", "0")


@pytest.mark.parametrize("place", PLACES)
def test_an_unknown_word_is_no_success(place: str) -> None:
    dialect, answer_with = PLACES[place]
    for word in UNKNOWN:
        answer = decoded(dialect, answer_with(word))
        assert answer.failure is not None, word


@pytest.mark.parametrize("place", [name for name in PLACES if name not in ("a2a state", "agentscope status")])
def test_a_failure_by_an_unknown_word_names_it(place: str) -> None:
    dialect, answer_with = PLACES[place]
    failure = decoded(dialect, answer_with("qux")).failure
    assert failure is not None
    assert "qux" in failure.message
    assert failure.backend_code == "qux"


@pytest.mark.parametrize("word", ["", "qux", "error", "insufficient_system_resource", "max_tokens"])
def test_the_service_of_agentscope_ends_a_reply_by_the_table(word: str) -> None:
    from bridge.dialects.agentscope_service.read_answer import Decoder

    events: list[Wire] = [
        {"type": "REPLY_START", "reply_id": "r"},
        {"type": "TEXT_BLOCK_DELTA", "reply_id": "r", "block_id": "b", "delta": "part"},
        {"type": "REPLY_END", "reply_id": "r", "finished_reason": word},
    ]
    decoder = Decoder(Context("run", "thread", 1.0))
    frames = Splitter().feed(lines(*({"id": str(number), **event} for number, event in enumerate(events))))
    answer = fold([*decoder.feed(frames), *decoder.close()])
    got = answer.failure.code if answer.failure is not None else answer.reason
    wanted = {"": FinishReason.STOP, "max_tokens": FinishReason.LENGTH}
    wanted_code = {"insufficient_system_resource": ErrorCode.OVERLOADED}
    assert got is (wanted.get(word) or wanted_code.get(word, ErrorCode.BACKEND_ERROR))


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("CONTENT_FILTERED_BY_X", FinishReason.CONTENT_FILTER),
        ("tokenLimitReached", FinishReason.LENGTH),
        ("max_turns", FinishReason.LENGTH),
        ("rate_limit_exceeded", ErrorCode.BACKEND_ERROR),
        ("toolCallError", ErrorCode.BACKEND_ERROR),
        ("tool_called_by_model function", FinishReason.TOOL_CALLS),
        ("run.finished", FinishReason.STOP),
        ("user_canceled", FinishReason.CANCELED),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", ErrorCode.BACKEND_ERROR),
        ("FinishReason.MAX_TOKENS", FinishReason.LENGTH),
        ("qux", None),
    ],
)
def test_what_a_word_resembles(word: str, meaning: Meaning | None) -> None:
    assert meaning_of(word) == meaning


def test_a_word_without_a_reason_is_a_failure_only_without_an_answer() -> None:
    assert end_of("OTHER", answered=True) is FinishReason.STOP
    assert isinstance(end_of("OTHER", answered=False), Failure)
    assert end_of("null", answered=False) is None


@pytest.mark.parametrize("word", ["other", "unknown", "OTHER"])
def test_an_empty_answer_without_a_reason_is_no_success(word: str) -> None:
    bodies = {
        "openai-chat": lines({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]}),
        "gemini": lines({"candidates": [{"content": {"parts": []}, "finishReason": word}]}),
        "ai-sdk-ui": lines({"type": "start"}, {"type": "finish", "finishReason": word}),
        "anthropic-messages": lines(
            {"type": "message_start", "message": {"id": "m", "content": []}},
            {"type": "message_delta", "delta": {"stop_reason": word}},
            {"type": "message_stop"},
        ),
    }
    for dialect, body in bodies.items():
        assert decoded(dialect, body).failure is not None, dialect


def test_no_word_occurs_in_two_rows_and_each_row_has_a_source() -> None:
    found = [word for word, _ in ends()]
    assert len(set(found)) == len(found)
    assert all(plain(word) == word for word in found)
    assert all(source for _, _, source in ROWS)


@given(st.one_of(st.text(), st.sampled_from(["FINISH_REASON_", "a" * 100_000, ":", "\ud800"])))
def test_any_word_is_read(word: str) -> None:
    end = end_of(word, answered=True)
    assert end is None or isinstance(end, FinishReason | Failure)
    assert reason_of(word) is (end if isinstance(end, FinishReason) else None)
    if isinstance(end, Failure):
        assert len(end.message) < 400
