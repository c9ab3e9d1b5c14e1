"""Messages of clients -> requests."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from bridge.contract import Context, QueryParameter, WireRequest
from bridge.dialects.a2a import write_errors
from bridge.dialects.a2a.call import Call, read_call
from bridge.dialects.a2a.wire import (
    ADK,
    CONTENT,
    INTERRUPT_ID,
    LONGEST_ID,
    NAME,
    Method,
    Spelled,
    Version,
    own,
    read_part,
    role_of,
)
from bridge.dialects.a2a.write_errors import refused
from bridge.errors import RequestError, shortened
from bridge.model import (
    Data,
    Extras,
    HistoryMode,
    Inline,
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    Resume,
    Source,
    Text,
    ToolCall,
    ToolResult,
    Url,
)
from bridge.model.jsontext import dict_of, text_of
from bridge.toolkit import Node
from bridge.toolkit.check import given_number, wrong

HISTORY = QueryParameter("historyLength", "maximum number of messages of the history", type="integer", minimum=0)
_BASE64 = re.compile(r"[A-Za-z0-9+/\-_]*={0,2}")
NOTES = "notes"
"""The key of what only answers to this client depend on."""


class Notes(NamedTuple):
    """What an answer depends on beside the run. `task` is the task that the message continues."""

    rest: bool = False
    id: Any = None
    version: Version = Version.NEW
    task: str | None = None
    message: str = ""
    context: str | None = None
    adk: bool = False
    history: int | None = None
    old_rest: bool = False
    """True for HTTP+JSON of 0.3."""
    data: bool = True
    """False if the client named the media types that it takes, and JSON is none of them."""

    @property
    def written_in(self) -> Version:
        """The version whose objects the answer is made of: those of 1.0 are converted for HTTP+JSON of 0.3."""
        return Version.NEW if self.old_rest else self.version


def notes_of(request: Request | None) -> Notes:
    """Return the notes that `decode_request` made; those of version 1.0 over JSON-RPC without it."""
    noted = own(request.extras).get(NOTES) if request is not None else None
    return Notes(**{**noted, "version": Version(noted["version"])}) if noted else Notes()


def reader_of(call: Call) -> Notes:
    """Return the notes of a call that starts no run."""
    return Notes(call.head.rest, call.head.id, call.version, old_rest=call.head.old_rest)


def decode_request(wire: WireRequest, context: Context) -> Request:
    """Return the run that a message asks for."""
    call = read_call(wire, context)
    if call.method not in (Method.SEND, Method.STREAM):
        raise refused(write_errors.UNSUPPORTED, f"{call.method} starts no run.", "method")
    params = call.params
    message = params.need_object("message")
    configuration = params.object("configuration") or Spelled({})
    modes = _strings(configuration, "acceptedOutputModes")
    notes = Notes(
        call.head.rest,
        call.head.id,
        call.version,
        message.string("taskId") or None,
        message.string("messageId") or "",
        _id(message, "contextId") or None,
        ADK in (*call.extensions, *_strings(message, "extensions")),
        given_number(configuration, HISTORY),
        call.head.old_rest,
        not modes or any(mode in ("*/*", "application/*", "application/json") for mode in modes),
    )
    extras: dict[str, Any] = {
        NOTES: notes._asdict(),
        "acceptedOutputModes": modes,
        "referenceTaskIds": _strings(message, "referenceTaskIds"),
        "tenant": params.string("tenant"),
    }
    request = _said(message, call, notes)
    request.thread_id = notes.context or context.make_id("context")
    request.stream = call.method is Method.STREAM
    request.history = HistoryMode.DELTA
    metadata = params.object("metadata")
    request.metadata = dict(metadata.value) if metadata is not None else {}
    kept: Extras = {NAME: {name: value for name, value in extras.items() if value}}
    request.extras = kept
    return request


def _said(message: Spelled, call: Call, notes: Notes) -> Request:
    """The message as one of the user, or as the answer to what its task waits for."""
    message.need_string("messageId")
    message_id = _id(message, "messageId")
    if not message_id:
        wrong(message.at("messageId"), "a non-empty string", message_id)
    if role_of(message.get("role")) != "user":
        word = "user" if notes.written_in is Version.OLD else "ROLE_USER"
        wrong(message.at("role"), word, message.get("role"), missing="role" not in message.value)
    parts = _parts(message, notes)
    noted = message.object("metadata")
    metadata = dict(noted.value) if noted is not None else {}
    results = [(part, place) for part, place in parts if isinstance(part, ToolResult)]
    rest = [(part, place) for part, place in parts if not isinstance(part, ToolResult)]
    messages = [Message("tool", [part], places=(message.path, place)) for part, place in results]
    places = (message.path, *(place for _, place in rest))
    said = Message("user", [part for part, _ in rest], message_id, metadata=metadata, places=places)
    if notes.task is None:
        return Request([*messages, *([said] if rest else [])])
    answers: dict[str, list[Part]] = {}
    for part, _ in rest:
        if (asked := _named_in(part)) and not isinstance(part, Media):
            answers.setdefault(asked, []).append(part)
    if answers:
        others = [(part, place) for part, place in rest if isinstance(part, Media) or not _named_in(part)]
        said.parts, said.places = [part for part, _ in others], (message.path, *(place for _, place in others))
        resume = [Resume(asked, "resolved", _payload(parts), place=message.path) for asked, parts in answers.items()]
        return Request([*messages, *([said] if others else [])], resume=resume)
    if results:
        return Request([*messages, *([said] if rest else [])])
    named = text_of(metadata.get(INTERRUPT_ID))
    if named and len(said.parts) > 1:
        # How another bridge answers: the answer, then what else is said.
        answer = Resume(named, "resolved", _payload(said.parts[:1]), place=message.path)
        said.parts, said.places = said.parts[1:], (said.places[0], *said.places[2:])
        return Request([said], resume=[answer])
    answer = Resume(named, "resolved", _payload(said.parts), place=message.path)
    has_media = any(isinstance(part, Media) for part in said.parts)
    return Request([said] if has_media else [], resume=[answer])


def _named_in(part: Part) -> str:
    """Return the question that a part of a message answers; "" if it names none."""
    return text_of(dict_of(own(part.extras).get("metadata")).get(INTERRUPT_ID))


def _payload(parts: list[Part]) -> Any:
    """What a person answered: the one value that was sent, else the text."""
    values = [part.value for part in parts if isinstance(part, Data)]
    return values[0] if len(values) == 1 else "".join(part.text for part in parts if isinstance(part, Text))


def _parts(message: Node, notes: Notes) -> list[tuple[Part, str]]:
    """The parts, each with its place. Raises `RequestError` for one that is none."""
    values = message.need_array("parts")
    if not values:
        wrong(message.at("parts"), "at least one part", values)
    found = []
    for index, value in enumerate(values):
        place = f"{message.at('parts')}[{index}]"
        part = read_part(value)
        fields = type(message).of(value, place) if part is not None else None
        said = [name for name in CONTENT if fields is not None and fields.get(name) is not None]
        if part is None or fields is None or (len(said) > 1 and "kind" not in value):
            words = "text, raw, url and data" if notes.version is Version.NEW else "text, file and data"
            wrong(place, f"a part with one of {words}", value)
        for name in ("mediaType", "filename"):
            fields.string(name)
        fields.object("metadata")
        if isinstance(part, Media):
            is_new = notes.version is Version.NEW
            _check_source(part.source, fields.at("raw" if is_new else "file"), fields.at("url" if is_new else "file"))
        found.append((_of_user(part, value, notes), place))
    return found


def _check_source(source: Source, content: str, address: str) -> None:
    """Raise `RequestError` for inline content that is not base64, and for an empty URL; the others are their places."""
    if isinstance(source, Inline):
        if not _BASE64.fullmatch(source.base64) or len(source.base64.rstrip("=")) % 4 == 1:
            wrong(content, "base64", source.base64)
    elif isinstance(source, Url) and not source.url:
        wrong(address, "a URL", source.url)


def _id(node: Node, name: str) -> str | None:
    value = node.string(name)
    if value is not None and len(value.encode("utf-8", "replace")) > LONGEST_ID:
        raise RequestError(f"{node.at(name)}: expected at most {LONGEST_ID} bytes of UTF-8.", param=node.at(name))
    return value


def _of_user(part: Part, value: dict[str, Any], notes: Notes) -> Part:
    """A part as a user may say it: a thought is text, and a call is data, as is a result that no task waits for."""
    if isinstance(part, Reasoning):
        return Text(part.text)
    if isinstance(part, ToolCall) or (isinstance(part, ToolResult) and notes.task is None):
        return Data(value["data"])
    return part


def _strings(node: Node, name: str) -> list[str]:
    values = node.array(name) or []
    for index, value in enumerate(values):
        if not isinstance(value, str):
            wrong(f"{node.at(name)}[{index}]", "a string", shortened(str(value)))
    return values
