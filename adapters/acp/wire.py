"""The vocabulary of the protocol, which both directions share: words, numbers of errors, content blocks and parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Data,
    Extras,
    FileRef,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Part,
    Text,
    Url,
    as_text,
    json_text,
    mime_of,
)
from bridge.model.jsontext import dict_of, dicts_of, text_of
from bridge.toolkit.check import Node
from bridge.toolkit.error_table import ErrorTable
from bridge.toolkit.media import DEFAULT_TYPES, kind_of

NAME = "acp"
VERSION = 1
"""The version of the protocol that the bridge speaks. Versions are whole numbers, and 2 is a draft."""

Wire = dict[str, Any]

# ------------------------------------------------------------------ how a turn ends

STOP_REASONS: Mapping[FinishReason, str] = {
    FinishReason.STOP: "end_turn",
    FinishReason.TOOL_CALLS: "end_turn",
    FinishReason.INTERRUPTED: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.CONTENT_FILTER: "refusal",
    FinishReason.CANCELED: "cancelled",
}
"""The stop reason of each finish reason. Clients refuse any other word."""

FINISH_REASONS: Mapping[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "max_turn_requests": FinishReason.LENGTH,
    "refusal": FinishReason.CONTENT_FILTER,
    "cancelled": FinishReason.CANCELED,
}
"""The finish reason of each stop reason."""

# ------------------------------------------------------------------ errors

AUTH_REQUIRED = -32000
"""The client has to authenticate before it may go on."""
NOT_FOUND = -32002
"""The session, or another resource, does not exist."""

INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CANCELLED = -32800

RPC_CODES: Mapping[ErrorCode, int] = {
    ErrorCode.UNAUTHORIZED: AUTH_REQUIRED,
    ErrorCode.FORBIDDEN: AUTH_REQUIRED,
    ErrorCode.NOT_FOUND: NOT_FOUND,
    ErrorCode.INVALID_REQUEST: INVALID_PARAMS,
    ErrorCode.UNSUPPORTED: INVALID_PARAMS,
    ErrorCode.TOO_LARGE: INVALID_PARAMS,
    ErrorCode.CONFLICT: INVALID_REQUEST,
    ErrorCode.CANCELED: CANCELLED,
}
"""The number of each kind of failure that is not `INTERNAL_ERROR`."""

ERROR_CODES: Mapping[int, ErrorCode] = {
    AUTH_REQUIRED: ErrorCode.BACKEND_AUTH,
    NOT_FOUND: ErrorCode.NOT_FOUND,
    CANCELLED: ErrorCode.CANCELED,
}
"""What the numbers of an agent mean. Agents use all others for whatever fails."""

ERRORS = ErrorTable(plain=True, inner=True)


def rpc_code(failure: Failure) -> int:
    """Return the number of an error for a client."""
    return RPC_CODES.get(failure.code, INTERNAL_ERROR)


# ------------------------------------------------------------------ tool calls

PENDING, IN_PROGRESS, COMPLETED, FAILED = "pending", "in_progress", "completed", "failed"
"""The states of a tool call."""

_KINDS: Mapping[str, Sequence[str]] = {
    "read": ("read", "cat", "view"),
    "edit": ("edit", "write", "patch", "replace", "insert"),
    "delete": ("delete", "remove", "rm", "unlink"),
    "move": ("move", "rename", "mv"),
    "search": ("search", "find", "grep", "glob", "query", "lookup"),
    "execute": ("execute", "exec", "run", "bash", "shell", "terminal", "command", "python"),
    "think": ("think", "plan", "reason"),
    "fetch": ("fetch", "download", "browse", "http", "curl"),
}
_OF_FILES: Mapping[str, Sequence[str]] = {
    "read": ("get", "open", "load", "list", "ls"),
    "edit": ("create", "update", "save", "make"),
}
"""Words that say a kind only of files: `get_file`, but not `get_weather`."""
_FILES = frozenset({"file", "files", "folder", "folders", "dir", "directory", "directories", "path", "paths"})
KINDS = frozenset({*_KINDS, "switch_mode", "other"})
"""The kinds of tool calls, by which editors choose a symbol."""


def _by_word(*tables: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    return {word: kind for table in tables for kind, words in table.items() for word in words}


_KIND_OF, _KIND_OF_FILES = _by_word(_KINDS), _by_word(_KINDS, _OF_FILES)
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def kind_of_tool(name: str) -> str:
    """Return the kind of a tool by the first word of its name that says one; else `other`."""
    words = [found[0].lower() for found in _PIECES.finditer(name[:200])]
    known = _KIND_OF if _FILES.isdisjoint(words) else _KIND_OF_FILES
    return next((known[word] for word in words if word in known), "other")


# ------------------------------------------------------------------ permissions

ALLOW_ONCE, ALLOW_ALWAYS, REJECT_ONCE, REJECT_ALWAYS = "allow_once", "allow_always", "reject_once", "reject_always"
ASKED = "dialectBridge"
"""The key in `_meta` of what only another bridge reads: the payload, the reason and the call of a question that the
bridge was asked; and `isEarlier`, of the result of a call that an earlier prompt has told."""
OPTION_KINDS = frozenset({ALLOW_ONCE, ALLOW_ALWAYS, REJECT_ONCE, REJECT_ALWAYS})
"""The kinds of options of a permission. They are hints: the answer names an option by its id."""

NO_CALL, EARLIER_CALL = "question", "earlier"
"""Values of `_meta.dialectBridge.call`: a call that stands for a question, and one of an earlier run."""

# ------------------------------------------------------------------ extras


def own(extras: Extras | None) -> Wire:
    """Return this dialect's extras of a part or an event; an empty dict if there are none."""
    return extras.get(NAME) or {} if extras else {}


def noted(values: Mapping[str, Any]) -> Extras | None:
    """Return `extras` with these values for this dialect; None if there are none."""
    given = {name: value for name, value in values.items() if value is not None}
    return {NAME: given} if given else None


# ------------------------------------------------------------------ content blocks -> parts

BLOCKS = ("text", "image", "audio", "resource_link", "resource")
"""The types of content blocks."""

_NOTES = ("annotations", "_meta")


def read_block(node: Node) -> Part:
    """Return a content block of a client as a part. Raises `RequestError`, which names its place.

    A link becomes a text, since the bridge reads no file and many backends cannot either. The text of a resource
    follows its address as a fenced block, so that no backend takes it for the client's own words.
    """
    kind = node.need_one_of("type", BLOCKS)
    if kind == "text":
        return Text(node.need_string("text"), _notes(node.value))
    if kind == "resource_link":
        uri, name = node.need_string("uri"), node.need_string("name")
        return Text(link_text(name, uri), noted({"link": {k: v for k, v in node.value.items() if k != "type"}}))
    if kind == "resource":
        inner = node.need_object("resource")
        uri, mime = inner.need_string("uri"), inner.string("mimeType")
        if inner.get("text") is None:
            return media_of(inner.need_string("blob"), mime, uri)
        return Text(fenced(uri, inner.need_string("text")), noted({"resource": inner.value}))
    return media_of(node.need_string("data"), node.need_string("mimeType"), node.string("uri"), MediaKind(kind))


def part_of(block: object) -> Part | None:
    """Return a content block of an agent as a part, whatever is wrong with it; None for what is none.

    A link is a medium by its address. An empty text is a part, too.
    """
    wire = dict_of(block)
    match wire.get("type"):
        case "text":
            return Text(text_of(wire.get("text")), _notes(wire))
        case "image" | "audio" as kind:
            data = text_of(wire.get("data"))
            mime, uri = _known(wire.get("mimeType")), text_of(wire.get("uri")) or None
            if not data and uri:
                return Media(MediaKind(kind), Url(uri), mime)
            return media_of(data, mime, uri, MediaKind(kind)) if data else None
        case "resource_link":
            uri, name = text_of(wire.get("uri")), text_of(wire.get("name"))
            mime = text_of(wire.get("mimeType")) or None
            source = FileRef(unquote(uri.removeprefix(FILE_ID))) if uri.startswith(FILE_ID) else Url(uri)
            named = name if name != _name_in(uri) else ""  # that is how a link without a name is written
            return Media(kind_of(mime), source, mime, named or None) if uri else None
        case "resource":
            inner = dict_of(wire.get("resource"))
            uri, mime = text_of(inner.get("uri")), _known(inner.get("mimeType"))
            if blob := text_of(inner.get("blob")):
                return media_of(blob, mime, uri)
            text = text_of(inner.get("text"))
            return Text(fenced(uri, text) if uri else text) if text else None
    return None


def _known(mime: object) -> str | None:
    """Return a media type, unless it says that it is unknown."""
    return text_of(mime) if mime != DEFAULT_TYPES[MediaKind.FILE] and text_of(mime) else None


def parts_of(blocks: Iterable[object]) -> list[Part]:
    """Return the content blocks of an agent as parts, without those that are none."""
    return [part for block in blocks if (part := part_of(block)) is not None]


def media_of(data: str, mime: str | None, uri: str | None = None, kind: MediaKind | None = None) -> Media:
    """Return bytes as a medium. Its name is the last piece of its address."""
    name = (uri or "").partition("?")[0].rpartition("/")[2]
    return Media(kind or kind_of(mime), Inline(data), mime, name or None, noted({"uri": uri}))


def link_text(name: str, uri: str) -> str:
    """Return a link as Markdown."""
    return f"[{name}]({uri})"


_FENCES = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)


def fenced(uri: str, text: str) -> str:
    """Return the text of a resource after its address, within a fence that it does not contain."""
    fence = "`" * (1 + max((len(found[1]) for found in _FENCES.finditer(text)), default=2))
    end = "" if text.endswith("\n") else "\n"
    return f"{uri}\n{fence}\n{text}{end}{fence}"


def _notes(wire: Mapping[str, Any]) -> Extras | None:
    return noted({name: wire.get(name) for name in _NOTES})


# ------------------------------------------------------------------ parts -> content blocks


FILE_ID = "file-id:"
"""Before the id of a file that only the backend of another bridge knows, in the address of a link."""


def text_block(text: str) -> Wire:
    """Return a content block with a text."""
    return {"type": "text", "text": text}


def write_block(part: Part) -> Wire:
    """Return a part as a content block: texts, pictures and sounds as such, other media as resources, data as JSON."""
    match part:
        case Text() if noted_link := dict_of(own(part.extras).get("link")):
            return {"type": "resource_link", **noted_link}
        case Media(source=Inline(base64=data)):
            return _media_block(part, data)
        case Media(source=FileRef(file_id=file_id)):
            return _link(part, FILE_ID + quote(file_id, safe=""))
        case Media(source=Url(url=url)):
            return _link(part, url)
        case Data():
            return text_block(json_text(part.value))
    return text_block(as_text(part))


def _link(media: Media, uri: str) -> Wire:
    link: Wire = {"type": "resource_link", "uri": uri, "name": media.filename or _name_in(uri)}
    # Nothing else tells the kind of a medium.
    mime = mime_of(media) or (DEFAULT_TYPES[media.kind] if media.kind is not MediaKind.FILE else None)
    return {**link, "mimeType": mime} if mime else link


def _media_block(media: Media, data: str) -> Wire:
    mime = mime_of(media)
    uri = text_of(own(media.extras).get("uri"))
    if media.kind in (MediaKind.IMAGE, MediaKind.AUDIO):
        wire: Wire = {"type": str(media.kind), "data": data, "mimeType": mime or DEFAULT_TYPES[MediaKind.FILE]}
        return {**wire, "uri": uri} if uri and media.kind is MediaKind.IMAGE else wire
    mime = mime or DEFAULT_TYPES[media.kind]  # nothing else tells its kind
    # The address is required and names what has none here; its scheme is one that nobody opens.
    uri = uri or f"attachment:{quote(media.filename or str(media.kind))}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "blob": data}}


def _name_in(url: str) -> str:
    return url.partition("?")[0].rstrip("/").rpartition("/")[2] or url


# ------------------------------------------------------------------ content of tool calls


def tool_content(parts: Iterable[Part]) -> list[Wire]:
    """Return the parts of a tool's result as the content of its call. Texts are blocks of their own."""
    content: list[Wire] = []
    for part in parts:
        if isinstance(part, Data) and (diff := dict_of(part.value)).keys() == _DIFF:
            content.append({"type": "diff", **diff})
        elif not _is_blank(block := write_block(part)):
            content.append({"type": "content", "content": block})
    return content


_DIFF = frozenset({"path", "oldText", "newText"})
"""The fields of a diff as `diffs_in` returns it."""


def _is_blank(block: Wire) -> bool:
    return block["type"] == "text" and not block["text"]


def diffs_in(content: object) -> list[Wire]:
    """Return the diffs in the content of a tool call: `path`, `oldText` (None for a new file) and `newText`."""
    return [
        {"path": text_of(each.get("path")), "oldText": each.get("oldText"), "newText": text_of(each.get("newText"))}
        for each in dicts_of(content)
        if each.get("type") == "diff"
    ]


def content_of_agent(content: object) -> list[Wire]:
    """Return the content of an agent's tool call for another client: its blocks and diffs. Terminals are the agent's
    own, and what is neither would be refused.
    """
    return [
        item
        for item in dicts_of(content)
        if (item.get("type") == "content" and dict_of(item.get("content")).get("type") in BLOCKS)
        or (item.get("type") == "diff" and isinstance(item.get("path"), str) and isinstance(item.get("newText"), str))
    ]


def blocks_in(content: object) -> list[Any]:
    """Return the content blocks in the content of a tool call."""
    return [each.get("content") for each in dicts_of(content) if each.get("type") == "content"]
