"""Two texts whose deltas interleave on a backend's wire reach clients of every dialect whole and in order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from bridge.contract import WireResponse, registry
from bridge.model import fold
from bridge.testing.pairs import decode_whole
from bridge.testing.wires import answers_whole, decode
from bridge.translation.library import Translator

_PIECES = (("a", "<a1"), ("b", "<b1"), ("a", "a2>"), ("b", "b2>"))
_WHOLE = {"a": "<a1a2>", "b": "<b1b2>"}
_POSITION = {"a": 0, "b": 1}


def _ag_ui() -> Iterable[dict[str, Any]]:
    ids = {"threadId": "t", "runId": "r"}
    yield {"type": "RUN_STARTED", **ids}
    yield from ({"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"} for name in "ab")
    yield from ({"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": text} for name, text in _PIECES)
    yield from ({"type": "TEXT_MESSAGE_END", "messageId": name} for name in "ba")
    yield {"type": "RUN_FINISHED", **ids}


def _agentscope() -> Iterable[dict[str, Any]]:
    def message(name: str, status: str) -> dict[str, Any]:
        return {"object": "message", "id": name, "type": "message", "role": "assistant", "status": status}

    def content(name: str, text: str, status: str, delta: bool) -> dict[str, Any]:
        head = {"object": "content", "type": "text", "msg_id": name, "index": 0}
        return {**head, "text": text, "delta": delta, "status": status}

    yield {"object": "response", "id": "r", "status": "in_progress"}
    yield from (message(name, "in_progress") for name in "ab")
    yield from (content(name, text, "in_progress", True) for name, text in _PIECES)
    for name in "ba":
        whole = content(name, _WHOLE[name], "completed", False)
        yield from (whole, {**message(name, "completed"), "content": [whole]})
    yield {"object": "response", "id": "r", "status": "completed"}


def _ai_sdk_ui() -> Iterable[dict[str, Any]]:
    yield {"type": "start", "messageId": "m"}
    yield from ({"type": "text-start", "id": name} for name in "ab")
    yield from ({"type": "text-delta", "id": name, "delta": text} for name, text in _PIECES)
    yield from ({"type": "text-end", "id": name} for name in "ba")
    yield {"type": "finish"}


def _anthropic() -> Iterable[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    text = {"type": "text", "text": ""}
    yield {"type": "message_start", "message": message}
    yield from ({"type": "content_block_start", "index": index, "content_block": text} for index in (0, 1))
    for name, piece in _PIECES:
        delta = {"type": "text_delta", "text": piece}
        yield {"type": "content_block_delta", "index": _POSITION[name], "delta": delta}
    yield from ({"type": "content_block_stop", "index": index} for index in (1, 0))
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    yield {"type": "message_stop"}


def _responses(one_item: bool) -> Iterable[dict[str, Any]]:
    """Return the events of two items, or of one item with two contents."""
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "in_progress",
        "model": "m",
        "output": [],
    }

    def part(name: str) -> dict[str, Any]:
        return {"type": "output_text", "text": _WHOLE[name], "annotations": []}

    def item(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
        status = "completed" if parts else "in_progress"
        return {"id": name, "type": "message", "role": "assistant", "status": status, "content": list(parts)}

    def place(name: str) -> dict[str, Any]:
        position = _POSITION[name]
        if one_item:
            return {"item_id": "a", "output_index": 0, "content_index": position}
        return {"item_id": name, "output_index": position, "content_index": 0}

    items = {"a": [*map(part, "ab")]} if one_item else {name: [part(name)] for name in "ab"}
    yield {"type": "response.created", "response": response}
    for index, name in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": index, "item": item(name)}
    for name in "ab":
        yield {"type": "response.content_part.added", **place(name), "part": {**part(name), "text": ""}}
    for name, text in _PIECES:
        yield {"type": "response.output_text.delta", **place(name), "delta": text}
    for name in "ba":
        yield {"type": "response.output_text.done", **place(name), "text": _WHOLE[name]}
    for index, (name, parts) in enumerate(items.items()):
        yield {"type": "response.output_item.done", "output_index": index, "item": item(name, *parts)}
    yield {"type": "response.completed", "response": {**response, "status": "completed"}}


def _a2a() -> Iterable[dict[str, Any]]:
    def result(**value: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "result": value}

    ids = {"taskId": "t", "contextId": "c"}
    yield result(task={"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}})
    for number, (name, text) in enumerate(_PIECES):
        artifact = {"artifactId": name, "parts": [{"text": text}]}
        yield result(artifactUpdate={**ids, "artifact": artifact, "append": number > 1, "lastChunk": number > 1})
    yield result(statusUpdate={**ids, "status": {"state": "TASK_STATE_COMPLETED"}})


_WIRES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "ag-ui": ("ag-ui", [*_ag_ui()]),
    "agentscope": ("agentscope", [*_agentscope()]),
    "ai-sdk-ui": ("ai-sdk-ui", [*_ai_sdk_ui()]),
    "anthropic-messages": ("anthropic-messages", [*_anthropic()]),
    "openai-responses": ("openai-responses", [*_responses(one_item=False)]),
    "openai-responses, one item": ("openai-responses", [*_responses(one_item=True)]),
    "a2a": ("a2a", [*_a2a()]),
}


@pytest.mark.parametrize("front", [name for name in registry.called() if registry.get(name).served])
@pytest.mark.parametrize("wire", _WIRES)
def test_interleaved_texts_arrive_whole_and_in_order(wire: str, front: str) -> None:
    back, events = _WIRES[wire]
    dialect = registry.get(front)
    frames = [f"event: {e.get('type')}\ndata: {json.dumps(e)}\n\n".encode() for e in events]

    def translator() -> Translator:
        return Translator(back, front, run_id="run1", created_at=1.0)

    streamed = translator()
    answers = [fold(decode(dialect, [b"".join(map(streamed.feed, frames)) + streamed.close()]))]
    if answers_whole(dialect):
        body = translator().response(b"".join(frames), headers={"content-type": "text/event-stream"})
        answers.append(fold(decode_whole(dialect, WireResponse(200, {"content-type": dialect.content_type}, body))))
    for answer in answers:
        assert answer.failure is None
        assert answer.text.replace("\n", "") == "<a1a2><b1b2>"
