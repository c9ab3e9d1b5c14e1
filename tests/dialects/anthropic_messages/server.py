"""A server that speaks Anthropic Messages, scripted from the protocol's page: a tool loop as the real one plays it.

It checks what the real one checks: the key and version headers, roles in turn, signatures that come back unchanged,
a result for every call, first in the message after the calls, and no text without a visible character.
"""

from __future__ import annotations

from typing import Any

import orjson

from tests.server.harness import Exchange

SIGNATURE = "EqQBCgIYAhIMsigned=="
REDACTED = "EmwKAhgBEgy3redacted"


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events)


def streamed(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a message, texts in two pieces."""
    usage = message["usage"]
    head = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}, {"type": "ping"}]
    for index, block in enumerate(message["content"]):
        start, deltas = _pieces(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}})
    events.append({"type": "message_stop"})
    return events


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            text = block["text"]
            return {"type": "text", "text": ""}, [
                {"type": "text_delta", "text": p} for p in (text[: len(text) // 2], text[len(text) // 2 :])
            ]
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use":
            text = orjson.dumps(block["input"]).decode()
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": p} for p in ("", text[:4], text[4:])
            ]
        case _:
            return block, []


def message(content: list[dict[str, Any]], reason: str = "end_turn") -> dict[str, Any]:
    return {
        "id": "msg_backend", "type": "message", "role": "assistant", "model": "claude-x", "content": content,
        "stop_reason": reason, "stop_sequence": None,
        "usage": {
            "input_tokens": 9, "output_tokens": 4, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 0,
        },
    }  # fmt: skip


def calls(*cities: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": f"toolu_{c}", "name": "get_weather", "input": {"city": c}} for c in cities]


async def messages_api(exchange: Exchange) -> None:
    """Answers a request as the real service would."""
    seen = exchange.seen
    body = seen.json if seen.body else {}
    fault = _fault(seen.method, seen.path, seen.headers, body)
    if fault is not None:
        await exchange.answer(fault[0], _error(*fault[1:]))
    elif seen.path.startswith("/v1/models"):
        models = [{"type": "model", "id": "claude-x", "display_name": "Claude X", "created_at": "2025-02-19T00:00:00Z"}]
        page = {"data": models, "has_more": False, "first_id": "claude-x", "last_id": "claude-x"}
        await exchange.answer(200, orjson.dumps(page))
    elif seen.path == "/v1/messages/count_tokens":
        await exchange.answer(200, b'{"input_tokens":2095}')
    else:
        answer = _reply(body)
        if body.get("stream"):
            await exchange.stream(sse(*streamed(answer)))
        else:
            await exchange.answer(200, orjson.dumps(answer))


def _error(kind: str, text: str) -> bytes:
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"})


def _fault(method: str, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, str, str] | None:
    if headers.get("x-api-key") != "backend-key":
        return 401, "authentication_error", "invalid x-api-key"
    if not headers.get("anthropic-version"):
        return 400, "invalid_request_error", "anthropic-version: header is required"
    if method == "GET":
        return None
    if path == "/v1/messages" and not isinstance(body.get("max_tokens"), int):
        return 400, "invalid_request_error", "max_tokens: Field required"
    if path.endswith("count_tokens") and (extra := body.keys() & {"max_tokens", "stream", "temperature"}):
        return 400, "invalid_request_error", f"{sorted(extra)[0]}: Extra inputs are not permitted"
    text = _talk_fault(body["messages"])
    return (400, "invalid_request_error", text) if text else None


def _talk_fault(messages: list[dict[str, Any]]) -> str | None:
    open_calls: list[str] = []
    for place, entry in enumerate(messages):
        blocks = (
            entry["content"] if isinstance(entry["content"], list) else [{"type": "text", "text": entry["content"]}]
        )
        if place and messages[place - 1]["role"] == entry["role"]:
            return f"messages.{place}: roles must take turns"
        if any(b["type"] == "text" and not b["text"].strip() for b in blocks):
            return f"messages.{place}: text content blocks must contain non-whitespace text"
        if any(b["type"] == "thinking" and b["signature"] != SIGNATURE for b in blocks):
            return f"messages.{place}: Invalid `signature` in `thinking` block"
        if any(b["type"] == "redacted_thinking" and b["data"] != REDACTED for b in blocks):
            return f"messages.{place}: Invalid `data` in `redacted_thinking` block"
        answered = [b["tool_use_id"] for b in blocks[: len(open_calls)] if b["type"] == "tool_result"]
        if answered != open_calls:
            return f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after"
        open_calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
    return None


def _reply(body: dict[str, Any]) -> dict[str, Any]:
    """Tools are called before they answered; then their results are told, and pictures are seen."""
    last = body["messages"][-1]["content"]
    blocks = last if isinstance(last, list) else [{"type": "text", "text": last}]
    results = [b for b in blocks if b["type"] == "tool_result"]
    thinking = (
        [
            {"type": "thinking", "thinking": "Two cities.", "signature": SIGNATURE},
            {"type": "redacted_thinking", "data": REDACTED},
        ]
        if body.get("thinking", {}).get("type") == "enabled"
        else []
    )
    if results:
        told = "; ".join(f"{r['tool_use_id']}={_text(r['content'])}{'!' if r.get('is_error') else ''}" for r in results)
        return message([{"type": "text", "text": told}])
    if body.get("tools"):
        return message([*thinking, {"type": "text", "text": "Let me look."}, *calls("Paris", "Rome")], "tool_use")
    if any(b["type"] == "image" for b in blocks):
        source = next(b["source"] for b in blocks if b["type"] == "image")
        return message(
            [{"type": "text", "text": f"I see {source['type']} {source.get('media_type', source.get('url'))}"}]
        )
    return message([*thinking, {"type": "text", "text": f"You said: {_text(last)}"}])


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(b.get("text", f"<{b['type']}>") for b in content)
