"""Streams and histories of many odd pieces: CPU time grows as their number does. Times are compared with each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bridge.contract import WireRequest, registry
from bridge.model import Message, Request, Text, ToolCall, ToolResult
from bridge.testing.wires import context
from tests.security.test_foreign_values import check_linear

COUNTS = (250, 2000)

Pieces = list[dict[str, Any]]


def chat(delta: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def called(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    return chat({"tool_calls": [{"index": index, "function": {"arguments": arguments, **more}, "id": f"c{index}"}]})


def text_after_half_a_call(count: int) -> Pieces:
    half = called(0, '{"a":"' + "x" * 20 * count, name="f")
    return [half, *(chat({"content": "x"}) for _ in range(count))]


def text_between_pieces_of_a_call(count: int) -> Pieces:
    pieces = [each for _ in range(count) for each in (called(0, '{"a":{}}'[:-1]), chat({"content": "x"}))]
    return [called(0, '{"b":', name="f"), *pieces]


def calls_that_never_end(count: int) -> Pieces:
    return [called(n, '{"a":', name="f") for n in range(count)]


def items_without_ids(count: int) -> Pieces:
    done = "response.output_item.done"
    return [{"type": done, "output_index": n, "item": {"type": "odd", "n": n}} for n in range(count)]


def content(**said: Any) -> dict[str, Any]:
    return {"object": "content", "msg_id": "m", **said}


OPENED = {"object": "message", "id": "m", "type": "message", "role": "assistant", "status": "in_progress"}


def contents_without_index(count: int) -> Pieces:
    said = [content(type="data", data={"n": n}, delta=False, status="completed") for n in range(count)]
    return [OPENED, *said]


def retold_contents_without_index(count: int) -> Pieces:
    said = [{"type": "data", "data": {"n": n}} for n in range(count)]
    return [OPENED, {**OPENED, "status": "completed", "content": said}]


def pieces_of_arguments(count: int) -> Pieces:
    opened = {**OPENED, "type": "plugin_call"}
    data = {"call_id": "c", "name": "f"}
    return [
        opened,
        *(content(type="data", index=0, delta=True, data={**data, "arguments": "x" * 50}) for _ in range(count)),
    ]


def empty_snapshots_of_a_text(count: int) -> Pieces:
    long = content(type="text", index=0, delta=True, text="x" * 20 * count)
    return [OPENED, long, *(content(type="text", index=0, delta=False, text="") for _ in range(count))]


STREAMS: list[tuple[str, Callable[[int], Pieces]]] = [
    ("openai-chat", text_after_half_a_call),
    ("openai-chat", text_between_pieces_of_a_call),
    ("openai-chat", calls_that_never_end),
    ("openai-responses", items_without_ids),
    ("agentscope", contents_without_index),
    ("agentscope", retold_contents_without_index),
    ("agentscope", pieces_of_arguments),
    ("agentscope", empty_snapshots_of_a_text),
]


@pytest.mark.parametrize(("name", "made"), STREAMS, ids=[made.__name__ for _, made in STREAMS])
def test_a_stream_of_many_pieces_takes_linear_time(name: str, made: Callable[[int], Pieces]) -> None:
    dialect = registry.get(name)
    streams = [[json.dumps(piece).encode() for piece in made(count)] for count in COUNTS]

    def work(frames: list[bytes]) -> None:
        decoder = dialect.decoder(context(dialect.back_options()))
        for frame in frames:
            decoder.feed([frame])
        decoder.close()

    check_linear(work, streams, made.__name__)


def rounds(count: int) -> list[Message]:
    """Calls in messages of their own, each with its result behind it or behind all."""
    calls = [ToolCall(f"c{n}", "f", "{}") for n in range(count)]
    told = [
        Message(role, [part])
        for call in calls
        for role, part in (("assistant", call), ("tool", ToolResult(call.call_id, [Text("x")])))
    ]
    return [Message("user", [Text("x")]), *told, Message("user", [Text("y")])]


def calls_alone(count: int) -> list[Message]:
    calls = [Message("assistant", [ToolCall(f"c{n}", "f", "{}")]) for n in range(count)]
    return [Message("user", [Text("x")]), *calls]


@pytest.mark.parametrize("made", [rounds, calls_alone])
@pytest.mark.parametrize(
    "name", ["openai-chat", "ag-kit", "openai-responses", "anthropic-messages", "agentscope", "ag-ui"]
)
def test_a_history_of_many_calls_takes_linear_time(name: str, made: Callable[[int], list[Message]]) -> None:
    dialect = registry.get(name)

    def work(messages: list[Message]) -> WireRequest:
        request = Request(messages, model="m", thread_id="t")
        return dialect.encode_request(request, context(dialect.back_options(), request))

    check_linear(work, [made(count) for count in COUNTS], made.__name__)
