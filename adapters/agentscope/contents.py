"""Contents <-> parts: what stands inside messages, the same in requests and answers (sections 6-8).

Everything that reads takes any JSON value and gives None or a default for what makes no sense; requests are
checked before they come here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bridge.codec.jsontext import loads
from bridge.model import (
    Data,
    FileRef,
    Inline,
    Media,
    MediaKind,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Source,
    Text,
    ToolCall,
    ToolResult,
    as_text,
    json_text,
    result_text,
    source_of,
    url_of,
)

NAME: Final = "agentscope"

ORIGINS: dict[str, Origin] = {
    "plugin_call": Origin.PLUGIN,
    "function_call": Origin.FUNCTION,
    "component_call": Origin.COMPONENT,
    "mcp_call": Origin.MCP,
}
CALLS = frozenset(ORIGINS)
OUTPUTS = frozenset(f"{name}_output" for name in ORIGINS)
CONTENT_TYPES = frozenset({"text", "refusal", "data", "image", "audio", "video", "file"})
_ORIGIN_TYPES = {origin: name for name, origin in ORIGINS.items()}
_OWN_METADATA = frozenset({"origin", "signature", "redacted", "is_error", "finish_reason", "interrupt"})


def own(extras: dict[str, dict[str, Any]] | None) -> dict[str, Any]:
    """What only this dialect knows of an event or a part."""
    return (extras or {}).get(NAME) or {}


def foreign_metadata(metadata: object) -> dict[str, Any]:
    """The metadata of a message without the keys that this codec reads and writes itself."""
    return {k: v for k, v in metadata.items() if k not in _OWN_METADATA} if isinstance(metadata, dict) else {}


def metadata_note(metadata: object) -> dict[str, Any]:
    """Extras that bring the metadata of a message to a frontend of the same dialect."""
    rest = foreign_metadata(metadata)
    return {"metadata": rest} if rest else {}


# ------------------------------------------------------------------ text, data, media: writing


def content_of(part: Part, *, request: bool = False) -> tuple[str, dict[str, Any]]:
    """Content type and payload fields of a part that is neither call, result nor reasoning."""
    match part:
        case Text():
            return "text", {"text": part.text}
        case Refusal():
            return "refusal", {"refusal": part.text}
        case Data(value=dict() as value):
            return "data", {"data": value}
        case Data(value=value):
            # The schema knows objects only; `wrapped` tells our own reader that this one is not the value itself.
            return "data", {"data": {"value": value}, "wrapped": True}
        case Media():
            return str(part.kind), _media(part, request)
        case _:
            return "text", {"text": as_text(part)}


def _media(media: Media, request: bool) -> dict[str, Any]:
    reference = {"file_id": media.source.file_id} if isinstance(media.source, FileRef) else {}
    detail = ((media.extras or {}).get("openai-chat") or {}).get("detail")
    extra = {"detail": detail} if detail is not None else {}
    match media.kind:
        case MediaKind.IMAGE:
            return {"image_url": url_of(media), **reference, **extra}
        case MediaKind.VIDEO:
            return {"video_url": url_of(media), **reference}
        case MediaKind.AUDIO:
            return {**_audio(media), **reference}
        case MediaKind.FILE:
            url = url_of(media)
            # Table 18 names file_data, but the real agent looks at file_url only: a request says both.
            data = url if request and isinstance(media.source, Inline) else None
            return {"file_url": url, "file_id": None, "filename": media.filename, "file_data": data, **reference}


def _audio(media: Media) -> dict[str, Any]:
    """Bare base64 with a short format where that says everything, otherwise one URL.

    The agent makes `audio/<format>` of a format, so a full media type would be doubled there.
    """
    if isinstance(media.source, Inline) and media.mime:
        short = "mp3" if media.mime == "audio/mpeg" else media.mime.removeprefix("audio/")
        if "/" not in short and _audio_type(short) == media.mime:
            return {"data": media.source.base64, "format": short}
    return {"data": url_of(media), "format": None if isinstance(media.source, Inline) else media.mime}


# ------------------------------------------------------------------ text, data, media: reading


def part_of(content: dict[str, Any]) -> Part | None:
    """The part of a whole content; None when its payload is absent or no content type fits."""
    reader = _READERS.get(text_of(content.get("type")).lower() or "text")
    return reader(content) if reader else None


def _read_data(content: dict[str, Any]) -> Part | None:
    value = content.get("data")
    if content.get("wrapped") is True and isinstance(value, dict):
        value = value.get("value")
    elif value is None:
        return None
    return Data(value)


def _read_image(content: dict[str, Any]) -> Part | None:
    detail = content.get("detail")
    extras = {"openai-chat": {"detail": detail}} if isinstance(detail, str) else None
    return _medium(MediaKind.IMAGE, content.get("image_url"), content, extras)


def _read_video(content: dict[str, Any]) -> Part | None:
    return _medium(MediaKind.VIDEO, content.get("video_url"), content)


def _read_audio(content: dict[str, Any]) -> Part | None:
    data, mime = text_of(content.get("data")), _audio_type(text_of(content.get("format")))
    if not data:
        return _medium(MediaKind.AUDIO, None, content)
    if _is_url(data):
        source, said = source_of(data)
        return Media(MediaKind.AUDIO, source, said or mime)
    return Media(MediaKind.AUDIO, Inline(data), mime)


def _read_file(content: dict[str, Any]) -> Part | None:
    data = text_of(content.get("file_data"))
    if data and not _is_url(data):
        return Media(MediaKind.FILE, Inline(data), None, _filename(content))
    return _medium(MediaKind.FILE, data or content.get("file_url"), content)


def _medium(
    kind: MediaKind, url: object, content: dict[str, Any], extras: dict[str, dict[str, Any]] | None = None
) -> Media | None:
    text, file_id = text_of(url), text_of(content.get("file_id"))
    source: Source
    if text:
        source, mime = source_of(text)
    elif file_id:
        source, mime = FileRef(file_id), None
    else:
        return None
    return Media(kind, source, mime, _filename(content), extras)


def _is_url(data: str) -> bool:
    """Whether a field that may hold bare base64 holds an address."""
    return data[:5].lower() == "data:" or "://" in data


def _filename(content: dict[str, Any]) -> str | None:
    """The web frontend writes `file_name`, the schema `filename` (section 3)."""
    return text_of(content.get("filename")) or text_of(content.get("file_name")) or None


def _audio_type(name: str) -> str | None:
    if not name or "/" in name:
        return name or None
    return "audio/mpeg" if name == "mp3" else f"audio/{name}"


def text_of(value: object) -> str:
    """The value when it is a string, otherwise an empty one."""
    return value if isinstance(value, str) else ""


_READERS: dict[str, Callable[[dict[str, Any]], Part | None]] = {
    "text": lambda content: Text(text_of(content.get("text"))),
    "refusal": lambda content: Refusal(text_of(content.get("refusal"))),
    "data": _read_data,
    "image": _read_image,
    "video": _read_video,
    "audio": _read_audio,
    "file": _read_file,
}


# ------------------------------------------------------------------ calls and their outputs


def call_type(origin: Origin, extras: dict[str, dict[str, Any]] | None, ordinary: str) -> str:
    """The message type of a call: what an AgentScope backend called it, else by origin, else the setting."""
    said = own(extras).get("type")
    if isinstance(said, str) and said in CALLS:
        return said
    return ordinary if origin in (Origin.FUNCTION, Origin.PLUGIN) else _ORIGIN_TYPES[origin]


def origin_note(origin: Origin, kind: str) -> dict[str, Any]:
    """Metadata that keeps an origin which the message type does not tell (a function written as plugin_call)."""
    return {} if ORIGINS[kind] is origin else {"origin": str(origin)}


def origin_of(kind: str, metadata: object) -> Origin:
    noted = metadata.get("origin") if isinstance(metadata, dict) else None
    return next((o for o in Origin if o == noted), ORIGINS[kind])


def call_data(kind: str, call_id: str, name: str, arguments: str, server_label: str | None) -> dict[str, Any]:
    """`data` of a call, keys in the order of section 8."""
    if kind == "mcp_call":
        return {"call_id": call_id, "arguments": arguments, "name": name, "server_label": server_label}
    return {"call_id": call_id, "name": name, "arguments": arguments}


def arguments_of(value: object) -> str:
    """The arguments as the string they should be; some senders put the object itself."""
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)


def output_of(parts: list[Part], extras: dict[str, dict[str, Any]] | None) -> str:
    """The output string: byte-equal where an AgentScope peer wrote one, else the parts as text."""
    raw = own(extras).get("output")
    return raw if isinstance(raw, str) else result_text(parts)


def output_parts(raw: str) -> list[Part]:
    """The parts of an output string: texts joined when it is a JSON list of text blocks (section 8)."""
    joined = _joined(raw) if raw.lstrip()[:1] == "[" else None
    return [Text(raw if joined is None else joined)]


def _joined(raw: str) -> str | None:
    try:
        blocks = loads(raw.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None
    if not isinstance(blocks, list) or not blocks:
        return None
    texts = [b.get("text") for b in blocks if isinstance(b, dict) and b.get("type") == "text"]
    known = [t for t in texts if isinstance(t, str)]
    return "".join(known) if len(known) == len(blocks) else None


def call_of(kind: str, data: dict[str, Any], metadata: object, call_id: str) -> ToolCall:
    """The call that a finished `data` content describes."""
    return ToolCall(
        call_id,
        text_of(data.get("name")),
        arguments_of(data.get("arguments")),
        origin_of(kind, metadata),
        text_of(data.get("server_label")) or None,
        {NAME: {"type": kind}},
    )


def result_of(kind: str, data: dict[str, Any], metadata: object, call_id: str) -> ToolResult:
    """The result that a finished `data` content describes; the string itself is kept for the same dialect."""
    raw = arguments_of(data.get("output"))
    failed = isinstance(metadata, dict) and metadata.get("is_error") is True
    extras = {NAME: {"type": kind, "output": raw}}
    return ToolResult(call_id, output_parts(raw), text_of(data.get("name")) or None, failed, extras)


def reasoning_of(text: str, metadata: object) -> Reasoning:
    said = metadata if isinstance(metadata, dict) else {}
    return Reasoning(text, text_of(said.get("signature")) or None, text_of(said.get("redacted")) or None)


def reasoning_note(signature: str | None, redacted: str | None) -> dict[str, Any]:
    """Metadata that brings opaque thinking back to the model that made it."""
    note = {"signature": signature, "redacted": redacted}
    return {k: v for k, v in note.items() if v is not None}
