"""Answers to clients, as JSON."""

from __future__ import annotations

from typing import Any

from bridge.contract import HistoryMessage, HistoryPage, RunRef, StoredFile, WireResponse, json_response
from bridge.model.jsontext import dumps, loads


def encode_started(run: RunRef, task_id: str, created: bool) -> WireResponse:
    body = {"taskId": task_id, "threadId": run.thread_id, "runId": run.run_id, "created": created}
    return json_response(dumps(body), 202)


def encode_canceled(run: RunRef) -> WireResponse:
    return json_response(dumps({"threadId": run.thread_id, "runId": run.run_id, "accepted": True}), 202)


def encode_history(day: HistoryPage) -> WireResponse:
    body: dict[str, Any] = {
        "scope": "history_day",
        "threadId": day.thread_id,
        "day": day.day.isoformat() if day.day else None,
        "hasMore": day.more,
        "messages": [_message(message) for message in day.messages],
    }
    if day.removed and not day.more:
        body["removedMessages"] = day.removed
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
    schema = _schema(message)
    if schema is not None or message.role == "tool":
        out["ui_schema"] = schema
    return out


def _schema(message: HistoryMessage) -> dict[str, Any] | None:
    """Return what a frontend renders: `ui_schema` of the message's metadata, else the hints of a tool's output.

    The output is `tool_agent_output` in the metadata, else the JSON object that is the result. Its `ui_hints` are an
    object, or a list of objects, which is wrapped: `ui_schema` is always an object.
    """
    hints = message.metadata.get("ui_schema")
    if not hints and message.role == "tool":
        output = message.metadata.get("tool_agent_output") or _object(message.content)
        hints = output.get("ui_hints") if isinstance(output, dict) else None
    if isinstance(hints, list):
        items = [hint for hint in hints if isinstance(hint, dict)]
        return {"type": "list", "items": items} if items else None
    return hints if isinstance(hints, dict) else None


def _object(text: str) -> Any:
    # Most results are texts: a JSON text begins with a quotation mark.
    if '"ui_hints"' not in text or not text.startswith("{"):
        return None
    try:
        return loads(text)
    except ValueError:
        return None


def encode_attached(file: StoredFile) -> WireResponse:
    body = {"bucket": file.bucket, "path": file.path, "mimeType": file.mime, "url": file.url}
    return json_response(dumps({"attachment": body}))


def encode_signed(file: StoredFile) -> WireResponse:
    return json_response(dumps({"bucket": file.bucket, "path": file.path, "url": file.url}))


def encode_transcript(text: str) -> WireResponse:
    return json_response(dumps({"transcript": text}))
