"""One dialect by itself, as the suites drive it: a fixed context, events to bytes, bytes to events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from bridge.contract import Context, Dialect, Losses
from bridge.errors import BackendError, Failure, Unsupported
from bridge.model import (
    Answer,
    ContentAdded,
    Event,
    MessageEnded,
    MessageStarted,
    Part,
    PartEnded,
    PartKind,
    PartStarted,
    Request,
    RunFinished,
    RunStarted,
    ToolCall,
    ToolResult,
    ToolResulted,
)
from bridge.model.jsontext import dumps, loads
from bridge.testing.outline import Outline
from bridge.translation import framing

T = TypeVar("T", Answer, Request)


def context(options: Any, request: Request | None = None) -> Context:
    """The same run every time: id, thread, time and model."""
    return Context("run1", "thread1", 1_700_000_000.0, options, "m", request, Losses())


@cache
def answers_whole(dialect: Dialect) -> bool:
    """Return whether clients of a dialect get answers in one piece."""
    try:
        dialect.assemble([RunStarted("run"), RunFinished()], context(dialect.front_options()))
    except Unsupported:
        return False
    return True


def encode(dialect: Dialect, events: list[Event]) -> bytes:
    """The stream that a client of this dialect gets."""
    encoder = dialect.encoder(context(dialect.front_options()))
    return framing.of(dialect.framing).join(encoder.encode(events))


def decode(dialect: Dialect, reads: Sequence[bytes], failure: Failure | None = None) -> list[Event]:
    """The events of a backend's stream that comes in these reads and ends cleanly, or for `failure`."""
    splitter = framing.of(dialect.framing).Splitter()
    decoder = dialect.decoder(context(dialect.back_options()))
    events: list[Event] = []
    try:
        for read in reads:
            events += decoder.feed(splitter.feed(read))
        if failure is None:
            events += decoder.feed(splitter.close())
    except BackendError as error:
        # Bytes that cannot be frames end an answer, as every transport sees to.
        failure = error.failure
    return events + decoder.close(failure)


_ODD: tuple[Any, ...] = (None, True, 5, "x", [5], {"a": 5})


def altered(body: bytes, tried: set[Any]) -> Iterator[bytes]:
    """Yield a JSON body again and again, each time with another value at one place of it, or without that place.

    A place that is among those `tried`, in an object with the same names, is left out; others are added to them. Yields
    nothing for a body that is no JSON.
    """
    try:
        value = loads(body)
    except ValueError:
        return
    whole = _form(value)
    for owner, key, path in list(_places(value, ())):
        if (place := (whole, path, _form(owner))) in tried:
            continue
        tried.add(place)
        kept = owner[key]
        for odd in _ODD:
            if odd != kept:
                owner[key] = odd
                yield dumps(value)
        owner[key] = kept
        if isinstance(owner, dict):
            del owner[key]
            yield dumps(value)
            owner[key] = kept


def _places(value: Any, path: tuple[str, ...]) -> Iterator[tuple[Any, Any, tuple[str, ...]]]:
    """Yield each place in a JSON value: its owner, its key there, and its path, which names no place of a list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        where = (*path, key if isinstance(key, str) else "*")
        yield value, key, where
        yield from _places(each, where)


def _form(value: Any) -> Any:
    """Return what tells objects of one kind: their names, and the words that say what they are."""
    if not isinstance(value, dict):
        return type(value)
    words = tuple(value.get(name) for name in ("type", "object", "event", "status"))
    return (*sorted(value), *(word for word in words if isinstance(word, str)))


def with_numbered_calls(value: T, *dialects: Dialect) -> T:
    """Return an answer or a request with its calls numbered, if one of these dialects writes no ids of calls."""
    if all(dialect.capabilities.call_ids for dialect in dialects):
        return value
    numbers: dict[str, str] = {}

    def number(part: Part) -> Part:
        if isinstance(part, (ToolCall, ToolResult)):
            return replace(part, call_id=numbers.setdefault(part.call_id, str(len(numbers))))
        return part

    return replace(value, messages=[replace(m, parts=[number(p) for p in m.parts]) for m in value.messages])


def overlaps(events: Sequence[Event]) -> bool:
    """Return whether a part starts while another of its kind is open, or a medium waits for the end of one."""
    open_parts: dict[str, PartKind] = {}
    waits = False
    for event in events:
        if isinstance(event, PartStarted):
            if waits or event.kind in open_parts.values():
                return True
            open_parts[event.part_id] = event.kind
        elif isinstance(event, ContentAdded):
            waits = bool(open_parts)
        elif isinstance(event, PartEnded):
            open_parts.pop(event.part_id, None)
            waits = waits and bool(open_parts)
    return False


def has_inner_result(events: Sequence[Event]) -> bool:
    """Return whether a tool's result comes while a message is open.

    A folded answer has it after that message, so it does not show which texts the result separates on a wire.
    """
    open_messages: set[str] = set()
    for event in events:
        if isinstance(event, MessageStarted):
            open_messages.add(event.message_id)
        elif isinstance(event, MessageEnded):
            open_messages.discard(event.message_id)
        elif isinstance(event, ToolResulted) and open_messages:
            return True
    return False


def without_separators(out: Outline, separator: str) -> Outline:
    """Return an outline whose texts have no separators between those of different messages."""
    items = [("text", item[1].replace(separator, "")) if item[0] == "text" else item for item in out.items]
    return replace(out, items=items)


def comparable(out: Outline, by_kind: bool = False) -> tuple[Any, ...]:
    """Return what two outlines are compared by.

    Some wires have results beside their calls, others after the whole message, so results are compared separately. A
    wire may have results as JSON values and errors as text: white space before them does not count.
    `by_kind` ignores the order of parts of different kinds: where parts overlap, a wire that has one field for each
    kind may send a part of one kind while a part of another waits.
    """
    results = sorted(((*i[:2], i[2].lstrip()) for i in out.items if i[0] == "tool_result"), key=repr)
    items = _joined(i for i in out.items if i[0] != "tool_result")
    if by_kind:
        items = _joined(sorted(items, key=lambda item: item[0]))
    return items, results, out.usage, out.error is not None, out.reason


def _joined(items: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Text on both sides of a result is one text, as in `outline`; after a signature, a new one begins."""
    out: list[tuple[Any, ...]] = []
    for item in items:
        if out and out[-1][0] == item[0] in ("text", "refusal", "reasoning") and not any(out[-1][2:]):
            out[-1] = (item[0], out[-1][1] + item[1], *item[2:])
        else:
            out.append(item)
    return out
