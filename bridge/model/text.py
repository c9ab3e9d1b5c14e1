"""Parts as plain text, for dialects that declare them `as text`.

One rendering for all dialects, so that a client sees the same text on every route: Markdown for what a person can open,
JSON for data of programs. Bytes become a note of their kind and size: base64 in a text costs tokens in every later
request, and cannot be opened. The exception is a picture in an answer, which chat clients show.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from bridge.model.events import APPROVALS, AWAITS_RESULT, Interrupted
from bridge.model.parts import (
    Data,
    FileRef,
    Inline,
    Media,
    MediaKind,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Url,
    mime_of,
    url_of,
)
from bridge.model.surrogates import repair

ASKED = "asked"
"""The key in the extras of an interrupt whose question is a text of the answer already."""
_FOR_PROGRAMS = frozenset({"responseSchema", "response_schema", "resumeSchema", "expiresAt", "expires_at"})
"""Fields of an interrupt's payload that no person reads (AG-UI, Mastra)."""
_DEFINED = frozenset({"tool_call", AWAITS_RESULT, "input_required", "auth_required"})
"""Reasons that protocols define (AG-UI, A2A) and that are no words."""
_MOST_SHOWN = 4 * 2**20
"""The characters of base64 up to which a picture is shown within a text."""


def as_text(part: Part) -> str:
    """The part as text: media as a Markdown link, or as a note where there is nothing to open; data as JSON.

    An audio with a transcript needs none.
    """
    match part:
        case Text() | Refusal() | Reasoning():
            return part.text
        case Media():
            return _media_text(part)
        case Data():
            return json_text(part.value)
        case ToolCall():
            return f"{part.name}({part.arguments})"
        case ToolResult():
            return result_text(part.parts)


def as_markdown(part: Part) -> str:
    """The part as text for a person: as `as_text`, but a picture whose bytes are here is shown, if it is not large."""
    if not isinstance(part, Media) or not isinstance(part.source, Inline):
        return as_text(part)
    if part.kind is MediaKind.IMAGE and len(part.source.base64) <= _MOST_SHOWN:
        return f"![{part.filename or part.kind}]({url_of(part, 'image/png')})"
    return _media_text(part)


def _media_text(media: Media) -> str:
    name = media.filename or str(media.kind)
    match media.source:
        case FileRef(file_id=file_id):
            return f"[{name}: {file_id}]"
        case Url(url=url):
            return f"{'!' if media.kind is MediaKind.IMAGE else ''}[{name}]({url})"
        case Inline() if media.transcript:
            return ""
        case Inline(base64=data):
            return f"[{name}: {mime_of(media) or 'unknown type'}, {_size(len(data) * 3 // 4 - data[-2:].count('='))}]"


def _size(count: int) -> str:
    """A number of bytes for people."""
    if count < 1000:
        return f"{count} byte{'' if count == 1 else 's'}"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def result_text(parts: list[Part]) -> str:
    """Return a tool's result as one string: its texts, and other parts as in `as_text`."""
    return "".join(as_text(p) for p in parts)


def interrupt_text(event: Interrupted) -> str:
    """Return an interrupt as a text of the answer; empty if the answer contains the question already."""
    return "" if ASKED in (event.extras or {}) else question_of(event)


def question_of(event: Interrupted) -> str:
    """Return an interrupt as a question to a person: its payload's text, with the call it describes, else all of it.

    Reasons that protocols define, and fields for programs, are not shown.
    """
    payload = event.payload
    if isinstance(payload, str) and payload.strip():
        return payload
    if isinstance(payload, dict):
        actions = payload.get("action_requests")
        if isinstance(actions, list) and (told := [text for action in actions if (text := _review(action))]):
            return "\n\n".join(told)
        # Frameworks describe the call, and why it waits, in a part of the metadata that has their name.
        metadata = payload.get("metadata")
        described = [payload, *(metadata.values() if isinstance(metadata, dict) else ())]
        calls = [call for value in described if (call := _call_in(value))]
        suspended = [v["suspendPayload"] for v in described if isinstance(v, dict) and v.get("suspendPayload")]
        if question := next(filter(None, map(_question_in, (*described, *suspended))), None):
            return question_about(calls, question)
        if suspended:
            return question_about(calls, json_text(suspended[0]))
        payload = "\n\n".join(calls) or {k: v for k, v in payload.items() if k not in _FOR_PROGRAMS}
    if payload in (None, "", {}, []) and event.reason in APPROVALS:
        return "The agent asks for approval."
    lines = [event.reason] if event.reason and event.reason not in _DEFINED else []
    if payload not in (None, "", {}, []):
        lines.append(payload if isinstance(payload, str) else json_text(payload))
    return ": ".join(lines) or "The agent waits for an answer."


def question_about(calls: Iterable[str], question: str) -> str:
    """Return a question with the calls that it is about, each `name(arguments)`, unless it quotes them."""
    said = "".join(question.split())
    return "\n\n".join([*(call for call in calls if "".join(call.split()) not in said), question])


def _review(action: Any) -> str | None:
    """Return what a person is to review, in the wording of LangChain's middleware or as the call."""
    description = action.get("description") if isinstance(action, dict) else None
    return description if isinstance(description, str) and description.strip() else _call_in(action)


def _question_in(value: Any) -> str | None:
    """Return the question in a text, or in a field of an object that is named for it; None if there is none."""
    texts = [value.get(key) for key in ("message", "question", "prompt")] if isinstance(value, dict) else [value]
    return next((text for text in texts if isinstance(text, str) and text.strip()), None)


def _call_in(value: Any) -> str | None:
    """Return the tool call that a JSON object describes, as `name(arguments)`; None if it describes none."""
    if isinstance(value, dict):
        for name, arguments in (("name", "arguments"), ("toolName", "args"), ("name", "args")):
            if isinstance(value.get(name), str) and arguments in value:
                said = value[arguments]
                return f"{value[name]}({said if isinstance(said, str) else json_text(said)})"
    return None


def json_text(value: object) -> str:
    """Compact JSON. Lone surrogates, which JSON text may carry and UTF-8 may not, become U+FFFD."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):
        import json

        return repair(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
