"""What clients are sent: the grammar of section 5, the real schemas, and the pictures that the two clients make."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bridge.contract import Dialect, Frame, WireResponse
from bridge.dialects.agentscope import dialect, java
from bridge.dialects.agentscope.options import FrontOptions
from bridge.dialects.anthropic_messages import dialect as messages
from bridge.dialects.openai_chat import dialect as chat
from bridge.dialects.openai_responses import dialect as responses
from bridge.errors import KEY_REFUSED, ErrorCode, Failure
from bridge.model import (
    Builder,
    Custom,
    Data,
    Event,
    FileRef,
    FinishReason,
    Heartbeat,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Origin,
    PartKind,
    Raw,
    Reasoning,
    Refusal,
    Request,
    RunFailed,
    RunFinished,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
    Url,
    UsageReported,
    fold,
)
from bridge.translation.framing.sse import join

from .frontends import WebFrontend, python_client
from .helpers import again, check_schemas, context, decode, encode, payloads

IMAGE = Media(MediaKind.IMAGE, Url("https://x.example/cat.png"), "image/png")


def run(tell: Callable[[Builder], None], reason: FinishReason | None = None) -> list[Event]:
    """The events of one run of which `tell` says what happens."""
    builder = context(run_id="back").builder()
    tell(builder)
    builder.finish(reason)
    builder.end()
    return builder.take()


def hello(builder: Builder) -> None:
    for piece in ("Hel", "lo ", "你好"):
        builder.flow("m", PartKind.TEXT, piece)


def everything(builder: Builder) -> None:
    builder.add("m", Reasoning("think", "sig"))
    hello(builder)
    builder.add("m", IMAGE)
    builder.add("m", Data({"a": 1}))
    builder.add("m", Refusal("no"))
    builder.add("m", ToolCall("c1", "f", '{"x":1}'))
    builder.add("m", ToolCall("c2", "g", "", Origin.MCP, "srv"))
    builder.result("c2", [Text("two")], name="g")
    builder.result("c1", [Text("one")])
    builder.message("n")
    builder.flow("n", PartKind.TEXT, "done")
    builder.usage(UsageReported(3, 4, cached=1, reasoning=2))


def test_the_grammar_of_a_text_answer() -> None:
    events = payloads(encode(run(hello)))
    check_schemas(events)
    assert [e["sequence_number"] for e in events] == list(range(9))
    told = [(e["object"], e["status"], e.get("delta")) for e in events]
    assert told == [
        ("response", "created", None),
        ("response", "in_progress", None),
        ("message", "in_progress", None),
        ("content", "in_progress", True),
        ("content", "in_progress", True),
        ("content", "in_progress", True),
        ("content", "completed", False),
        ("message", "completed", None),
        ("response", "completed", None),
    ]
    assert [e["text"] for e in events if e["object"] == "content"] == ["Hel", "lo ", "你好", "Hello 你好"]
    assert events[7]["content"] == [events[6]]
    assert events[8]["output"] == [events[7]]
    assert events[2]["content"] is None
    assert events[0]["output"] is None


def test_fields_stand_in_the_order_of_the_page() -> None:
    frames = encode(run(hello))
    assert [bytes(f) for f in (frames[0], frames[2], frames[3])] == [
        b'{"sequence_number":0,"object":"response","status":"created","error":null,"id":"response_back",'
        b'"created_at":1700000000,"completed_at":null,"output":null,"usage":null,"session_id":"back"}',
        b'{"sequence_number":2,"object":"message","status":"in_progress","error":null,"id":"msg_back",'
        b'"type":"message","role":"assistant","content":null,"code":null,"message":null,"usage":null,"metadata":null}',
        b'{"sequence_number":3,"object":"content","status":"in_progress","error":null,"type":"text","index":0,'
        b'"delta":true,"msg_id":"msg_back","text":"Hel"}',
    ]


def test_everything_at_once_is_valid_and_in_order() -> None:
    events = payloads(encode(run(everything)))
    check_schemas(events)
    final = events[-1]
    assert [m["type"] for m in final["output"]] == [
        "reasoning", "message", "plugin_call", "mcp_call", "mcp_call_output", "plugin_call_output", "message",
    ]  # fmt: skip
    assert [m["id"] for m in final["output"]][:4] == ["msg_back", "msg_back-1", "msg_back-2", "msg_back-3"]
    assert [(c["type"], c["index"]) for c in final["output"][1]["content"]] == [
        ("text", 0), ("image", 1), ("data", 2), ("refusal", 3),
    ]  # fmt: skip
    assert final["output"][3]["content"][0]["data"] == {
        "call_id": "c2", "arguments": "{}", "name": "g", "server_label": "srv",
    }  # fmt: skip
    usage = {
        "input_tokens": 3, "output_tokens": 4, "total_tokens": 7,
        "input_tokens_details": {"cached_tokens": 1}, "output_tokens_details": {"reasoning_tokens": 2},
    }  # fmt: skip
    assert final["usage"] == final["output"][-1]["usage"] == usage
    assert [m["usage"] for m in final["output"][:-1]] == [None] * 6
    for message in final["output"]:
        assert all(c["msg_id"] == message["id"] and c["status"] == "completed" for c in message["content"])


def test_a_later_content_begins_with_a_delta() -> None:
    events = [e for e in payloads(encode(run(everything))) if e["object"] == "content" and e["type"] == "image"]
    assert [(e["status"], e["delta"]) for e in events] == [("in_progress", True), ("completed", False)]


def test_interleaved_calls_come_one_after_another() -> None:
    def tell(builder: Builder) -> None:
        builder.open_part("a", "m", PartKind.TOOL_CALL, call_id="a", name="f")
        builder.open_part("b", "m", PartKind.TOOL_CALL, call_id="b", name="g")
        builder.delta("b", "[2]")
        builder.delta("a", "[1]")
        builder.add("m", IMAGE)
        builder.end_part("b")
        builder.end_part("a")

    events = payloads(encode(run(tell)))
    check_schemas(events)
    calls = [e["data"] for e in events if e["object"] == "content" and e["type"] == "data"]
    assert [(d["call_id"], d["arguments"]) for d in calls] == [("a", ""), ("a", "[1]"), ("b", ""), ("b", "[2]")]
    assert events[-1]["output"][-1]["content"][0]["type"] == "image"
    assert events[-1]["output"][-1]["metadata"] == {"finish_reason": "tool_calls"}


def test_a_call_is_sent_with_its_complete_arguments() -> None:
    def tell(builder: Builder) -> None:
        builder.open_part("a", "m", PartKind.TOOL_CALL, call_id="a", name="f")
        builder.delta("a", "{")
        builder.delta("a", "}")

    options = FrontOptions(call_type="function_call")
    events = payloads(encode(run(tell), context(options=options)))
    told = [(e["data"]["arguments"], e["delta"], e["status"]) for e in events if e["object"] == "content"]
    assert told == [("", False, "in_progress"), ("{}", False, "completed")]
    assert events[-1]["output"][0]["type"] == "function_call"
    assert fold(run(tell)).calls[0].arguments == "{}"


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CONTENT_FILTER])
def test_a_reason_stands_in_the_metadata(reason: FinishReason) -> None:
    for tell in (hello, lambda builder: None):
        final = payloads(encode(run(tell, reason)))[-1]
        assert final["status"] == "completed"
        assert final["output"][-1]["metadata"] == {"finish_reason": str(reason)}
        assert again(run(tell, reason)).reason is reason


@pytest.mark.parametrize(
    ("reason", "options", "status"),
    [
        (FinishReason.CONTENT_FILTER, {"content_filter": "rejected"}, "rejected"),
        (FinishReason.CONTENT_FILTER, {"content_filter": "failed"}, "failed"),
        (FinishReason.CANCELED, {}, "canceled"),
    ],
)
def test_a_reason_may_be_a_status(reason: FinishReason, options: dict[str, Any], status: str) -> None:
    ctx = context(options=FrontOptions(**options))
    events = payloads(encode(run(hello, reason), ctx))
    check_schemas(events)
    assert events[-1]["status"] == status
    assert events[-1]["output"][0]["content"][0]["text"] == "Hello 你好"
    answer = again(run(hello, reason), ctx)
    if status == "failed":
        assert answer.failure is not None
        assert answer.failure.code is ErrorCode.CONTENT_FILTER
    else:
        assert answer.reason is reason


def broken(code: ErrorCode, text: str = "It broke.") -> list[Event]:
    builder = context(run_id="back").builder()
    builder.add("m", Reasoning("hm"))
    builder.open_part("t", "m", PartKind.TEXT)
    builder.delta("t", "half an ans")
    builder.usage(UsageReported(1, 2))
    builder.fail(Failure(code, text))
    return builder.take()


def test_a_failure_keeps_the_half_answer() -> None:
    events = payloads(encode(broken(ErrorCode.BACKEND_TIMEOUT)))
    check_schemas(events)
    final = events[-1]
    assert (final["status"], final["error"]) == ("failed", {"code": "MODEL_TIMEOUT", "message": "It broke."})
    assert final["completed_at"] is None
    assert [(m["type"], m["status"]) for m in final["output"]] == [
        ("reasoning", "completed"),
        ("message", "incomplete"),
    ]
    assert final["output"][1]["content"][0]["text"] == "half an ans"
    assert final["usage"]["total_tokens"] == 3


def test_a_result_before_a_failure_is_complete() -> None:
    builder = context(run_id="back").builder()
    builder.add("m", ToolCall("c", "f", "{}"))
    builder.result("c", [Text("x")])
    builder.fail(Failure(ErrorCode.BACKEND_ERROR, "It broke."))
    final = payloads(encode(builder.take()))[-1]
    assert [(m["type"], m["status"]) for m in final["output"]] == [
        ("plugin_call", "completed"), ("plugin_call_output", "completed"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (ErrorCode.BACKEND_AUTH, "CONFIGURATION_ERROR"),
        (ErrorCode.CANCELED, "CANCELED"),
        (ErrorCode.RATE_LIMITED, "RATE_LIMIT_EXCEEDED"),
        (ErrorCode.BACKEND_UNAVAILABLE, "NETWORK_ERROR"),
        (ErrorCode.TRUNCATED_STREAM, "NETWORK_ERROR"),
        (ErrorCode.INTERNAL, "AGENT_UNKNOWN_ERROR"),
    ],
)
def test_the_words_for_failures(code: ErrorCode, word: str) -> None:
    assert payloads(encode(broken(code)))[-1]["error"]["code"] == word


OF_ANOTHER_BRIDGE = {
    ErrorCode.UNAUTHORIZED: (ErrorCode.BACKEND_AUTH, KEY_REFUSED),
    ErrorCode.FORBIDDEN: (ErrorCode.BACKEND_AUTH, KEY_REFUSED),
    ErrorCode.BACKEND_AUTH: (ErrorCode.BACKEND_AUTH, KEY_REFUSED),
    ErrorCode.INTERNAL: (ErrorCode.BACKEND_ERROR, "It broke."),
}
"""What its key check and its crash are for us."""


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_survives_the_trip(code: ErrorCode) -> None:
    answer = again(broken(code))
    assert answer.failure is not None
    assert (answer.failure.code, answer.failure.message) == OF_ANOTHER_BRIDGE.get(code, (code, "It broke."))
    assert (answer.text, answer.reasoning) == ("half an ans", "hm")


def test_ids_and_times() -> None:
    events = run(hello)
    last = events[-1]
    assert isinstance(last, RunFinished)
    last.ended_at = 1_700_000_009.9
    ctx = context(thread_id="t1", request=Request([], run_id="mine"))
    responses = [e for e in payloads(encode(events, ctx)) if e["object"] == "response"]
    assert {(e["id"], e["session_id"], e["created_at"]) for e in responses} == {("mine", "t1", 1_700_000_000)}
    assert [e["completed_at"] for e in responses] == [None, None, 1_700_000_009]


def test_batches_do_not_matter() -> None:
    events = run(everything)
    assert join(encode(events)) == join(encode(events, size=1)) == join(encode(events, size=3))


def test_line_separators_are_escaped() -> None:
    def tell(builder: Builder) -> None:
        builder.flow("m", PartKind.TEXT, "a\u2028b\u2029c\u0085d“e”\ud83d")
        builder.add("m", ToolCall("c", "f\u2028", '"\u2029"'))

    data = join(encode(run(tell)))
    assert not any(c in data.decode() for c in "\u2028\u2029\u0085")
    assert again(run(tell)).text == "a\u2028b\u2029c\u0085d“e”\ufffd"
    models = python_client(data)
    assert models[-1].status == "completed"
    assert models[-1].output[1].content[0].data["arguments"] == '"\u2029"'


def test_keepalive() -> None:
    events = run(hello)
    events.insert(2, Heartbeat())
    comment = encode(events)
    assert [f for f in comment if isinstance(f, Frame)] == [Frame(comment=b"keep-alive")]
    off = FrontOptions.model_validate({"keepalive": False})
    assert encode(events, context(options=off)) == encode(run(hello))
    beats = payloads(encode(events, context(options=FrontOptions(keepalive="message"))))
    check_schemas(beats)
    assert [e["sequence_number"] for e in beats] == list(range(len(beats)))
    assert beats[2]["type"] == "heartbeat"
    assert len(beats[-1]["output"]) == 1


def test_what_cannot_be_told_is_recorded() -> None:
    def tell(builder: Builder) -> None:
        builder.emit(StateChanged(StateOp.SNAPSHOT, {}))
        builder.emit(StepStarted("s"))
        builder.emit(Custom("x"))
        builder.emit(Raw("other", {}))
        hello(builder)

    ctx = context()
    final = payloads(encode(run(tell), ctx))[-1]
    assert [m["content"][0]["text"] for m in final["output"]] == ["Hello 你好"]
    assert sorted(ctx.lost.names) == ["custom", "raw", "state", "step"]


def test_roles_and_metadata_survive_the_same_dialect() -> None:
    def one(wire_id: str, kind: str, role: str, content: dict[str, Any]) -> dict[str, Any]:
        return {
            "object": "message", "status": "completed", "id": wire_id, "type": kind, "role": role,
            "content": [content], "metadata": {"original_id": wire_id},
        }  # fmt: skip

    def holds(**value: Any) -> dict[str, Any]:
        return {"type": "data", "data": value}

    asked = {"id": "q", "name": "rm", "arguments": "{}", "server_label": "fs"}
    wire: list[dict[str, Any]] = [
        one("m1", "message", "system", {"type": "text", "text": "note"}),
        one("m2", "message", "user", {"type": "image", "image_url": "https://x.example/a.png"}),
        one("m3", "reasoning", "assistant", {"type": "text", "text": "hm"}),
        one("m4", "plugin_call", "assistant", holds(call_id="c", name="f", arguments="{}")),
        one("m5", "plugin_call_output", "tool", holds(call_id="c", name="f", output="x")),
        one("m6", "weather_card", "assistant", holds(degrees=20)),
        one("m7", "mcp_approval_request", "assistant", holds(**asked)),
    ]
    done = {"object": "response", "status": "completed"}
    out = payloads(encode(decode([b"data: " + json.dumps(e).encode() + b"\n\n" for e in [*wire, done]])))
    check_schemas(out)
    assert [(m["id"], m["type"], m["role"], m["metadata"]) for m in out[-1]["output"]] == [
        (m["id"], m["type"], m["role"], m["metadata"]) for m in wire
    ]
    assert out[-1]["output"][-1]["content"][0]["data"] == asked


def test_what_openai_says_beside_the_answer_stands_in_the_metadata() -> None:
    def tell(builder: Builder) -> None:
        builder.begin(extras={"shared": {"system_fingerprint": "fp", "service_tier": "default"}})
        for token in ("a", "b"):
            logprobs = {"content": [{"token": token}], "refusal": None}
            builder.flow("m", PartKind.TEXT, token, {"shared": {"logprobs": logprobs}})

    final = payloads(encode(run(tell)))[-1]
    assert final["output"][0]["metadata"] == {
        "logprobs": {"content": [{"token": "a"}, {"token": "b"}]},
        "system_fingerprint": "fp", "service_tier": "default",
    }  # fmt: skip


def test_a_model_that_is_missing_has_a_word_of_its_own() -> None:
    for backend_code, word in (("model_not_found", "MODEL_NOT_FOUND"), (None, "RESOURCE_NOT_FOUND")):
        builder = context(run_id="back").builder()
        builder.fail(Failure(ErrorCode.NOT_FOUND, "No.", backend_code=backend_code))
        events = builder.take()
        assert payloads(encode(events))[-1]["error"]["code"] == word
        failure = again(events).failure
        assert failure is not None
        assert failure.code is ErrorCode.NOT_FOUND


def test_a_message_of_a_type_of_its_own_passes() -> None:
    own = {
        "object": "message", "status": "completed", "id": "m9", "type": "mcp_list_tools", "role": "assistant",
        "content": [{"object": "content", "type": "data", "data": {"tools": []}, "index": None}], "code": "7",
    }  # fmt: skip
    wire = [{**own, "status": "in_progress", "content": None}, own, {"object": "response", "status": "completed"}]
    events = decode([b"data: " + json.dumps(e).encode() + b"\n\n" for e in wire])
    out = payloads(encode(events))
    check_schemas(out)
    assert [e["sequence_number"] for e in out] == list(range(len(out)))
    (message,) = out[-1]["output"]
    assert (message["id"], message["type"], message["code"]) == ("m9", "mcp_list_tools", "7")
    assert message["content"][0]["data"] == {"tools": []}


@pytest.mark.parametrize(
    "part",
    [
        IMAGE,
        Media(MediaKind.IMAGE, Inline("aGk="), "image/png"),
        Media(MediaKind.IMAGE, FileRef("f1")),
        Media(MediaKind.AUDIO, Inline("aGk="), "audio/mpeg"),
        Media(MediaKind.AUDIO, Inline("aGk="), "audio/wav"),
        Media(MediaKind.AUDIO, Inline("aGk="), "application/ogg"),
        Media(MediaKind.AUDIO, Url("https://x.example/a.wav"), "audio/wav"),
        Media(MediaKind.VIDEO, Url("https://x.example/a.mp4")),
        Media(MediaKind.FILE, Inline("aGk="), "text/plain", "a.txt"),
        Media(MediaKind.FILE, FileRef("f1"), None, "a.txt"),
        Data({"k": [1, None]}),
        Data([1, 2]),
        Data(None),
        Data({"value": 1}),
    ],
)
def test_whole_parts_survive_the_trip(part: Media | Data) -> None:
    events = run(lambda b: b.add("m", part))
    check_schemas(payloads(encode(events)))
    (back,) = again(events).parts()
    if part == IMAGE or (isinstance(part, Media) and part.kind is MediaKind.VIDEO):
        assert isinstance(back, Media)
        assert (back.kind, back.source) == (part.kind, part.source)
    else:
        assert back == part


def test_a_question_without_words_shows_its_call() -> None:
    def tell(builder: Builder) -> None:
        builder.add("m", ToolCall("c1", "rm", '{"a":1}'))
        builder.add("m", ToolCall("c2", "ls", "{}"))
        builder.result("c2", [Text("a")])
        builder.interrupt(Interrupted("i1", "tool_call", None, "c1"))
        builder.interrupt(Interrupted("i2", "tool_call", None, "c2"))

    events = encode(run(tell, FinishReason.INTERRUPTED))
    asked = [m["content"][0]["data"] for m in payloads(events)[-1]["output"] if m["type"] == "mcp_approval_request"]
    assert asked[0] == {"id": "i1", "name": "rm", "arguments": '{"a":1}', "server_label": "", "call_id": "c1"}
    assert asked[1]["name"] == "tool_call", "that call has its result"
    assert again(run(tell, FinishReason.INTERRUPTED)).interrupts[0].payload is None


@pytest.mark.parametrize(
    "interrupt",
    [
        Interrupted("i1", "approval", {"id": "i1", "name": "rm", "arguments": "{}", "server_label": "fs"}),
        Interrupted("i1", "tool_call", {"name": "rm", "arguments": {"a": 1}}, "c1"),
        Interrupted("i1", None, {"question": "sure?"}),
        Interrupted("i1", "why", None),
    ],
)
def test_interrupts_are_approval_requests(interrupt: Interrupted) -> None:
    events = run(lambda b: b.interrupt(interrupt))
    out = payloads(encode(events))
    check_schemas(out)
    data = out[-1]["output"][0]["content"][0]["data"]
    assert out[-1]["status"] == "completed"
    assert all(isinstance(data[k], str) for k in ("id", "name", "arguments", "server_label"))
    answer = again(events)
    assert answer.reason is FinishReason.INTERRUPTED
    assert [(i.interrupt_id, i.reason, i.payload, i.call_id) for i in answer.interrupts] == [
        (interrupt.interrupt_id, interrupt.reason, interrupt.payload, interrupt.call_id)
    ]


def test_assemble_is_the_terminal_response() -> None:
    response = dialect.assemble(run(everything), context())
    assert response.content_type == "application/json"
    check_schemas([json.loads(response.body)])
    answer = fold(dialect.parse_response(response, context()))
    assert answer.text == "Hello 你好done"
    assert [c.call_id for c in answer.calls] == ["c1", "c2"]
    failed = dialect.assemble([RunFailed(Failure(ErrorCode.RATE_LIMITED, "Slow down."))], context())
    assert (failed.status, json.loads(failed.body)["detail"][0]["msg"]) == (429, "Slow down.")


# ------------------------------------------------------------------ what people see


def seen(events: list[Event]) -> list[tuple[str, Any]]:
    """What the web frontend shows at the end - and it must not differ from what it built up on the way."""
    data = join(encode(events))
    frontend = WebFrontend()
    blocks = data.split(b"\n\n")
    before: list[tuple[str, Any]] = []
    for block in blocks:
        before = frontend.shown() if frontend.state else []
        frontend.read(block)
    frontend.read(blocks[-2])
    assert not frontend.errors
    final = WebFrontend().read(data)
    assert final.shown() == before
    assert not final.generating
    models = python_client(data)
    assert len(models) == len(payloads(encode(events)))
    assert models[-1].status == final.state["status"]
    return final.shown()


def test_the_web_frontend_shows_text_thinking_and_tools() -> None:
    def tell(builder: Builder) -> None:
        builder.add("m", Reasoning("think"))
        hello(builder)
        builder.open_part("a", "m", PartKind.TOOL_CALL, call_id="a", name="f")
        builder.open_part("b", "m", PartKind.TOOL_CALL, call_id="b", name="g")
        for key, piece in (("a", '{"x"'), ("b", '{"y"'), ("a", ":1}"), ("b", ":2}")):
            builder.delta(key, piece)
        builder.end_part("a")
        builder.end_part("b")
        builder.result("b", [Text("two")])
        builder.result("a", [Text("one")])
        builder.flow("m", PartKind.TEXT, "done")

    assert seen(run(tell)) == [
        ("thinking", "think"),
        ("text", "Hello 你好"),
        ("call", ("f", '{"x":1}', "one")),
        ("call", ("g", '{"y":2}', "two")),
        ("text", "done"),
    ]


def test_the_web_frontend_shows_an_image_after_text() -> None:
    def tell(builder: Builder) -> None:
        hello(builder)
        builder.add("m", IMAGE)
        builder.flow("m", PartKind.TEXT, "so")

    assert seen(run(tell)) == [("text", "Hello 你好"), ("image", "https://x.example/cat.png"), ("text", "so")]


def test_the_web_frontend_keeps_the_half_answer_of_a_failure() -> None:
    assert seen(broken(ErrorCode.BACKEND_ERROR)) == [("thinking", "hm"), ("text", "half an ans")]
    assert seen(broken(ErrorCode.CANCELED)) == [("thinking", "hm"), ("text", "half an ans")]


def test_the_readers_own_cancel_keeps_the_half_answer() -> None:
    frontend = WebFrontend().read(join(encode(run(hello, FinishReason.CANCELED))))
    assert frontend.state["status"] == frontend.state["output"][0]["status"] == "canceled"
    assert frontend.shown() == [("text", "Hello 你好")]


def test_errors_before_a_stream() -> None:
    failure = Failure(
        ErrorCode.INVALID_REQUEST, "input[0].content: expected a list, got 'hi'.", param="input[0].content"
    )
    response = dialect.encode_error(failure)
    assert response.status == 422
    assert json.loads(response.body) == {
        "detail": [{"type": "value_error", "loc": ["body", "input", 0, "content"], "msg": failure.message}]
    }
    limited = dialect.encode_error(Failure(ErrorCode.RATE_LIMITED, "Later.", headers={"retry-after": "3"}))
    assert (limited.status, limited.headers["retry-after"]) == (429, "3")
    assert dialect.decode_error(limited).headers == {"retry-after": "3"}


@pytest.mark.parametrize("code", [c for c in ErrorCode if c not in (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN)])
def test_errors_before_a_stream_survive_the_trip(code: ErrorCode) -> None:
    back = dialect.decode_error(dialect.encode_error(Failure(code, "It broke.")))
    assert (back.code, back.message) == OF_ANOTHER_BRIDGE.get(code, (code, "It broke."))


@pytest.mark.parametrize(
    ("status", "body", "code", "message"),
    [
        (401, b'{"detail":"bad key sk-123456789"}', ErrorCode.BACKEND_AUTH, "The backend refused the bridge's"),
        (403, b"", ErrorCode.BACKEND_AUTH, "The backend refused the bridge's credentials."),
        (500, b"<html>sk-123456789</html>", ErrorCode.BACKEND_ERROR, "The backend answered with status 500."),
        (502, b"", ErrorCode.BACKEND_UNAVAILABLE, "The backend answered with status 502."),
        (429, b'{"error":{"message":"slow","code":"x"}}', ErrorCode.RATE_LIMITED, "slow"),
        (500, b'{"detail":"key sk-abcdef123456 is old"}', ErrorCode.BACKEND_ERROR, "key *** is old"),
        (500, b'{"error":"Bearer abc.def"}', ErrorCode.BACKEND_ERROR, "Bearer ***"),
        (422, b'{"detail":[{"loc":["body","input"],"msg":"Field required"}]}', ErrorCode.INVALID_REQUEST, "input: Fi"),
        (500, b'{"detail":[1,{"msg":[]}]}', ErrorCode.BACKEND_ERROR, "The backend answered with status 500."),
    ],
)
def test_error_statuses_of_backends(status: int, body: bytes, code: ErrorCode, message: str) -> None:
    failure = dialect.decode_error(WireResponse(status, {}, body))
    assert failure.code is code
    assert failure.message.startswith(message)


def test_health() -> None:
    response = dialect.encode_health(True)
    assert (response.status, json.loads(response.body)) == (
        200, {"status": "healthy", "mode": "daemon_thread", "runner": "ready"},
    )  # fmt: skip
    assert dialect.encode_health(False).status == 503


# ---------------------------------------------------------------------- what did not come to its end


def cut(reason: FinishReason, early: bool) -> list[Event]:
    """A call whose arguments a limit cut; `early`: the backend ended it before it told so."""
    builder = context(run_id="back").builder()
    builder.flow("m", PartKind.TEXT, "Let me see.")
    builder.open_part("c", "m", PartKind.TOOL_CALL, call_id="c", name="paint")
    builder.delta("c", '{"color": "bl')
    if early:
        builder.end_part("c")
    builder.finish(reason)
    builder.end()
    return builder.take()


@pytest.mark.parametrize("early", [True, False], ids=["ended", "open"])
@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (FinishReason.LENGTH, "The answer was cut at its length limit."),
        (FinishReason.CONTENT_FILTER, "The answer was stopped by a content filter."),
    ],
)
def test_a_call_that_a_limit_cut_off_is_not_complete(reason: FinishReason, words: str, early: bool) -> None:
    for size in (None, 1):
        events = payloads(encode(cut(reason, early), size=size))
        check_schemas(events)
        call = [e for e in events if e["object"] == "content" and e["type"] == "data"][-1]
        assert (call["status"], call["data"]["arguments"]) == ("incomplete", '{"color": "bl')
        text, last = events[-1]["output"]
        assert text["status"] == "completed"
        assert [last[k] for k in ("status", "code", "message")] == ["incomplete", str(reason), words]
        assert last["metadata"]["finish_reason"] == str(reason)
        assert [c["status"] for c in last["content"]] == ["incomplete"]
    answer = again(cut(reason, early))
    assert (answer.reason, answer.calls[0].arguments) == (reason, '{"color": "bl')


def test_a_call_that_no_limit_cut_off_is_complete() -> None:
    for events in (cut(FinishReason.TOOL_CALLS, True), cut(FinishReason.STOP, False)):
        assert payloads(encode(events))[-1]["output"][1]["content"][0]["status"] == "completed"


@pytest.mark.parametrize("code", [ErrorCode.BACKEND_TIMEOUT, ErrorCode.CANCELED])
def test_contents_that_were_open_when_the_run_failed_are_not_complete(code: ErrorCode) -> None:
    events = payloads(encode(broken(code)))
    reasoning, message = events[-1]["output"]
    assert [c["status"] for c in reasoning["content"]] == ["completed"]
    assert [c["status"] for c in message["content"]] == ["canceled" if code is ErrorCode.CANCELED else "incomplete"]
    last = [e for e in events if e["object"] == "content"][-1]
    assert (last["status"], last["text"]) == (message["content"][0]["status"], "half an ans")


def test_a_call_that_was_open_when_the_run_failed_is_not_complete() -> None:
    builder = context(run_id="back").builder()
    for name in ("a", "b"):
        builder.open_part(name, "m", PartKind.TOOL_CALL, call_id=name, name="f")
    builder.delta("a", "{}")
    builder.end_part("a")
    builder.fail(Failure(ErrorCode.BACKEND_ERROR, "It broke."))
    final = payloads(encode(builder.take()))[-1]
    assert [m["content"][0]["status"] for m in final["output"]] == ["completed", "incomplete"]
    assert final["output"][1]["content"][0]["data"]["arguments"] == ""


@pytest.mark.parametrize("form", [dialect, java], ids=lambda d: d.name)
def test_several_calls_that_a_limit_cut_off(form: Dialect) -> None:
    builder = context(run_id="back").builder()
    for name in ("a", "b"):
        builder.open_part(name, "m", PartKind.TOOL_CALL, call_id=name, name="f")
        builder.delta(name, '{"x": ')
    builder.finish(FinishReason.LENGTH)
    builder.end()
    events = builder.take()
    wanted = "failed" if form is java else "incomplete"
    output = payloads(encode(events, front=form))[-1]["output"]
    assert [(m["status"], m["content"][0]["status"]) for m in output] == [(wanted, wanted)] * 2
    assert again(events, form=form).reason is FinishReason.LENGTH


# ------------------------------------------------------------------ what other protocols say more of


def two_answers(builder: Builder) -> None:
    for choice in (0, 1):
        builder.message(choice, choice=choice)
    for piece in ("A", "B"):
        for choice in (0, 1):
            builder.flow(choice, PartKind.TEXT, f"{piece}{choice} ")
    builder.add(1, ToolCall("c1", "f", "{}"))
    builder.end_reason(0, FinishReason.LENGTH)


def test_several_answers_are_several_messages() -> None:
    ctx = context()
    events = run(two_answers, FinishReason.LENGTH)
    wire = payloads(encode(events, ctx))
    check_schemas(wire)
    output = wire[-1]["output"]
    assert [(m["type"], m["metadata"]) for m in output] == [
        ("message", {"finish_reason": "length"}),
        ("message", {"choice_index": 1}),
        ("plugin_call", {"choice_index": 1, "origin": "function"}),
    ]
    assert [m["content"][0].get("text") for m in output[:2]] == ["A0 B0 ", "A1 B1 "]
    assert "choices" not in ctx.lost.names
    answer = again(events)
    assert [answer.choice_of(m) for m in answer.messages] == [0, 1, 1]
    assert answer.reason is FinishReason.LENGTH
    assert payloads(encode(events, size=1)) == wire


def test_several_answers_are_one_in_the_java_form() -> None:
    ctx = context()
    wire = payloads(encode(run(two_answers), ctx, front=java))
    assert [c["text"] for m in wire[-1]["output"] for c in m["content"]] == ["A0 B0 "]
    assert "choices" in ctx.lost.names


def test_several_answers_that_fail_are_all_told() -> None:
    builder = context(run_id="back").builder()
    two_answers(builder)
    builder.fail(Failure(ErrorCode.BACKEND_ERROR, "no"))
    output = payloads(encode(builder.take()))[-1]["output"]
    assert [(m["status"], (m["metadata"] or {}).get("choice_index")) for m in output] == [
        ("incomplete", None), ("completed", 1), ("incomplete", 1)
    ]  # fmt: skip


def test_the_model_is_named_in_metadata() -> None:
    ctx, builder = context(), context(run_id="back").builder()
    builder.begin(model="gpt-x")
    hello(builder)
    builder.finish()
    builder.end()
    events = builder.take()
    wire = payloads(encode(events, ctx))
    check_schemas(wire)
    assert wire[-1]["output"][0]["metadata"] == {"model": "gpt-x"}
    assert "model" not in ctx.lost.names
    assert again(events).model == "gpt-x"
    encode(events, ctx, front=java)
    assert "model" in ctx.lost.names


def test_citations_of_a_chat_model_are_metadata() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "https://x.example", "start_index": 0, "end_index": 3}}
    chunks = ({"content": "See"}, {"annotations": [note]}, {"annotations": [note]})
    frames = [json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() for delta in chunks]
    decoder, ctx = chat.decoder(context()), context()
    wire = payloads(encode([*decoder.feed(frames), *decoder.close()], ctx))
    assert wire[-1]["output"][0]["metadata"] == {"annotations": [note, note]}
    assert "raw" not in ctx.lost.names


URL = "https://x.example"
CITED = {"type": "url_citation", "url_citation": {"url": URL, "title": "X"}}


def test_citations_of_responses_and_messages_are_metadata_in_one_form() -> None:
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    note = {"type": "url_citation", "url": URL, "title": "X"}
    part = {"type": "output_text", "text": "See", "annotations": [note]}
    of_responses = [
        {"type": "response.created", "response": {"id": "r"}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "id": "m", "content": []},
        },
        {"type": "response.output_text.delta", **place, "delta": "See"},
        {"type": "response.output_text.annotation.added", **place, "annotation_index": 0, "annotation": note},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}},
    ]
    found = {"type": "web_search_result_location", "url": URL, "title": "X", "cited_text": "t", "encrypted_index": "e"}
    of_messages = [
        {"type": "message_start", "message": {"id": "r", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "See"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": found}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    for back, wire in ((responses, of_responses), (messages, of_messages)):
        decoder = back.decoder(context())
        frames = [Frame(json.dumps(event).encode(), str(event["type"])) for event in wire]
        told = payloads(encode([*decoder.feed(frames), *decoder.close()], context()))
        assert told[-1]["output"][0]["metadata"] == {"annotations": [CITED]}, back.name


def busy(builder: Builder) -> None:
    builder.flow("m", PartKind.TEXT, "one")
    builder.emit(StepStarted("plan"))
    builder.emit(StateChanged(StateOp.SNAPSHOT, {"a": 1}))
    builder.emit(Custom("ping", [1]))
    builder.flow("m", PartKind.TEXT, "two")
    builder.emit(StepEnded("plan"))


def test_state_steps_and_custom_events_are_messages_by_option() -> None:
    ctx = context(options=FrontOptions(events="messages"))
    wire = payloads(encode(run(busy), ctx))
    check_schemas(wire)
    output = wire[-1]["output"]
    assert [(m["type"], m["content"][0].get("data") or m["content"][0]["text"]) for m in output] == [
        ("message", "onetwo"),
        ("step", {"name": "plan", "status": "started"}),
        ("state", {"op": "snapshot", "value": {"a": 1}}),
        ("custom", {"name": "ping", "value": [1]}),
        ("step", {"name": "plan", "status": "ended"}),
    ]
    assert not ctx.lost.names
    ctx = context()
    assert [m["type"] for m in payloads(encode(run(busy), ctx))[-1]["output"]] == ["message"]
    assert ctx.lost.names == ["step", "state", "custom"]
