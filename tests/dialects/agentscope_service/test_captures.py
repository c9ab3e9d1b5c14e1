"""Recorded streams of a real service become what a liberal reader ends up with, event by event."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Feature, Support
from bridge.dialects.agentscope_service import dialect
from bridge.dialects.agentscope_service.options import BackOptions
from bridge.dialects.agentscope_service.write_request import encode_request
from bridge.errors import ErrorCode
from bridge.model import (
    Event,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Message,
    Request,
    RunFailed,
    RunFinished,
    Text,
    Url,
    fold,
    result_text,
    verify,
)
from bridge.model import events as ev
from bridge.model.jsontext import dumps
from bridge.testing.wires import context, decode
from bridge.testing.witnesses import ANSWERS
from tests.recorded import CAPTURES

FOLDER = CAPTURES / "agentscope-service"
CASES = {case["name"]: case for case in json.loads((FOLDER / "index.json").read_text())["cases"]}
STREAMS = [name for name, case in CASES.items() if name != "agui_stream" and "text" in (case.get("expect") or {})]
EVENTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "events.json").read_text())
REASONS = {
    "completed": FinishReason.STOP,
    "interrupted": FinishReason.CANCELED,
    "exceed_max_iters": FinishReason.LENGTH,
}
FAILURES = {
    "authentication": ErrorCode.BACKEND_ERROR,
    "connection": ErrorCode.BACKEND_UNAVAILABLE,
    "invalid_request": ErrorCode.BACKEND_ERROR,
    "setup": ErrorCode.BACKEND_ERROR,
}


def wire(name: str) -> bytes:
    return (FOLDER / CASES[name]["file"]).read_bytes()


def told(events: list[Event]) -> list[str]:
    """One line for each event; pieces of one part are joined."""
    out: list[str] = []
    for event in events:
        match event:
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta():
                head = type(event).__name__
                if out[-1].startswith(head):
                    out[-1] += event.text
                    continue
                line = f"{head} {event.text}"
            case ev.PartStarted():
                line = f"PartStarted {event.kind}" + (f" {event.call_id} {event.name}" if event.call_id else "")
            case ev.PartEnded():
                line = f"PartEnded {event.status}"
            case ev.MessageStarted():
                line = f"MessageStarted {event.message_id}"
            case ev.ToolResulted():
                kinds = ",".join(type(part).__name__ for part in event.parts)
                line = (
                    f"ToolResulted {event.call_id} {event.name} {event.is_error} [{kinds}] {result_text(event.parts)}"
                )
            case ev.StepStarted() | ev.StepEnded():
                line = f"{type(event).__name__} {event.name}"
            case ev.Custom():
                line = f"Custom {event.name} {dumps(event.value).decode()}"
            case ev.Interrupted():
                line = (
                    f"Interrupted {event.interrupt_id} {event.reason} {event.call_id} {dumps(event.payload).decode()}"
                )
            case ev.UsageReported():
                line = f"UsageReported {event.input} {event.output} {event.cached}"
            case RunFailed():
                line = f"RunFailed {event.error.code} {event.error.message}"
            case RunFinished():
                line = f"RunFinished {event.reason}"
            case _:
                line = type(event).__name__
        out.append(line[:300])
    return out


def test_every_stream_is_asserted() -> None:
    streams = {path.stem for path in FOLDER.glob("*.sse")}
    assert streams == {*STREAMS, "agui_stream", "heartbeat"} == set(EVENTS)


@pytest.mark.parametrize("name", [path.stem for path in sorted(FOLDER.glob("*.sse"))])
def test_a_stream_becomes_these_events_wherever_it_is_cut(name: str) -> None:
    data = (FOLDER / f"{name}.sse").read_bytes()
    whole = verify(decode(dialect, [data]))
    assert told(whole) == EVENTS[name]
    chance = random.Random(len(data))
    for _ in range(3):
        cuts = sorted(chance.sample(range(len(data) + 1), min(20, len(data))))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert decode(dialect, pieces) == whole
    assert decode(dialect, [bytes([byte]) for byte in data]) == whole


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_says_what_was_seen_of_it(name: str) -> None:
    """What the recording's index has was found by another reader than ours."""
    expect, answer = CASES[name]["expect"], fold(verify(decode(dialect, [wire(name)])))
    if not expect["replies"]:
        assert answer.failure is not None, "of a run that was over there is an end and nothing else"
        return
    assert (answer.text, answer.reasoning) == (expect["text"], expect["reasoning"])
    assert [(c.call_id.split("_", 1)[1], c.name, c.arguments) for c in answer.calls] == [
        (c["id"], c["name"], c["arguments"]) for c in expect["calls"]
    ]
    seen = {r.call_id.split("_", 1)[1]: (result_text(r.parts), r.is_error) for r in answer.results}
    finished = [r for r in expect["results"] if r["state"] is not None]
    texts = {r["id"]: r["text"] for r in finished if not r["data"]}
    assert {i: text for i, (text, _) in seen.items() if i in texts} == texts
    assert {i: error for i, (_, error) in seen.items()} == {r["id"]: r["state"] != "success" for r in finished}
    usage = expect["usage"]
    assert (answer.usage is not None) == bool(usage["input"])
    if answer.usage is not None:
        assert (answer.usage.input, answer.usage.output, answer.usage.cached) == (
            usage["input"], usage["output"], usage["cached"],
        )  # fmt: skip
    if expect["error"] is not None:
        assert answer.failure is not None
        assert answer.failure.code is FAILURES[expect["error"]["type"]]
        # The service's own sentence is for the page that comes with it.
        assert expect["error"]["message"] not in answer.failure.message
    elif expect["finished_reason"] is not None:
        assert answer.failure is None
        assert answer.reason is REASONS[expect["finished_reason"]]
    else:
        assert answer.reason is FinishReason.INTERRUPTED


def test_hints_of_the_service_reach_nobody() -> None:
    hinted = [name for name in STREAMS if b"HINT_BLOCK" in wire(name)]
    assert len(hinted) > 10
    for name in hinted:
        said = "\n".join(told([e for e in decode(dialect, [wire(name)]) if not isinstance(e, ev.TextDelta)]))
        assert "Runtime State" not in said
        assert "current-time" not in said


def test_a_stream_that_is_cut_is_a_failure_unless_the_reply_waits() -> None:
    data = wire("confirm_yes")
    asked = data.index(b"\n\n", data.index(b"REQUIRE_USER_CONFIRM")) + 2
    answer = fold(verify(decode(dialect, [data[:asked]])))
    assert answer.reason is FinishReason.INTERRUPTED
    assert [i.call_id for i in answer.interrupts] == [c.call_id for c in answer.calls]
    before = data.index(b"data: ", data.index(b"MODEL_CALL_END"))
    assert fold(decode(dialect, [data[:before]])).failure is not None


# ---------------------------------------------------------------------- the card


def _events(*more: dict[str, Any]) -> bytes:
    start = {"type": "REPLY_START", "reply_id": "r1"}
    every = [start, {"type": "MODEL_CALL_START", "model_name": "gpt"}, *more]
    return b"".join(b"data: " + dumps({"reply_id": "r1", **e}) + b"\n\n" for e in every)


def _block(mime: str, *pieces: str, **more: Any) -> bytes:
    start = {"type": "DATA_BLOCK_START", "block_id": "b", "media_type": mime, "name": "x"}
    deltas = [{"type": "DATA_BLOCK_DELTA", "block_id": "b", "media_type": mime, "data": p} for p in pieces]
    end = {"type": "DATA_BLOCK_END", "block_id": "b"}
    return _events(start, *deltas, *([{"type": "DATA_BLOCK_DELTA", "block_id": "b", **more}] if more else []), end)


DONE = {"type": "REPLY_END", "finished_reason": "completed"}
SHOWN = {
    Feature.TEXT: "text", Feature.REASONING: "thinking", Feature.TOOL_CALL: "server_tool", Feature.USAGE: "text",
    Feature.TOOL_RESULT: "server_tool", Feature.FINISH_CANCELED: "interrupt", Feature.INTERRUPT: "external_and_confirm",
    Feature.STEP: "text", Feature.CUSTOM: "server_tool", Feature.PART_BORDERS: "text_then_tool", Feature.MODEL: "text",
}  # fmt: skip
MADE = {
    Feature.IMAGE: (MediaKind.IMAGE, _block("image/png", "iVBO")),
    Feature.AUDIO: (MediaKind.AUDIO, _block("audio/wav", "UklGRg==", "AAAA")),
    Feature.VIDEO: (MediaKind.VIDEO, _block("video/mp4", url="https://x.example/a.mp4")),
    Feature.FILE: (MediaKind.FILE, _block("application/pdf", "JVBE")),
}


def test_what_the_card_has_as_exact_is_read() -> None:
    exact = {f for f in ANSWERS if dialect.capabilities.answer(f) is Support.EXACT}
    assert exact == {*SHOWN, *MADE}
    for feature, name in SHOWN.items():
        answer = fold(decode(dialect, [wire(name)]))
        seen = ANSWERS[feature].read(answer)
        if feature is Feature.CUSTOM:
            seen = seen or [1 for stream in STREAMS if b'"CUSTOM"' in wire(stream)]
        assert seen, feature
    for kind, data in MADE.values():
        (part,) = [p for p in fold(verify(decode(dialect, [data]))).media if isinstance(p, Media)]
        assert (part.kind, part.filename) == (kind, "x")


def test_pieces_of_a_medium_are_joined_as_bytes() -> None:
    (sound,) = fold(decode(dialect, [_block("audio/wav", "UklGRg==", "AAAA")])).media
    assert isinstance(sound.source, Inline)
    assert sound.source.bytes == b"RIFF\0\0\0"
    (film,) = fold(decode(dialect, [_block("video/mp4", url="https://x.example/a.mp4")])).media
    assert film.source == Url("https://x.example/a.mp4")


def test_a_medium_that_is_no_base64_fails_the_run() -> None:
    answer = fold(verify(decode(dialect, [_block("audio/wav", "UklGRg==", "!!")])))
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.BACKEND_PROTOCOL


def test_another_reply_on_the_stream_is_left_out() -> None:
    other = {"type": "TEXT_BLOCK_DELTA", "block_id": "o", "delta": "not ours", "reply_id": "r2"}
    mine = {"type": "TEXT_BLOCK_DELTA", "block_id": "m", "delta": "ours"}
    end = {"type": "REPLY_END", "reply_id": "r2", "finished_reason": "error", "error": {"type": "setup"}}
    answer = fold(verify(decode(dialect, [_events(other, mine, {"type": "REPLY_START", "reply_id": "r2"}, end, DONE)])))
    assert (answer.text, answer.failure, answer.reason) == ("ours", None, FinishReason.STOP)


def test_an_id_that_repeats_in_one_reply_names_two_calls() -> None:
    def call(arguments: str) -> list[dict[str, Any]]:
        return [
            {"type": "TOOL_CALL_START", "tool_call_id": "c", "tool_call_name": "f"},
            {"type": "TOOL_CALL_DELTA", "tool_call_id": "c", "delta": arguments},
            {"type": "TOOL_CALL_END", "tool_call_id": "c"},
            {"type": "TOOL_RESULT_START", "tool_call_id": "c", "tool_call_name": "f"},
            {"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": "c", "delta": f"of {arguments}"},
            {"type": "TOOL_RESULT_END", "tool_call_id": "c", "state": "success"},
        ]

    answer = fold(verify(decode(dialect, [_events(*call("1"), *call("2"), DONE)])))
    assert [(c.call_id, c.arguments) for c in answer.calls] == [("r1_c", "1"), ("r1_c_2", "2")]
    assert [(r.call_id, result_text(r.parts)) for r in answer.results] == [("r1_c", "of 1"), ("r1_c_2", "of 2")]


# ---------------------------------------------------------------------- requests


def test_a_request_is_in_the_form_that_was_recorded() -> None:
    (recorded,) = [
        r["body"] for r in json.loads((FOLDER / "list_input.request.json").read_text()) if r["path"] == "/chat/"
    ]
    request = Request(
        [Message(m["role"], [Text(b["text"]) for b in m["content"]], name=m["name"]) for m in recorded["input"]],
        thread_id=recorded["session_id"],
    )
    options = BackOptions(agent_id=recorded["agent_id"], user_id="alice")
    wire_request = encode_request(request, context(options, request), options)
    assert json.loads(wire_request.body) == recorded
    assert (wire_request.method, wire_request.path) == ("POST", "/chat/")
    assert wire_request.headers == {"content-type": "application/json", "x-user-id": "alice"}


def test_media_are_in_the_form_that_was_recorded() -> None:
    (recorded,) = [
        r["body"] for r in json.loads((FOLDER / "image_in.request.json").read_text()) if r["path"] == "/chat/"
    ]
    blocks = recorded["input"]["content"]
    inline, url = (b["source"] for b in blocks if b["type"] == "data")
    parts = [
        Text(blocks[0]["text"]),
        Media(MediaKind.IMAGE, Inline(inline["data"]), inline["media_type"], blocks[1]["name"]),
        Media(MediaKind.IMAGE, Url(url["url"])),
    ]
    options = BackOptions()
    sent = encode_request(Request([Message("user", parts)]), context(options), options)
    assert json.loads(sent.body)["input"][0]["content"] == blocks
