"""Names and conversions that both sides of the protocol share (docs/dialects/a2a.md).

There are two versions. In 1.0 enumerations are named `TASK_STATE_WORKING`, and a part and a result have a single field
that determines their kind. In 0.3 states are words, and objects have a `kind`. Objects of both versions are read,
whichever was requested; written objects are of the given version.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from bridge.errors import ErrorCode
from bridge.model import (
    Data,
    Extras,
    FileRef,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Part,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolResult,
    Url,
    mime_of,
    source_of,
)
from bridge.model.jsontext import arguments_of, dict_of, dumps, escape_line_breaks, text_of
from bridge.toolkit.check import SpelledNode, Spelling
from bridge.toolkit.media import DEFAULT_TYPES, kind_of
from bridge.toolkit.words import Meaning, meaning_of, plain

NAME: Final = "a2a"
Wire = dict[str, Any]

# ------------------------------------------------------------------ versions, addresses, headers


class Version(StrEnum):
    """A version of the protocol, as the header `A2A-Version` names it."""

    OLD = "0.3"
    NEW = "1.0"


VERSION_HEADER: Final = "a2a-version"
EXTENSIONS_HEADER: Final = "a2a-extensions"
OLD_EXTENSIONS_HEADER: Final = "x-a2a-extensions"
CARD_PATH: Final = "/.well-known/agent-card.json"
OLD_CARD_PATH: Final = "/.well-known/agent.json"
"""The address of the card for clients before 0.3, whose messages are those of 0.3."""
OLD_BASE: Final = "/v1"
"""The base of the addresses of 0.3 over HTTP+JSON."""
JSON_RPC: Final = "JSONRPC"
HTTP_JSON: Final = "HTTP+JSON"
JSON_TYPE: Final = "application/a2a+json"
LONGEST_ID: Final = 512
"""Characters of an id of a client: each event of a stream repeats them."""
ADK: Final = "https://google.github.io/adk-docs/a2a/a2a-extension/"
"""The extension of google-adk: tool calls, their results and thoughts are parts with metadata."""


class Method(StrEnum):
    """An operation, by its name in version 1.0."""

    SEND = "SendMessage"
    STREAM = "SendStreamingMessage"
    GET = "GetTask"
    LIST = "ListTasks"
    CANCEL = "CancelTask"
    SUBSCRIBE = "SubscribeToTask"
    SET_PUSH = "CreateTaskPushNotificationConfig"
    GET_PUSH = "GetTaskPushNotificationConfig"
    LIST_PUSH = "ListTaskPushNotificationConfigs"
    DELETE_PUSH = "DeleteTaskPushNotificationConfig"
    EXTENDED_CARD = "GetExtendedAgentCard"


OLD_METHODS: dict[str, Method] = {
    "message/send": Method.SEND,
    "message/stream": Method.STREAM,
    "tasks/get": Method.GET,
    "tasks/cancel": Method.CANCEL,
    "tasks/resubscribe": Method.SUBSCRIBE,
    "tasks/pushNotificationConfig/set": Method.SET_PUSH,
    "tasks/pushNotificationConfig/get": Method.GET_PUSH,
    "tasks/pushNotificationConfig/list": Method.LIST_PUSH,
    "tasks/pushNotificationConfig/delete": Method.DELETE_PUSH,
    "agent/getAuthenticatedExtendedCard": Method.EXTENDED_CARD,
}
"""The methods of version 0.3, which has none that lists tasks."""
METHODS: dict[str, Method] = {**{str(method): method for method in Method}, **OLD_METHODS}
"""The methods of both versions."""


def method_name(method: Method, version: Version) -> str:
    """Return what a version calls a method; its 1.0 name where 0.3 has none."""
    return method if version is Version.NEW else next((k for k, v in OLD_METHODS.items() if v is method), method)


# ------------------------------------------------------------------ states and roles


class State(StrEnum):
    """Return the state of a task in version 0.3."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"

    def said(self, version: Version) -> str:
        """Return the state as a version spells it."""
        return _NEW_STATES[self] if version is Version.NEW else str(self)


OVER = frozenset({State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED})
"""A task in one of these takes no message any more."""
WAITING = frozenset({State.INPUT_REQUIRED, State.AUTH_REQUIRED})
"""Return whether a task in this state continues with the next message."""

_NEW_STATES = {state: "TASK_STATE_" + state.replace("-", "_").upper() for state in State}
_STATES = {name: state for state in State for name in (_NEW_STATES[state], str(state))}


_WORDS: dict[str, State | None] = {
    **{state.replace("-", "_"): state for state in State},
    **dict.fromkeys(["pending", "queued", "running", "in_progress", "processing", "started", "paused"], State.WORKING),
    **dict.fromkeys(("", "unknown", "unspecified")),
}
_ENDS: dict[Meaning | None, State] = {
    FinishReason.STOP: State.COMPLETED,
    FinishReason.CANCELED: State.CANCELED,
    FinishReason.LENGTH: State.FAILED,
    FinishReason.CONTENT_FILTER: State.REJECTED,
}


def state_of(value: object) -> State | None:
    """Return the state that a word names, in the spelling of any version; None for `unknown` and for no state.

    A word that no version has is the state that it resembles: proto of 0.3 has `CANCELLED`, others `done` or `error`.
    """
    if not isinstance(value, str):
        return None
    known = _STATES.get(value)
    word = plain(value).removeprefix("task_state_") if known is None else ""
    if not word or word in _WORDS:
        return known or _WORDS.get(word)
    meaning = meaning_of(word)
    return State.FAILED if isinstance(meaning, ErrorCode) else _ENDS.get(meaning)


def is_unknown_state(value: object) -> bool:
    """Return whether this is a state that no version has, and that resembles none."""
    return isinstance(value, str) and state_of(value) is None and plain(value).removeprefix("task_state_") not in _WORDS


def role_of(value: object) -> str | None:
    """Return the role of a message in the model: user or assistant; None for an unknown one."""
    return _ROLES.get(value) if isinstance(value, str) else None


def role_said(role: str, version: Version) -> str:
    """Return the wire's role of a message: every role except the user is the agent."""
    word = "user" if role == "user" else "agent"
    return f"ROLE_{word.upper()}" if version is Version.NEW else word


_ROLES = {"ROLE_USER": "user", "user": "user", "ROLE_AGENT": "assistant", "agent": "assistant"}

# ------------------------------------------------------------------ metadata

ADK_TYPE, ADK_THOUGHT, ADK_SIGNATURE = "adk_type", "adk_thought", "adk_thought_signature"
DATA_COMPAT: Final = "data_part_compat"
"""The key of the metadata of a part whose data are no object, which 0.3 has no place for: they are its `value`."""
RESPONSE_COMPAT: Final = "response_compat"
"""The key of the metadata of a result that is no object: it is the `result` of the object in its place."""
ADK_LONG_RUNNING, ADK_USAGE, ADK_ERROR_CODE = "adk_is_long_running", "adk_usage_metadata", "adk_error_code"
FUNCTION_CALL, FUNCTION_RESPONSE = "function_call", "function_response"
USAGE, FINISH_REASON, CODE = "usage", "finishReason", "code"
"""Keys of the metadata of the last status of a run: `{input, output, total, cached, reasoning}`, why it ended, and the
code of its failure.
"""
INTERRUPTS: Final = "interrupts"
"""The key of the metadata of a question's message: a list of `{id, reason, payload, callId, call}`, absent fields left
out. `call` is `{name, args}`. An entry whose reason is `tool_result` waits for the result of its call.
"""
INTERRUPT_ID: Final = "interruptId"
"""The key of the metadata of a message, or of one of its parts, that answers one of several questions."""
KIND: Final = "kind"
"""The key of the metadata of a part whose kind of medium does not follow from its media type."""

# ------------------------------------------------------------------ fields

camel_keys: Final = Spelling()
"""Returns an object with camelCase names; what is in it stays as it is."""


class Spelled(SpelledNode):
    """An object of the schema: names may be camelCase or snake_case."""

    __slots__ = ()


def own(extras: Extras | None) -> Wire:
    """Return this dialect's extras of a part or an event; an empty dict if there are none."""
    return extras.get(NAME) or {} if extras else {}


def noted(values: Wire) -> Extras | None:
    """Return `extras` with these values for this dialect; None if there are none."""
    given = {name: value for name, value in values.items() if value not in (None, {}, "")}
    return {NAME: given} if given else None


def plain_numbers(value: Any) -> Any:
    """Return a JSON value with whole numbers in place of doubles: `3.0` is what Struct makes of `3`."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {name: plain_numbers(each) for name, each in value.items()}
    return [plain_numbers(each) for each in value] if isinstance(value, list) else value


def timestamp(seconds: float) -> str:
    """Return Unix seconds as the wire's time, with milliseconds and `Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def written(value: Any) -> bytes:
    """Return a value as JSON. Characters at which the Python client's reader ends a line are escaped."""
    return escape_line_breaks(dumps(value))


# ------------------------------------------------------------------ parts

CONTENT = ("text", "raw", "url", "data")
"""The fields of a part, one of which it has."""


def read_part(value: object) -> Part | None:
    """Return a part of either version; None for an invalid one.

    google-adk's metadata mark a tool call, its result or a thought. Other metadata, and the media type of a text, are
    extras.
    """
    if not isinstance(value, dict):
        return None
    part = camel_keys(value)
    metadata = dict_of(part.get("metadata"))
    if isinstance(text := part.get("text"), str):
        if metadata.get(ADK_THOUGHT) is True or metadata.get("type") == "thinking":
            signature = text_of(metadata.get(ADK_SIGNATURE)) or text_of(metadata.get("signature"))
            return Reasoning(text, signature or None)
        return Text(text, noted({"metadata": metadata, "mediaType": part.get("mediaType")}))
    if isinstance(file := part.get("file"), dict):
        file = camel_keys(file)
        part = {"raw": file.get("bytes"), "url": file.get("uri"), "mediaType": file.get("mimeType")} | {
            "filename": file.get("name")
        }
    if isinstance(raw := part.get("raw"), str):
        return _media(Inline(_standard(raw)), part, metadata)
    if isinstance(url := part.get("url"), str):
        source, mime = source_of(url)
        return _media(source, part if part.get("mediaType") else {**part, "mediaType": mime}, metadata)
    if "data" in part:
        return _data(plain_numbers(part["data"]), metadata)
    return None


def _standard(text: str) -> str:
    """Base64 in the standard alphabet and with its padding: ProtoJSON also reads the one for addresses, and without."""
    text = text.replace("-", "+").replace("_", "/") if "-" in text or "_" in text else text
    return text + "=" * (-len(text) % 4) if len(text) % 4 else text


def _media(source: Source, part: Wire, metadata: Wire) -> Media:
    mime, named = text_of(part.get("mediaType")), text_of(metadata.get(KIND))
    kind = MediaKind(named) if named in DEFAULT_TYPES else kind_of(mime)
    rest = {name: each for name, each in metadata.items() if name != KIND}
    return Media(kind, source, mime or None, text_of(part.get("filename")) or None, noted({"metadata": rest}))


def _data(value: Any, metadata: Wire) -> Part:
    kind, call_id = metadata.get(ADK_TYPE), text_of(value.get("id")) if isinstance(value, dict) else ""
    if kind == FUNCTION_CALL and call_id:
        return ToolCall(call_id, text_of(value.get("name")), arguments_of(value.get("args")))
    if kind == FUNCTION_RESPONSE and call_id:
        said = value.get("response")
        if metadata.get(RESPONSE_COMPAT) is True and isinstance(said, dict) and said.keys() == {"result"}:
            said = said["result"]
        parts: list[Part] = [Text(said) if isinstance(said, str) else Data(said)]
        return ToolResult(call_id, parts, text_of(value.get("name")) or None)
    if metadata.get(DATA_COMPAT) is True and isinstance(value, dict) and value.keys() == {"value"}:
        value, metadata = value["value"], {k: v for k, v in metadata.items() if k != DATA_COMPAT}
    return Data(value, noted({"metadata": metadata}))


def write_part(part: Text | Media | Data, version: Version) -> Wire | None:
    """Return a text, a medium or a value as a part; None for a file that only its backend has."""
    metadata = dict(dict_of(own(part.extras).get("metadata")))
    if isinstance(part, Media):
        if isinstance(part.source, FileRef):
            return None
        mime = mime_of(part)
        if kind_of(mime) is not part.kind:
            metadata[KIND] = str(part.kind)
        return _file(part.source, mime, part.filename, metadata, version)
    if isinstance(part, Text):
        media_type = own(part.extras).get("mediaType")
        wire: Wire = {"text": part.text, **({"mediaType": media_type} if media_type else {})}
    elif version is Version.OLD and not isinstance(part.value, dict):
        wire, metadata = {"data": {"value": part.value}}, {**metadata, DATA_COMPAT: True}
    else:
        wire = {"data": part.value}
    return part_said(wire, metadata, version)


def part_said(wire: Wire, metadata: Wire, version: Version) -> Wire:
    """Return a part of text or data in this version, with metadata if there are any."""
    if version is Version.OLD:
        wire = {"kind": "text" if "text" in wire else "data", **{k: v for k, v in wire.items() if k != "mediaType"}}
    return {**wire, "metadata": metadata} if metadata else wire


def _file(source: Url | Inline, mime: str | None, name: str | None, metadata: Wire, version: Version) -> Wire:
    if version is Version.NEW:
        content: Wire = {"url": source.url} if isinstance(source, Url) else {"raw": source.base64}
        wire = {**content, "mediaType": mime, "filename": name}
    else:
        content = {"uri": source.url} if isinstance(source, Url) else {"bytes": source.base64}
        file = {**content, "mimeType": mime, "name": name}
        wire = {"kind": "file", "file": {key: each for key, each in file.items() if each is not None}}
    return {key: each for key, each in {**wire, "metadata": metadata or None}.items() if each is not None}


# ------------------------------------------------------------------ google-adk's parts


def call_part(call_id: str, name: str, args: Any, version: Version, *, waits: bool = False) -> Wire:
    """Return a tool call in google-adk's form; with `waits`, the caller has to send its result."""
    metadata = {ADK_TYPE: FUNCTION_CALL, **({ADK_LONG_RUNNING: True} if waits else {})}
    return part_said({"data": {"id": call_id, "name": name, "args": args}}, metadata, version)


def result_part(call_id: str, name: str | None, response: Any, version: Version) -> Wire:
    """Return the result of a tool call in google-adk's form: other values than objects are its `result`."""
    metadata: Wire = {ADK_TYPE: FUNCTION_RESPONSE}
    if not isinstance(response, dict):
        response, metadata = {"result": response}, {**metadata, RESPONSE_COMPAT: True}
    return part_said({"data": {"id": call_id, "name": name or "", "response": response}}, metadata, version)


def thought_part(text: str, signature: str | None, version: Version) -> Wire:
    """Return a thought as google-adk and fasta2a mark it."""
    metadata: Wire = {ADK_THOUGHT: True, "type": "thinking"}
    if signature:
        metadata |= {ADK_SIGNATURE: signature, "signature": signature}
    return part_said({"text": text}, metadata, version)


# ------------------------------------------------------------------ objects around parts


def message(
    message_id: str,
    role: str,
    parts: list[Wire],
    version: Version,
    *,
    context_id: str | None = None,
    task_id: str | None = None,
    metadata: Wire | None = None,
) -> Wire:
    """Return a message; `role` is that of the model."""
    wire: Wire = {"kind": "message"} if version is Version.OLD else {}
    wire |= {"messageId": message_id, "role": role_said(role, version), "parts": parts}
    given = {"contextId": context_id, "taskId": task_id, "metadata": metadata or None}
    return wire | {name: each for name, each in given.items() if each is not None}
