"""About how many tokens a request or an answer holds, where a client wants a number and the backend has none.

A rule of thumb, not a tokenizer: it errs upwards by some tens of percent, since clients use it to stay below a limit.
"""

from __future__ import annotations

from bridge.model.parts import Data, Inline, Media, MediaKind, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from bridge.model.request import Request
from bridge.model.text import json_text

_PER_MESSAGE = 4
_PICTURE = 1600  # what the larger providers count at most for one picture
_BASE64_PER_TOKEN = 12  # base64 characters of a document per token of its content


def estimate_tokens(request: Request) -> int:
    """The input tokens that messages and tools of this request will about come to."""
    conversation = sum(_PER_MESSAGE + sum(map(_part, message.parts)) for message in request.messages)
    tools = sum(
        _PER_MESSAGE + _text(tool.name) + _text(tool.description or "") + _text(json_text(tool.parameters or {}))
        for tool in request.tools or ()
    )
    return conversation + tools


def _part(part: Part) -> int:
    match part:
        case Text() | Refusal():
            return _text(part.text)
        case Reasoning():
            return _text(part.text) + _text(part.redacted or "")
        case ToolCall():
            return _PER_MESSAGE + _text(part.name) + _text(part.arguments)
        case ToolResult():
            return _PER_MESSAGE + sum(map(_part, part.parts))
        case Data():
            return _text(json_text(part.value))
        case Media():
            return _media(part)


def _media(media: Media) -> int:
    if media.kind is MediaKind.IMAGE or not isinstance(media.source, Inline):
        return _PICTURE
    return max(_PICTURE, len(media.source.base64) // _BASE64_PER_TOKEN)


def _text(text: str) -> int:
    return 1 + quarter_tokens(text) // 4 if text else 0


def quarter_tokens(text: str) -> int:
    """Four characters of ASCII are about one token, any other character is about one by itself."""
    plain = len(text) if text.isascii() else sum(map(str.isascii, text))
    return 4 * len(text) - 3 * plain
