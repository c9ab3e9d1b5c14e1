"""Recorded and documented streams of generation 1, however they are cut, become what they show."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.contract import WireResponse
from bridge.dialects.ag_kit import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import Answer, FinishReason, MessageEnded, ToolResulted, fold, result_text, verify
from bridge.model.events import TERMINAL
from bridge.translation import AnswerDecoder
from bridge.translation.framing.sse import Splitter, join

from .helpers import CASES, WAYS, body_of, context, cuts, decode, encode

HEARD = "I heard {} 你好 😀"
STOP, TOOLS, WAITS = FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.INTERRUPTED


def it(text: str = "", reason: FinishReason | None = STOP, **more: Any) -> dict[str, Any]:
    return {"text": text, "reason": reason, "error": None, "calls": [], "results": [], "interrupts": [], **more}


CUT = Failure(ErrorCode.TRUNCATED_STREAM, "The connection broke.")
EXPECTED: dict[str, dict[str, Any]] = {
    "g1-text-turn1": it(HEARD.format('["hi"]')),
    "g1-text-turn2": it(HEARD.format('["hi", "second question"]')),
    "g1-client-tool-call": it("", TOOLS, calls=[("call_c1", "change-background-color", '{"color": "blue"}')]),
    "g1-client-tool-result": it("Tool said: Background changed to blue"),
    "g1-server-tool": it(
        "Checking. Tool said: Sunny in Paris, 25°C",
        calls=[("call_s1", "get_weather", '{"city": "Paris"}')],
        results=[("call_s1", "Sunny in Paris, 25°C")],
    ),
    "g1-interrupt": it(
        "",
        WAITS,
        interrupts=[("2f4389af1f0a3b07176971164cdaec25", "agent requested interrupt", {"question": "Go on?"})],
    ),
    "g1-interrupt-resume": it(HEARD.format('["resumed \\"yes\\""]')),
    "g1-text-then-interrupt": it(
        "Before I go on: ",
        WAITS,
        interrupts=[
            (
                "int_1",
                "agent requested interrupt",
                {"steps": [{"description": "Delete file", "status": "pending"}]},
            )
        ],
    ),
    "g1-error-mid-stream": it("partial ", None, error=(ErrorCode.TRUNCATED_STREAM, "The connection broke.")),
    "g1-run-error-swallowed": it("partial "),
    "g1-setup-error": it("", None, error=(ErrorCode.BACKEND_ERROR, "Server error: cannot build agent")),
    "g1-empty-run": it(),
    "g1-reasoning-dropped": it("done"),
    "g1-assistant-toolcalls": it("", None, error=(ErrorCode.TRUNCATED_STREAM, "The connection broke.")),
    "g1-chat-completions": it('You said ["hi"]. 你好 😀 line1\nline2'),
    "doc-basic-no-done": it("Good morning!"),
    "doc-tab-framing": it("I've changed the colour."),
    "doc-all-events": it(
        "Let me look.",
        WAITS,
        calls=[("call_9", "search", '{"query": "weather"}')],
        results=[("call_9", "Sunny")],
        interrupts=[("int_9", "approval needed", {"steps": [{"description": "Send mail", "status": "pending"}]})],
    ),
    "doc-error-event": it(
        "Part", None, error=(ErrorCode.BACKEND_ERROR, "Agent execution failed: Invalid tool parameters")
    ),
}
NAMES = list(EXPECTED)


def picture(answer: Answer) -> dict[str, Any]:
    return {
        "text": answer.text,
        "reason": answer.reason,
        "error": answer.failure and (answer.failure.code, answer.failure.message),
        "calls": [(c.call_id, c.name, c.arguments) for c in answer.calls],
        "results": [(r.call_id, result_text(r.parts)) for m in answer.messages for r in m.parts if m.role == "tool"],
        "interrupts": [(i.interrupt_id, i.reason, i.payload) for i in answer.interrupts],
    }


def ended(name: str) -> Failure | None:
    """How the connection of this recording ended: the reference server reports failures by cutting it."""
    return None if CASES[name]["response"]["terminated"] == "clean" else CUT


def test_every_stream_of_generation_1_has_an_expectation() -> None:
    streams = [n for n, c in CASES.items() if c["generation"] == 1 and c["file"].endswith(".sse")]
    assert sorted(streams) == sorted(NAMES)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_a_capture_becomes_what_it_shows(name: str, way: str) -> None:
    answer = fold(decode(cuts(body_of(name), way), failure=ended(name)))
    assert picture(answer) == EXPECTED[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_cut_changes_nothing_and_every_prefix_ends_once(name: str) -> None:
    data = body_of(name)
    assert decode(cuts(data, "bytes")) == decode([data])
    for end in range(len(data) + 1):
        decoder, splitter = dialect.decoder(context()), Splitter()
        events = decoder.feed(splitter.feed(data[:end]) + splitter.close())
        events = verify([*events, *decoder.close()])
        assert sum(type(e) in TERMINAL for e in events) == 1
        assert decoder.feed([b'{"type":"text","content":"x"}']) == decoder.close() == []


@pytest.mark.parametrize("name", [n for n in NAMES if ended(n) is None])
def test_a_capture_decoded_and_encoded_again_shows_the_same(name: str) -> None:
    first = fold(decode([body_of(name)]))
    second = fold(decode([join(encode(decode([body_of(name)])))]))
    assert picture(second) == picture(first)


@pytest.mark.parametrize("name", ["g1-server-tool", "g1-text-then-interrupt", "g1-text-turn1", "g1-empty-run"])
def test_what_the_reference_wrote_we_write_byte_by_byte(name: str) -> None:
    """But for empty deltas, which say nothing."""
    real = b"".join(e + b"\n\n" for e in body_of(name).split(b"\n\n") if e and b'"delta":""' not in e)
    assert join(encode(decode([body_of(name)]))) == real


def test_what_follows_a_result_is_a_message_of_its_own() -> None:
    events = decode([body_of("g1-server-tool")])
    assert [m.role for m in fold(events).messages] == ["assistant", "tool", "assistant"]
    kinds = [type(e) for e in events]
    assert kinds.index(MessageEnded) < kinds.index(ToolResulted)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("g1-invalid-no-conversation", None),
        ("g1-invalid-json", "0: JSON decode error"),
        ("g1-invalid-content-parts", "messages.0.SystemMessage.role: Input should be 'system'"),
        ("g1-gen2-body", None),
    ],
)
def test_a_refused_request(name: str, message: str | None) -> None:
    """A request of ours that lacks `conversationId` is one of generation 2: the backend is the wrong one for it."""
    response = CASES[name]["response"]
    failure = dialect.decode_error(WireResponse(response["status"], response["headers"], body_of(name)))
    if message is None:
        assert failure.code is ErrorCode.BACKEND_PROTOCOL
        assert "generation" in failure.message
    else:
        assert (failure.code, failure.status, failure.http_status) == (ErrorCode.INVALID_REQUEST, 422, 422)
        assert failure.message.startswith(message)
        assert failure.backend_code in ("json_invalid", "literal_error")


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c["file"].endswith(".json")])
def test_a_json_body_for_an_answer_is_a_failed_run(name: str) -> None:
    response = CASES[name]["response"]
    reading = AnswerDecoder(dialect, context(), response["headers"], status=response["status"])
    failure = fold(verify(reading.receive(body_of(name)) + reading.close())).failure
    assert failure is not None
    if name == "g1-healthz":
        assert failure.code is ErrorCode.BACKEND_PROTOCOL
