"""LangChain's content: a text, or a list of texts and blocks in the forms of its providers."""

from __future__ import annotations

from typing import Any

from bridge.dialects.langgraph.wire import Wire
from bridge.model import Data, FileRef, Inline, Media, MediaKind, Part, Source, Text, url_of
from bridge.model.jsontext import dict_of, text_of
from bridge.model.parts import mime_of, source_of
from bridge.toolkit.media import kind_of

CALLS = frozenset({
    "function_call", "input_json_delta", "invalid_tool_call", "tool_call", "tool_call_chunk", "tool_use",
})  # fmt: skip
"""Blocks of calls, which a message has apart from its content, too."""
_KINDS = {
    "image": MediaKind.IMAGE,
    "image_url": MediaKind.IMAGE,
    "audio": MediaKind.AUDIO,
    "input_audio": MediaKind.AUDIO,
    "video": MediaKind.VIDEO,
    "file": MediaKind.FILE,
    "media": MediaKind.FILE,
}


def blocks_of(content: Any) -> list[Wire]:
    """Return content as a list of blocks. A text stands for a block of text."""
    found = content if isinstance(content, list) else [content]
    texts = ({"type": "text", "text": each} if isinstance(each, str) else each for each in found)
    return [block for block in texts if isinstance(block, dict)]


def text_in(content: Any) -> str:
    """Return the text of content, without reasoning."""
    return "".join(text_of(block.get("text")) for block in blocks_of(content) if block.get("type") == "text")


def parts_of(content: Any) -> list[Part]:
    """Return the content of a tool's message as parts; blocks of other kinds are data."""
    return [part for block in blocks_of(content) if (part := _part(block)) is not None]


def _part(block: Wire) -> Part | None:
    if block.get("type") == "text":
        return Text(text) if (text := text_of(block.get("text"))) else None
    return medium_of(block) or Data(block)


def reasoning_in(block: Wire) -> str:
    """Return the text of a block of reasoning, in Anthropic's, OpenAI's or LangChain's own form."""
    summary = block.get("summary")
    entries = summary if isinstance(summary, list) else ()
    told = "".join(text_of(entry.get("text")) for entry in entries if isinstance(entry, dict))
    return text_of(block.get("thinking")) or text_of(block.get("reasoning")) or told


def medium_of(block: Wire) -> Media | None:
    """Return the medium of a block; None for a block of another kind, or without a source."""
    kind = _KINDS.get(text_of(block.get("type")))
    if kind is None:
        return None
    # LangChain's own form; before version 1 with `source_type`, `data` and `id`; else the provider's, in an object.
    inner = next((v for v in (block.get("source"), block.get(text_of(block.get("type")))) if isinstance(v, dict)), {})
    fields = {**block, **inner}
    mime = text_of(fields.get("mime_type")) or text_of(fields.get("media_type")) or None
    url = text_of(fields.get("url")) or text_of(block.get("image_url")) or text_of(fields.get("file_uri"))
    data = text_of(fields.get("base64")) or text_of(fields.get("data")) or text_of(fields.get("file_data"))
    file_id = text_of(fields.get("file_id")) or (text_of(fields.get("id")) if fields.get("source_type") == "id" else "")
    source: Source
    if data.startswith("data:") or (url and not data):
        source, named = source_of(data or url)
        mime = mime or named
    elif data:
        source = Inline(data)
    elif file_id:
        source = FileRef(file_id)
    else:
        return None
    if kind is MediaKind.FILE:
        kind = kind_of(mime)
    if mime is None and fields.get("format") and kind is MediaKind.AUDIO:
        mime = f"audio/{text_of(fields.get('format'))}"
    name = text_of(fields.get("filename")) or text_of(fields.get("name")) or None
    return Media(kind, source, mime, name, detail=text_of(fields.get("detail")) or None)


def block_of(media: Media) -> Wire:
    """Return the block of a medium: images in OpenAI's form, which all servers read, others in LangChain's own."""
    source = media.source
    if media.kind is MediaKind.IMAGE and not isinstance(source, FileRef):
        detail = {"detail": media.detail} if media.detail else {}
        return {"type": "image_url", "image_url": {"url": url_of(media, "image/png"), **detail}}
    mime, name = mime_of(media), media.filename
    fields: Wire = {"type": str(media.kind)}
    match source:
        case FileRef():
            fields["file_id"] = source.file_id
        case Inline():
            fields["base64"] = source.base64
        case _:
            fields["url"] = source.url
    fields.update({"mime_type": mime} if mime else {}, **({"filename": name} if name else {}))
    return fields


def object_in(value: Any, name: str) -> Wire:
    """Return the object under this name; an empty one for anything else."""
    return dict_of(dict_of(value).get(name))
