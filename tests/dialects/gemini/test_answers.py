"""Answers of backends, and answers to clients: what streams may look like, and what each event becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import WireResponse, registry
from bridge.dialects.gemini import dialect
from bridge.dialects.gemini.wire import SIGNATURE
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Event,
    FinishReason,
    Heartbeat,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Part,
    PartKind,
    Reasoning,
    Refusal,
    RunFailed,
    Text,
    ToolCall,
    Url,
    UsageReported,
    fold,
)
from bridge.testing.wires import encode
from bridge.translation.library import Translator

from .helpers import chunk, chunks, decode_chunks, front, parts, read, user

CALL = {"functionCall": {"name": "f", "args": {"a": 1}}}


def built(*said: Part, reason: FinishReason | None = None) -> list[Event]:
    builder = front().builder()
    for part in said:
        builder.add(0, part)
    builder.finish(reason)
    builder.end()
    return builder.take()


# ---------------------------------------------------------------------- from backends


@pytest.mark.parametrize("word", ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"])
def test_a_filter_is_no_normal_end(word: str) -> None:
    assert fold(decode_chunks(chunk({"text": "x"}, finish=word))).reason is FinishReason.CONTENT_FILTER


@pytest.mark.parametrize("word", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"])
def test_a_broken_answer_is_a_failure(word: str) -> None:
    said = chunk({"text": "x"}, finish=word)
    said["candidates"][0]["finishMessage"] = "It went wrong."
    failure = fold(decode_chunks(said)).failure
    assert failure is not None
    assert (failure.code, failure.message, failure.backend_code) == (ErrorCode.BACKEND_ERROR, "It went wrong.", word)


@pytest.mark.parametrize(
    ("word", "told", "texts", "refusals"),
    [
        ("SAFETY", "I must not.", ["Well. "], ["I must not."]),
        ("SAFETY", "Well.", ["Well. "], []),  # the answer has said it
        ("MAX_TOKENS", "I must not.", ["Well. "], []),
    ],
)
def test_a_filter_explains_itself_unless_the_answer_did(
    word: str, told: str, texts: list[str], refusals: list[str]
) -> None:
    last = chunk(finish=word)
    last["candidates"][0]["finishMessage"] = told
    said = [part for m in fold(decode_chunks(chunk({"text": texts[0]}), last)).messages for part in m.parts]
    assert [part.text for part in said if isinstance(part, Text)] == texts
    assert [part.text for part in said if isinstance(part, Refusal)] == refusals


def test_a_word_that_clients_do_not_know_is_not_passed_on() -> None:
    events = decode_chunks(chunk({"functionCall": {"name": "f", "args": {}}}, finish="FUNCTION_CALL"))
    assert chunks(events)[-1]["candidates"][0]["finishReason"] == "STOP"


def test_other_after_text_is_an_end_and_without_text_a_failure() -> None:
    assert fold(decode_chunks(chunk({"text": "x"}, finish="OTHER"))).failure is None
    assert fold(decode_chunks(chunk(finish="OTHER"))).failure is not None


def test_without_a_finish_reason_the_answer_is_cut() -> None:
    failure = fold(decode_chunks(chunk({"text": "x"}))).failure
    assert failure is not None
    assert failure.code is ErrorCode.TRUNCATED_STREAM
    (whole,), (half,) = chunk({"text": "a"}, finish="STOP")["candidates"], chunk({"text": "b"})["candidates"]
    assert fold(decode_chunks({"candidates": [whole, {**half, "index": 1}]})).failure is not None


def test_a_medium_ends_the_text_before_it() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    answer = fold(decode_chunks(chunk({"text": "a"}), chunk(picture), chunk({"text": "b"}, finish="STOP")))
    assert [getattr(p, "text", p.__class__) for p in answer.messages[0].parts] == ["a", Media, "b"]


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_refused_key_is_the_operators_matter_whatever_the_word(status: int) -> None:
    error = {"code": status, "message": "No.", "status": "OUT_OF_RANGE"}
    failure = dialect.decode_error(WireResponse(status, {}, json.dumps({"error": error}).encode()))
    assert failure.code is ErrorCode.BACKEND_AUTH


def test_candidates_may_interleave() -> None:
    builder = front().builder()
    for choice in (0, 1):
        builder.message(choice, choice=choice)
        builder.open_part(f"p{choice}", choice, PartKind.TEXT)
    for text in ("a", "b"):
        for choice in (0, 1):
            builder.delta(f"p{choice}", text)
    builder.end()
    said = chunks(builder.take())
    seen = [(c["index"], p["text"]) for each in said for c in each.get("candidates", ()) for p in c["content"]["parts"]]
    assert [each for each in seen if each[1]] == [(0, "a"), (1, "a"), (0, "b"), (1, "b")]


def test_late_facts_count_and_usage_may_rise() -> None:
    said = [
        chunk({"text": "x"}, usageMetadata={"promptTokenCount": 55}),
        chunk(finish="MAX_TOKENS", usageMetadata={"promptTokenCount": 165, "candidatesTokenCount": 3}),
        {"usageMetadata": {"promptTokenCount": 170, "candidatesTokenCount": 3, "thoughtsTokenCount": 4}},
    ]
    answer = fold(decode_chunks(*said))
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output, answer.reason) == (170, 7, FinishReason.LENGTH)


def test_calls_without_ids_differ() -> None:
    answer = fold(decode_chunks(chunk(CALL, CALL, {"functionCall": {"name": "g"}}, finish="STOP")))
    assert len({c.call_id for c in answer.calls}) == 3
    assert [(c.name, c.arguments) for c in answer.calls] == [("f", '{"a":1}'), ("f", '{"a":1}'), ("g", "{}")]
    assert answer.reason is FinishReason.TOOL_CALLS


def test_thoughts_text_and_unknown_parts() -> None:
    said = chunk({"text": "hm", "thought": True}, {"text": "a"}, {"newKind": 1}, {"text": "b"}, finish="STOPPED_EARLY")
    events = decode_chunks(said)
    answer = fold(events)
    assert (answer.reasoning, answer.text, answer.reason) == ("hm", "ab", FinishReason.STOP)
    assert parts(chunks(events))[2] == {"newKind": 1}
    assert chunks(events)[-1]["candidates"][0]["finishReason"] == "STOPPED_EARLY"


def test_a_text_that_is_none_travels_as_it_came() -> None:
    events = decode_chunks(chunk({"text": "a"}, {"text": ["b"]}, {"text": "c"}, finish="STOP"))
    (candidate,) = json.loads(dialect.assemble(events, front()).body)["candidates"]
    assert candidate["content"]["parts"] == [{"text": "a"}, {"text": ["b"]}, {"text": "c"}]


def test_an_error_in_the_stream() -> None:
    error = {"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}
    answer = fold(decode_chunks(chunk({"text": "x"}), error))
    assert answer.failure is not None
    assert (answer.text, answer.failure.code) == ("x", ErrorCode.RATE_LIMITED)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b"7", b"", b'{"candidates": 1}'])
def test_what_is_no_answer_is_a_failure(body: bytes) -> None:
    events = dialect.parse_response(WireResponse(200, {}, body), front())
    assert isinstance(events[-1], RunFailed)


# ---------------------------------------------------------------------- to clients


def test_the_last_chunk_has_a_part_the_reason_and_the_usage() -> None:
    events = built(Text("Hello"))
    events.insert(-1, UsageReported(10, 8, None, 4, 3))
    first, last = chunks(events)
    assert first["candidates"] == [{"content": {"parts": [{"text": "Hello"}], "role": "model"}, "index": 0}]
    assert last["candidates"][0]["content"]["parts"] == [{"text": ""}]
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert last["usageMetadata"] == {
        "promptTokenCount": 10, "cachedContentTokenCount": 4, "candidatesTokenCount": 5, "thoughtsTokenCount": 3,
        "totalTokenCount": 18,
    }  # fmt: skip
    assert (last["modelVersion"], last["responseId"]) == ("m", "run1")


def test_a_call_goes_out_whole() -> None:
    events = built(ToolCall("c1", "f", '{"a": 1}'), ToolCall("c2", "g", "no json"))
    said = parts(chunks(events))
    assert said[:2] == [
        {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}},
        {"functionCall": {"id": "c2", "name": "g", "args": {"INVALID_JSON": "no json"}}},
    ]
    assert chunks(events)[-1]["candidates"][0]["finishReason"] == "STOP"


def test_a_call_that_was_cut_off_is_none() -> None:
    context = front()
    told = chunks(built(ToolCall("c1", "f", '{"a": '), reason=FinishReason.LENGTH), context)
    assert parts(told) == [{"text": ""}]
    assert told[-1]["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert "tool_call" in context.lost.names


@pytest.mark.parametrize(
    ("option", "asks", "shown"),
    [("asked", True, True), ("asked", False, False), ("always", False, True), ("drop", True, False)],
)
def test_thoughts_are_for_those_who_ask(option: str, asks: bool, shown: bool) -> None:
    body = user(generationConfig={"thinkingConfig": {"include_thoughts": asks}})
    context = front(read(body), reasoning=option)
    told = parts(chunks(built(Reasoning("hmm", "c2ln"), Text("Hi")), context))
    assert ({"text": "hmm", "thought": True} in told) is shown
    assert SIGNATURE not in json.dumps(told)
    assert ("reasoning" in context.lost.names) is not shown


def test_media_and_what_is_told_as_text() -> None:
    said = [
        Media(MediaKind.IMAGE, Inline("iVBORw0KGgo=")),
        Media(MediaKind.VIDEO, Url("https://example.org/a.mp4"), filename="a.mp4"),
        Refusal("no"),
    ]
    events = built(*said)
    events.insert(-1, Interrupted("i1", None, "Really?"))
    assert parts(chunks(events)) == [
        {"inlineData": {"mimeType": "image/*", "data": "iVBORw0KGgo="}},
        {"fileData": {"mimeType": "video/*", "fileUri": "https://example.org/a.mp4", "displayName": "a.mp4"}},
        {"text": "no"},
        {"text": "\n\nReally?"},
        {"text": ""},
    ]
    assert len(parts(chunks(built(*said), front(media="drop")))) == 2


def test_texts_of_two_messages_are_separated() -> None:
    """SDKs make one text of all parts, whatever lies between."""
    made = front().builder()
    made.flow("m", PartKind.TEXT, "a")
    made.flow("m", PartKind.TEXT, "a")
    made.add("m", ToolCall("c", "f", "{}"))
    made.flow("n", PartKind.TEXT, "bb")
    made.interrupt(Interrupted("i", None, "Why?"))
    made.finish()
    made.end()
    said = parts(chunks(made.take(), front()))
    assert "".join(part.get("text", "") for part in said) == "aa\n\nbb\n\nWhy?"


def test_a_heartbeat_is_an_empty_text() -> None:
    events = built(Text("x"))
    events.insert(-1, Heartbeat())
    assert parts(chunks(events))[1] == {"text": ""}


def test_choices_are_candidates() -> None:
    builder = front().builder()
    for choice, reason in enumerate((FinishReason.STOP, FinishReason.LENGTH)):
        builder.message(choice, choice=choice)
        builder.flow(choice, PartKind.TEXT, f"answer {choice}")
        builder.end_reason(choice, reason)
    builder.finish()
    builder.end()
    events = builder.take()
    whole = json.loads(dialect.assemble(events, front()).body)
    assert [(c["index"], c["finishReason"]) for c in whole["candidates"]] == [(0, "STOP"), (1, "MAX_TOKENS")]
    assert [c["content"]["parts"] for c in whole["candidates"]] == [[{"text": "answer 0"}], [{"text": "answer 1"}]]


def test_an_answer_to_a_request_without_sse_is_an_array() -> None:
    request = read(user(), "/v1beta/models/g:streamGenerateContent")
    assert request.stream
    (whole,) = json.loads(dialect.assemble(built(Text("a"), Text("b")), front(request)).body)
    assert whole["candidates"][0]["content"]["parts"] == [{"text": "ab"}]


def test_a_canceled_run_is_no_stop() -> None:
    told = chunks(built(Text("x"), reason=FinishReason.CANCELED))
    assert told[-1]["error"]["code"] == 499
    assert dialect.assemble(built(Text("x"), reason=FinishReason.CANCELED), front()).status == 499


def test_signatures_of_gemini_stay_on_their_parts_on_the_way_to_its_clients() -> None:
    said = [
        chunk({"text": "Look", SIGNATURE: "b25l"}),
        chunk({**CALL, SIGNATURE: "dHdv"}, CALL),
        chunk({"text": "", SIGNATURE: "dGhyZWU="}, finish="STOP"),
    ]
    told = parts(chunks(decode_chunks(*said)))
    assert [p.get(SIGNATURE) for p in told] == [None, "b25l", "dHdv", None, "dGhyZWU=", None]
    for other in ("ag-ui", "agentscope"):
        wire = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in said)
        translator = Translator("gemini", other)
        out = translator.feed(wire) + translator.close()
        assert b"dHdv" not in out


def test_a_call_that_a_cancel_cut_off_is_left_out_by_name_and_the_others_are_not() -> None:
    """Three calls of an agent interleave, and the run is canceled in the middle of the third."""
    builder = front().builder()
    for number in range(3):
        builder.open_part(number, 0, PartKind.TOOL_CALL, call_id=f"c{number}", name="f")
    for piece in ('{"a":', "1}"):
        for number in range(3 if piece[0] == "{" else 2):
            builder.delta(number, piece)
    builder.end_part(0)
    builder.end_part(1)
    builder.finish(FinishReason.CANCELED)
    builder.end()
    translator = Translator("agentscope", "gemini")
    wire = encode(registry.get("agentscope"), builder.take())
    said = [json.loads(frame[6:]) for frame in (translator.feed(wire) + translator.close()).splitlines() if frame]
    told = [p["functionCall"]["id"] for p in parts(said[:-1]) if "functionCall" in p]
    assert told == ["c0", "c1"]
    assert said[-1]["error"]["status"] == "CANCELLED"
    assert translator.lost_details["tool_call"] == "cut off inside its arguments"


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"status": "INVALID_ARGUMENT", "message": "bad"}, ErrorCode.INVALID_REQUEST),
        (400, {"status": "FAILED_PRECONDITION", "message": "country"}, ErrorCode.INVALID_REQUEST),
        (
            400,
            {"status": "INVALID_ARGUMENT", "message": "The input token count (9) exceeds the maximum number of tokens"},
            ErrorCode.CONTEXT_LENGTH,
        ),
        (
            400,
            {
                "status": "INVALID_ARGUMENT",
                "message": "API key not valid. AIzaSecret0123456789",
                "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
            },
            ErrorCode.BACKEND_AUTH,
        ),
        (401, {"status": "UNAUTHENTICATED", "message": "x"}, ErrorCode.BACKEND_AUTH),
        (403, {"status": "PERMISSION_DENIED", "message": "x"}, ErrorCode.BACKEND_AUTH),
        (404, {"status": "NOT_FOUND", "message": "x"}, ErrorCode.NOT_FOUND),
        (413, {"status": "INVALID_ARGUMENT", "message": "x"}, ErrorCode.TOO_LARGE),
        (429, {"status": "RESOURCE_EXHAUSTED", "message": "x"}, ErrorCode.RATE_LIMITED),
        (500, {"status": "INTERNAL", "message": "x"}, ErrorCode.BACKEND_ERROR),
        (503, {"status": "UNAVAILABLE", "message": "x"}, ErrorCode.OVERLOADED),
        (504, {"status": "DEADLINE_EXCEEDED", "message": "x"}, ErrorCode.BACKEND_TIMEOUT),
    ],
)
def test_errors_of_backends(status: int, error: dict[str, Any], code: ErrorCode) -> None:
    body = json.dumps({"error": {"code": status, **error}}).encode()
    for data in (body, b"[" + body + b"]"):
        failure = dialect.decode_error(WireResponse(status, {}, data))
        assert failure.code is code
        assert "AIza" not in failure.message


def test_when_to_try_again() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
    error = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "x", "details": details}}
    failure = dialect.decode_error(WireResponse(429, {}, json.dumps(error).encode()))
    assert failure.headers == {"retry-after": "7"}
    told = json.loads(dialect.encode_error(failure).body)["error"]
    assert details[0] in told["details"]
    assert (told["code"], told["status"]) == (429, "RESOURCE_EXHAUSTED")


def test_a_proxys_page_says_nothing_of_the_request() -> None:
    failure = dialect.decode_error(WireResponse(404, {}, b"<html>not here</html>"))
    assert failure.code is ErrorCode.BACKEND_ERROR
    assert "not here" not in failure.message


def test_another_bridge_says_its_own_words() -> None:
    for code in (ErrorCode.TRUNCATED_STREAM, ErrorCode.CONTENT_FILTER, ErrorCode.RUN_LOST):
        wire = dialect.encode_error(Failure(code, "x"))
        assert dialect.decode_error(WireResponse(wire.status, {}, wire.body)).code is code


# ---------------------------------------------------------------------- models


def test_models() -> None:
    names = ["models/a", "models/embed"]
    methods = [["generateContent"], ["embedContent"]]
    listed = [{"name": n, "supportedGenerationMethods": m} for n, m in zip(names, methods, strict=True)]
    wire = WireResponse(200, {}, json.dumps({"models": listed}).encode())
    found = dialect.decode_models(wire)
    assert [info.id for info in found] == ["a"]
    told = json.loads(dialect.encode_models(found).body)
    assert told["models"][0]["name"] == "models/a"
    assert "generateContent" in told["models"][0]["supportedGenerationMethods"]
    assert dialect.decode_count(WireResponse(200, {}, b'{"totalTokens": 6}')) == 6


@pytest.mark.parametrize(("reason", "blocked"), [("SAFETY", True), ("BLOCK_REASON_UNSPECIFIED", False), (None, False)])
def test_a_prompt_is_blocked_by_a_reason(reason: str | None, blocked: bool) -> None:
    answer = fold(decode_chunks({"promptFeedback": {"blockReason": reason}}))
    assert answer.reason is (FinishReason.CONTENT_FILTER if blocked else None)
    assert (answer.failure is None) is blocked
