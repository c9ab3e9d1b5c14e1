"""What the load client must know of each dialect: one text delta, the end of a stream, the text of an event, a request.

Names are those of the product where it has the dialect. `sse` counts events of anything else, unchecked.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"


def _pattern(text: str) -> re.Pattern[bytes]:
    """`~` stands for a colon, with or without spaces round it: writers of JSON differ there."""
    return re.compile(text.replace("~", r"\s*:\s*").encode())


def _no_fault(_: list[Any]) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Patterns are searched in the bytes of every reply; the two functions see sampled replies, parsed."""

    delta: re.Pattern[bytes]
    terminal: re.Pattern[bytes]
    text: Callable[[Any], str | None] | None
    fault: Callable[[list[Any]], str] = _no_fault


def parse_events(body: bytes) -> Iterator[Any]:
    """The events of a whole SSE body; the chat terminator comes out as the string `[DONE]`."""
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = b"\n".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:"))
        if data:
            yield DONE if data == DONE.encode() else json.loads(data)


def _chat_text(event: Any) -> str | None:
    if event == DONE or not event.get("choices"):
        return None
    return event["choices"][0].get("delta", {}).get("content")


def _chat_fault(events: list[Any]) -> str:
    if events[-1] != DONE:
        return "the last event is not [DONE]"
    reasons = [e["choices"][0].get("finish_reason") for e in events[:-1] if e.get("choices")]
    return "" if [r for r in reasons if r] == ["stop"] else "not exactly one finish_reason 'stop'"


def _agentscope_text(event: Any) -> str | None:
    if event.get("object") == "content" and event.get("delta") and event.get("type") == "text":
        return event.get("text")
    return None


def _agentscope_fault(events: list[Any]) -> str:
    """The repeats of the text must equal the deltas, or a client that takes the last word shows another text."""
    last = events[-1]
    if (last.get("object"), last.get("status")) != ("response", "completed"):
        return "the last event is not the completed response"
    # The Java runtime writes the same objects in camel case.
    if [e.get("sequence_number", e.get("sequenceNumber")) for e in events] != list(range(len(events))):
        return "sequence_number does not rise by one from 0"
    text = "".join(t for t in map(_agentscope_text, events) if t)
    contents = [e for e in events if e.get("object") == "content" and e.get("status") == "completed"]
    messages = [e for e in events if e.get("object") == "message" and e.get("status") == "completed"]
    contents += [c for m in [*messages, *last["output"]] for c in m["content"]]
    return "" if contents and all(c["text"] == text for c in contents) else "a repeat differs from the deltas"


def _typed(kind: str, field: str) -> Callable[[Any], str | None]:
    return lambda event: event.get(field) if event != DONE and event.get("type") == kind else None


def _anthropic_text(event: Any) -> str | None:
    if event.get("type") == "content_block_delta" and event["delta"].get("type") == "text_delta":
        return event["delta"]["text"]
    return None


def _gemini_text(event: Any) -> str | None:
    parts = event["candidates"][0].get("content", {}).get("parts", [])
    return parts[0].get("text") if parts else None


def _gemini_fault(events: list[Any]) -> str:
    ends = [n for n, e in enumerate(events) if e["candidates"][0].get("finishReason")]
    return "" if ends == [len(events) - 1] else "finishReason is not in the last event, once"


def _a2a_text(event: Any) -> str | None:
    parts = event["result"].get("artifactUpdate", {}).get("artifact", {}).get("parts", [])
    return parts[0].get("text") if parts else None


def _a2a_fault(events: list[Any]) -> str:
    states = [e["result"].get("statusUpdate", {}).get("status", {}).get("state") for e in events]
    ends = [n for n, state in enumerate(states) if state == "TASK_STATE_COMPLETED"]
    return "" if ends == [len(events) - 1] else "the completed status is not the last event, once"


def _last(kind: str) -> Callable[[list[Any]], str]:
    """The stream must end with this event; once."""

    def fault(events: list[Any]) -> str:
        ends = [n for n, e in enumerate(events) if e == kind or (e != DONE and e.get("type") == kind)]
        return "" if ends == [len(events) - 1] else f"{kind} is not the last event, once"

    return fault


ANY = re.compile(b"")
AG_UI = Dialect(
    _pattern(r'"type"~"TEXT_MESSAGE_CONTENT"'),
    _pattern(r'"type"~"RUN_FINISHED"'),
    _typed("TEXT_MESSAGE_CONTENT", "delta"),
    _last("RUN_FINISHED"),
)
AGENTSCOPE = Dialect(
    _pattern(r'"delta"~true'),
    _pattern(r'"object"~"response"[^\n]*"status"~"completed"|"status"~"completed"[^\n]*"object"~"response"'),
    _agentscope_text,
    _agentscope_fault,
)
DIALECTS = {
    "openai-chat": Dialect(
        _pattern(r'"delta"~\{[^{}]*"content"~"[^"]'), _pattern(r"data~\[DONE\]"), _chat_text, _chat_fault
    ),
    "agentscope": AGENTSCOPE,
    "agentscope-java": AGENTSCOPE,
    "openai-responses": Dialect(
        _pattern(r'"type"~"response\.output_text\.delta"'),
        _pattern(r'"type"~"response\.completed"'),
        _typed("response.output_text.delta", "delta"),
        _last("response.completed"),
    ),
    "anthropic-messages": Dialect(
        _pattern(r'"type"~"text_delta"'),
        _pattern(r'"type"~"message_stop"'),
        _anthropic_text,
        _last("message_stop"),
    ),
    "gemini": Dialect(
        _pattern(r'"parts"~\[\{[^{}]*"text"~"[^"]'), _pattern(r'"finishReason"~"'), _gemini_text, _gemini_fault
    ),
    "ai-sdk-ui": Dialect(
        _pattern(r'"type"~"text-delta"'), _pattern(r"data~\[DONE\]"), _typed("text-delta", "delta"), _last(DONE)
    ),
    "a2a": Dialect(
        _pattern(r'"parts"~\[\{[^{}]*"text"~"[^"]'), _pattern(r'"state"~"TASK_STATE_COMPLETED"'), _a2a_text, _a2a_fault
    ),
    "ag-ui": AG_UI,
    "agent-runs": AG_UI,
    "ag-kit": Dialect(_pattern(r'"type"~"text"'), _pattern(r"data~\[DONE\]"), _typed("text", "content"), _last(DONE)),
    "aip": Dialect(ANY, ANY, None),  # load_grpc.py checks it
    "sse": Dialect(re.compile(rb"(?m)^data:"), ANY, None),
}

_RUN_INPUT: dict[str, Any] = {
    "threadId": "__ID__",
    "runId": "__ID__",
    "state": {},
    "messages": [{"id": "1", "role": "user", "content": "hi"}],
    "tools": [],
    "context": [],
    "forwardedProps": {},
}
# What a case sends when it names no body of its own. __ID__ is a fresh id per request, so that no two requests
# share a session.
_CHAT: dict[str, Any] = {"model": "bench-model", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
_HI = [{"type": "text", "text": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": _CHAT,
    "openai-responses": {"model": "bench-model", "stream": True, "input": "hi"},
    "anthropic-messages": {**_CHAT, "max_tokens": 1000},
    "agentscope": {
        "input": [{"role": "user", "type": "message", "content": _HI}],
        "session_id": "__ID__",
        "user_id": "bench",
        "stream": True,
    },
    "agentscope-java": {
        "input": [{"role": "user", "type": "MESSAGE", "content": _HI}],
        "sessionId": "__ID__",
        "userId": "bench",
        "stream": True,
    },
    "ag-kit": {"conversationId": "__ID__", "messages": [{"role": "user", "content": "hi"}]},
    "ag-ui": _RUN_INPUT,
    "agent-runs": {**_RUN_INPUT, "forwardedProps": {"runtime_mode": "chat"}},
    "a2a": {
        "jsonrpc": "2.0",
        "id": "1",
        "method": "SendStreamingMessage",
        "params": {"message": {"messageId": "__ID__", "role": "ROLE_USER", "parts": [{"text": "hi"}]}},
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    "ai-sdk-ui": {
        "id": "__ID__",
        "trigger": "submit-message",
        "messages": [{"id": "1", "role": "user", "parts": _HI}],
    },
    "aip": {},
    "sse": {},
}


def grown(body: dict[str, Any], kilobytes: int) -> dict[str, Any]:
    """A chat request of about this size: up to 1 KB in one message, up to 1 MB as a long talk, above with a picture."""
    if kilobytes <= 1:
        return {**body, "messages": [{"role": "user", "content": "lorem ipsum " * (kilobytes * 80)}]}
    if kilobytes <= 1000:
        said = [{"role": r, "content": "lorem ipsum " * 80} for r in ("user", "assistant")]
        return {**body, "messages": [*said * (kilobytes // 2), {"role": "user", "content": "hi"}]}
    # Noise that is the same in every run; three bytes are four letters of base64.
    data = base64.b64encode(random.Random(1).randbytes(kilobytes * 768)).decode()
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    return {**body, "messages": [{"role": "user", "content": [*_HI, picture]}]}
