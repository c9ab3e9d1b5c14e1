"""Answers to clients, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.codec import HistoryMessage, HistoryPage, RunRef, StoredFile, WireResponse, json_response
from bridge.codec.jsontext import dumps


def encode_started(run: RunRef, task_id: str, created: bool) -> WireResponse:
    body = {"taskId": task_id, "threadId": run.thread_id, "runId": run.run_id, "created": created}
    return json_response(dumps(body), 202)


def encode_canceled(run: RunRef) -> WireResponse:
    return json_response(dumps({"threadId": run.thread_id, "runId": run.run_id, "accepted": True}), 202)


def encode_history(day: HistoryPage) -> WireResponse:
    body = {
        "scope": "history_day",
        "threadId": day.thread_id,
        "day": day.day.isoformat() if day.day else None,
        "hasMore": day.more,
        "messages": [_message(message) for message in day.messages],
    }
    return json_response(dumps(body))


def _message(message: HistoryMessage) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": message.id,
        "seq": message.seq,
        "role": message.role,
        "content": message.content,
        "timestamp": message.at.isoformat(),
    }
    actions = message.metadata.get("suggested_actions")
    if isinstance(actions, list) and all(isinstance(action, str) for action in actions):
        out["suggestedActions"] = actions
    if message.files:
        out["attachments"] = [{"mimeType": file.mime, "url": file.url} for file in message.files]
    schema = _schema(message.metadata)
    if schema is not None or message.role == "tool":
        out["ui_schema"] = schema
    return out


def _schema(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """The key under which backends put the display form of their result."""
    output = metadata.get("tool_agent_output")
    found = metadata.get("ui_schema") or (output.get("ui_hints") if isinstance(output, dict) else None)
    return found if isinstance(found, dict) else None


def encode_attached(file: StoredFile) -> WireResponse:
    body = {"bucket": file.bucket, "path": file.path, "mimeType": file.mime, "url": file.url}
    return json_response(dumps({"attachment": body}))


def encode_signed(file: StoredFile) -> WireResponse:
    return json_response(dumps({"bucket": file.bucket, "path": file.path, "url": file.url}))


def encode_transcript(text: str) -> WireResponse:
    return json_response(dumps({"transcript": text}))
