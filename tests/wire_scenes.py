"""Answers that exercise every form of a wire, as events of a run; and clients that ask for all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.contract import Context, WireRequest, registry
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    SHARED,
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
    Reasoning,
    Refusal,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
    Url,
    UsageReported,
)
from bridge.model.jsontext import dumps
from bridge.testing.wires import context

PNG, WAV, PDF = Inline("iVBORw0KGgo="), Inline("UklGRiQAAABXQVZF"), Inline("JVBERi0xLjQKJeLjz9MK")
Json = dict[str, Any]
AWKWARD = 'é😀\u2028\u0085"\\\n\t\x00 </script> שלום'
Scene = Callable[[Builder], None]


def events(scene: Scene) -> list[Event]:
    builder = Builder("run1", "thread1", 1_700_000_000.0, iter_ids())
    builder.begin(model="m")
    scene(builder)
    if not builder.done:
        builder.finish()
        builder.end()
    return builder.take()


def iter_ids() -> Callable[[str], str]:
    made = iter(range(1000))
    return lambda prefix: f"{prefix}_{next(made)}"


def _adds(*parts: object) -> Scene:
    def scene(b: Builder) -> None:
        for part in parts:
            b.add(0, part)  # type: ignore[arg-type]

    return scene


def _ends(reason: FinishReason, *parts: object) -> Scene:
    def scene(b: Builder) -> None:
        _adds(*parts)(b)
        b.finish(reason)

    return scene


def _fails(failure: Failure, *parts: object) -> Scene:
    def scene(b: Builder) -> None:
        _adds(*parts)(b)
        b.fail(failure)

    return scene


def _stream(b: Builder) -> None:
    for piece in ("Hel", "", "lo ", AWKWARD):
        if piece:
            b.flow(0, PartKind.TEXT, piece)


def _interleaved(b: Builder) -> None:
    for n in range(3):
        b.open_part(("c", n), 0, PartKind.TOOL_CALL, call_id=f"call_{n}", name="f")
    for piece in ('{"a"', ":", "1}"):
        for n in range(3):
            b.delta(("c", n), piece)
    for n in (2, 0, 1):
        b.end_part(("c", n))


def _cut_call(reason: FinishReason | None) -> Scene:
    def scene(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "I look.")
        b.open_part("c", 0, PartKind.TOOL_CALL, call_id="call_1", name="f")
        b.delta("c", '{"a": "on')
        if reason is None:
            b.cutting = True
            b.fail(Failure(ErrorCode.BACKEND_ERROR, "It broke."))
        else:
            b.finish(reason)

    return scene


def _choices(b: Builder) -> None:
    for choice in (1, 0):
        b.message(choice, choice=choice)
        b.flow(choice, PartKind.TEXT, f"answer {choice}")
    b.open_part("c", 1, PartKind.TOOL_CALL, call_id="call_1", name="f")
    b.delta("c", "{}")
    b.end_part("c")
    b.end_reason(0, FinishReason.LENGTH)
    b.end_message(0)
    b.end_message(1)
    b.usage(UsageReported(3, 4, 7))


def _last_choice_first(b: Builder) -> None:
    for choice in (2, 1, 0):
        b.message(choice, choice=choice)
        b.flow(choice, PartKind.TEXT, f"answer {choice}")


def _logprobs(b: Builder) -> None:
    entry = {
        "token": "Hi",
        "bytes": [72, 105],
        "logprob": -0.1,
        "top_logprobs": [{"token": "Hi", "bytes": [72, 105], "logprob": -0.1}],
    }
    b.flow(0, PartKind.TEXT, "Hi", {SHARED: {"logprobs": {"content": [entry]}}})
    b.flow(
        0, PartKind.TEXT, " you", {SHARED: {"logprobs": {"content": [{**entry, "token": " you", "top_logprobs": []}]}}}
    )


def _annotated(b: Builder) -> None:
    note = {
        "type": "url_citation",
        "url_citation": {"start_index": 0, "end_index": 3, "title": "T", "url": "https://x.example/"},
    }
    b.open_part("t", 0, PartKind.TEXT)
    b.delta("t", "See it.")
    b.end_part("t", extras={SHARED: {"annotations": [note, note]}})


def _server_tools(b: Builder) -> None:
    b.flow(0, PartKind.TEXT, "Let me look.")
    b.add(0, ToolCall("call_s", "search", '{"q":"x"}', Origin.PLUGIN))
    b.result("call_s", [Text("found"), Media(MediaKind.IMAGE, PNG, "image/png")], name="search")
    b.add(0, ToolCall("call_m", "fetch", "{}", Origin.MCP, "server"))
    b.result("call_m", [Text("no")], name="fetch", is_error=True)
    b.flow(0, PartKind.TEXT, "It is there.")


def _messages(b: Builder) -> None:
    for n in range(2):
        b.add(n, Reasoning(f"thought {n}", "sig" if n else None))
        b.add(n, Text(f"text {n}"))
        b.end_message(n)


def _agent(b: Builder) -> None:
    b.emit(StepStarted("plan"))
    b.emit(StateChanged(StateOp.SNAPSHOT, {"a": 1}))
    b.flow(0, PartKind.TEXT, "Hi")
    b.emit(StateChanged(StateOp.PATCH, [{"op": "add", "path": "/b", "value": 2}]))
    b.emit(Custom("seen", {"x": 1}))
    b.emit(Heartbeat())
    b.emit(StepEnded("plan"))


def _interrupts(call: bool) -> Scene:
    def scene(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "May I?")
        if call:
            b.add(0, ToolCall("call_1", "delete", '{"a":1}'))
        b.interrupt(Interrupted("int_1", "confirm", {"question": "Really?"}, "call_1" if call else None))

    return scene


def _usage(**counts: object) -> Scene:
    def scene(b: Builder) -> None:
        b.add(0, Text("Hi"))
        b.usage(UsageReported(**counts))  # type: ignore[arg-type]

    return scene


def _mixed(b: Builder) -> None:
    b.add(0, Reasoning("Hm", "sig_1"))
    b.add(0, Text("One"))
    b.add(0, ToolCall("call_1", "f", '{"a":1}'))
    b.add(0, Text("Two"))
    b.add(0, Reasoning("Hm again"))
    b.add(0, ToolCall("call_2", "f", "{}"))


def _overlapping(b: Builder) -> None:
    b.open_part("t", 0, PartKind.TEXT)
    b.open_part("r", 0, PartKind.REASONING)
    b.open_part("c", 0, PartKind.TOOL_CALL, call_id="call_1", name="f")
    for piece in ("1", "2", "3"):
        for key in ("t", "r", "c"):
            b.delta(key, piece)
    for key in ("c", "r", "t"):
        b.end_part(key)


def _empty_message(b: Builder) -> None:
    b.message(0)


def _empty_text(b: Builder) -> None:
    b.open_part("t", 0, PartKind.TEXT)
    b.end_part("t")
    b.open_part("r", 0, PartKind.REASONING)
    b.end_part("r")


_BROKEN = Failure(ErrorCode.BACKEND_ERROR, "It broke.")
_LIMIT = Failure(ErrorCode.RATE_LIMITED, "Slow down.")

SCENES: dict[str, Scene] = {
    "text": _adds(Text("Hello.")),
    "stream": _stream,
    "empty": _adds(),
    "empty message": _empty_message,
    "empty parts": _empty_text,
    "white space": _adds(Text(" ")),
    "reasoning": _adds(Reasoning("Hm."), Text("Hi")),
    "reasoning signed": _adds(Reasoning("Hm.", "sig"), Text("Hi")),
    "reasoning redacted": _adds(Reasoning("", None, "secret"), Text("Hi")),
    "reasoning signed and redacted": _adds(Reasoning("Hm", "sig", "secret"), Text("Hi")),
    "reasoning signature only": _adds(Reasoning("", "sig"), Text("Hi")),
    "reasoning only": _adds(Reasoning("Hm.")),
    "reasoning after text": _adds(Text("Hi"), Reasoning("Hm."), Text("you")),
    "call": _adds(ToolCall("call_1", "f", '{"a":1}')),
    "call odd id": _adds(ToolCall("call.1:ü/x", "f", '{"a":1}')),
    "call after text": _adds(Text("I look."), ToolCall("call_1", "f", '{"a":1}')),
    "calls": _adds(*(ToolCall(f"call_{n}", "f", '{"a":1}') for n in range(3))),
    "calls interleaved": _interleaved,
    "call empty": _adds(ToolCall("call_1", "f", "")),
    "call broken": _adds(ToolCall("call_1", "f", '{"a":')),
    "call no object": _adds(ToolCall("call_1", "f", "[1]")),
    "call null": _adds(ToolCall("call_1", "f", "null")),
    "call space": _adds(ToolCall("call_1", "f", "  ")),
    "call NaN": _adds(ToolCall("call_1", "f", '{"a": NaN}')),
    "call surrogate": _adds(ToolCall("call_1", "f", '{"a":"\\ud83d"}')),
    "call cut by length": _cut_call(FinishReason.LENGTH),
    "call cut by failure": _cut_call(None),
    "call cut by filter": _cut_call(FinishReason.CONTENT_FILTER),
    "mixed": _mixed,
    "overlapping": _overlapping,
    "refusal": _adds(Refusal("I can't.")),
    "refusal after text": _adds(Text("Hm. "), Refusal("I can't.")),
    "annotations": _annotated,
    "logprobs": _logprobs,
    "image": _adds(
        Text("See"), Media(MediaKind.IMAGE, PNG, "image/png"), Media(MediaKind.IMAGE, Url("https://x.example/a.png"))
    ),
    "image alone": _adds(Media(MediaKind.IMAGE, PNG)),
    "image ref": _adds(Media(MediaKind.IMAGE, FileRef("file-1"))),
    "audio": _adds(Media(MediaKind.AUDIO, WAV, "audio/wav", transcript="Hi"), Media(MediaKind.AUDIO, WAV)),
    "audio url": _adds(Media(MediaKind.AUDIO, Url("https://x.example/a.wav"), "audio/wav")),
    "video": _adds(Media(MediaKind.VIDEO, Url("https://x.example/a.mp4"))),
    "file": _adds(
        Text("See"),
        Media(MediaKind.FILE, PDF, "application/pdf", "a.pdf"),
        Media(MediaKind.FILE, Url("https://x.example/a.pdf")),
    ),
    "data": _adds(Data({"a": [1, None]}), Text("x")),
    "choices": _choices,
    "choices out of order": _last_choice_first,
    "length": _ends(FinishReason.LENGTH, Text("Hal")),
    "filter": _ends(FinishReason.CONTENT_FILTER, Text("Hal")),
    "filter empty": _ends(FinishReason.CONTENT_FILTER),
    "length empty": _ends(FinishReason.LENGTH),
    "canceled": _ends(FinishReason.CANCELED, Text("Hal")),
    "canceled empty": _ends(FinishReason.CANCELED),
    "length with calls": _ends(FinishReason.LENGTH, ToolCall("call_1", "f", "{}")),
    "failure": _fails(_LIMIT),
    "failure later": _fails(_BROKEN, Text("Hal")),
    "failure after call": _fails(_BROKEN, Text("Hal"), ToolCall("call_1", "f", "{}")),
    "server tools": _server_tools,
    "messages": _messages,
    "agent": _agent,
    "interrupt": _interrupts(False),
    "interrupt call": _interrupts(True),
    "usage all": _usage(input=10, output=5, total=15, cached=4, reasoning=2),
    "usage input only": _usage(input=10),
    "usage estimated": _usage(input=10, output=5, estimated=True),
    "usage cached above": _usage(input=10, output=5, cached=12, reasoning=9),
}


# ------------------------------------------------------------------ who asks

_SCHEMA = {"type": "object", "properties": {}}
REQUESTS: dict[str, Json] = {
    "openai-chat": {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": _SCHEMA}}],
        "stream_options": {"include_usage": True},
    },
    "openai-responses": {"input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": _SCHEMA}]},
    "anthropic-messages": {
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "f", "input_schema": _SCHEMA}],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
    },
}


def asked(front: str, stream: bool) -> WireRequest:
    """The request of a client that wants all that there is."""
    wire = WireRequest("POST", headers={"content-type": "application/json"}, body=dumps(REQUESTS[front]))
    if front == "gemini":
        method = "streamGenerateContent" if stream else "generateContent"
        wire.path, wire.query = f"/v1beta/models/m:{method}", {"alt": "sse"}
        wire.params = {"model": "m"}
    else:
        wire.body = dumps({"model": "m", "stream": stream, **REQUESTS[front]})
    return wire


def prepared(front: str, options: Json, stream: bool) -> Context:
    """The context of a client's run."""
    dialect = registry.get(front)
    made = context(dialect.front_options(**options))
    made.request = dialect.decode_request(asked(front, stream), made)
    return made
