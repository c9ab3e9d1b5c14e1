"""The parts that streamed chunks and the completion object have in common: names, words, whole parts."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context
from bridge.dialects.openai_chat.options import FrontOptions
from bridge.dialects.openai_chat.wire import NAME, NOTES, own
from bridge.model import FinishReason, Inline, Media, MediaKind, RunStarted, UsageReported, url_of

_CUT = frozenset({FinishReason.LENGTH, FinishReason.CONTENT_FILTER})


def first_keys(extras: dict[str, Any]) -> dict[str, Any]:
    """A fragment's own fields beside `id` and `function` (Gemini's `extra_content`)."""
    return {k: v for k, v in extras.items() if k not in ("function", "type")}


def wants_usage(context: Context, usage: UsageReported | None) -> bool:
    """Return whether the client requested the usage chunk; a translation without its request must lose nothing."""
    if context.request is None:
        return usage is not None
    notes = context.request.extra(NAME).get(NOTES)
    return isinstance(notes, dict) and bool(notes.get("include_usage"))


def model_of(started: RunStarted, context: Context) -> str:
    """Return the model shown to a client: never null, as the SDK's type demands."""
    requested = context.request.model if context.request else None
    return started.model or context.model or requested or ""


def id_of(started: RunStarted, extras: dict[str, Any]) -> str:
    """The backend's id, so that its operators find the answer again; else one made of the run's."""
    known = extras.get("id")
    return known if isinstance(known, str) and known else f"chatcmpl-{started.run_id}"


def finish_word(reason: FinishReason | None, has_calls: bool) -> str:
    """The wire's word: one of its four, never null. A run that waits for a person ends as after its calls."""
    if reason is not None and reason in _CUT:
        return str(reason)
    return "tool_calls" if has_calls else "stop"


def audio_of(part: Any, context: Context) -> dict[str, Any] | None:
    """Return the `audio` object for an audio with inline bytes, None for any other part.

    An audio that no chat backend made is not stored: it expires at once.
    """
    if not isinstance(part, Media) or part.kind is not MediaKind.AUDIO or not isinstance(part.source, Inline):
        return None
    head = {"id": f"audio_{context.run_id}", "expires_at": int(context.created_at), "transcript": part.transcript or ""}
    return {**head, **{k: v for k, v in own(part.extras).items() if k != "streamed"}, "data": part.source.base64}


def image_of(part: Any) -> dict[str, Any] | None:
    """The entry of `images` for a picture, None for any other part and for one that only its backend can find."""
    if not isinstance(part, Media) or part.kind is not MediaKind.IMAGE or (url := url_of(part, "image/png")) is None:
        return None
    return {"type": "image_url", "image_url": {"url": url}}


def wants_details(extras: dict[str, Any], options: FrontOptions) -> bool:
    """Return whether reasoning is written as `reasoning_details`. Those of a chat backend pass unchanged."""
    return options.reasoning_field == "reasoning_details" and "id" not in extras
