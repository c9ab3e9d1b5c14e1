"""Answers and requests as large as one likes, to see how the cost of a codec grows with them.

for name, make in ANSWERS.items():
    work(make(1000)), work(make(2000))       # events; twice as many must not cost much more than twice as much
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.model import FinishReason, Message, MessageStatus, PartKind, Request, Text
from bridge.model import events as ev
from bridge.model.events import Event
from bridge.model.parts import Inline, Media, MediaKind, ToolCall, ToolResult

UNIT = 1024
"""Characters of one unit where a single thing grows."""
_TIME = 1_700_000_000.0


def _run(body: list[Event]) -> list[Event]:
    return [
        ev.RunStarted("run1", "thread1", "m", _TIME),
        ev.MessageStarted("m1"),
        *body,
        ev.MessageEnded("m1", MessageStatus.COMPLETED, None),
        ev.RunFinished(FinishReason.STOP, _TIME),
    ]


def long_delta(n: int) -> list[Event]:
    """One delta of n KiB of text."""
    text = ev.TextDelta("p1", "x" * (n * UNIT))
    return _run([ev.PartStarted("p1", "m1", PartKind.TEXT), text, ev.PartEnded("p1")])


def image(n: int) -> list[Event]:
    """One picture of n KiB, base64."""
    return _run([ev.ContentAdded("m1", Media(MediaKind.IMAGE, Inline("A" * (n * UNIT)), "image/png"))])


def deltas(n: int) -> list[Event]:
    """n deltas of text."""
    texts = [ev.TextDelta("p1", "some words ") for _ in range(n)]
    return _run([ev.PartStarted("p1", "m1", PartKind.TEXT), *texts, ev.PartEnded("p1")])


def fragments(n: int) -> list[Event]:
    """One tool call whose arguments come in n pieces."""
    pieces: list[Event] = [ev.ArgsDelta("p1", piece) for piece in ('{"a":"', *["some words "] * (n - 2), '"}')]
    return _run([ev.PartStarted("p1", "m1", PartKind.TOOL_CALL, "c1", "f"), *pieces, ev.PartEnded("p1")])


def calls(n: int) -> list[Event]:
    """n tool calls of one message."""
    body: list[Event] = []
    for i in range(n):
        body += [
            ev.PartStarted(f"p{i}", "m1", PartKind.TOOL_CALL, f"c{i}", "f"),
            ev.ArgsDelta(f"p{i}", "{}"),
            ev.PartEnded(f"p{i}"),
        ]
    return _run(body)


def history(n: int) -> Request:
    """n messages, user and assistant in turn."""
    roles = ["assistant" if index % 2 else "user" for index in range(n)]
    return Request([*(Message(role, [Text(f"Words {i}.")]) for i, role in enumerate(roles)), _ask()])


def tool_history(n: int) -> Request:
    """n rounds of a call and its result."""
    messages = [_ask()]
    for i in range(n):
        messages.append(Message("assistant", [ToolCall(f"c{i}", "f", '{"a":1}')]))
        messages.append(Message("tool", [ToolResult(f"c{i}", [Text("found")], "f")]))
    return Request([*messages, _ask()])


def same_ids(n: int) -> Request:
    """n messages that all have one id, as of a client that does not care."""
    return Request([Message("user", [Text("hello")], id="same") for _ in range(n)])


def picture(n: int) -> Request:
    """One question with a picture of n KiB, base64."""
    media = Media(MediaKind.IMAGE, Inline("A" * (n * UNIT)), "image/png")
    return Request([Message("user", [Text("What is it?"), media])])


def _ask() -> Message:
    return Message("user", [Text("And now?")])


ANSWERS: dict[str, Callable[[int], list[Event]]] = {
    make.__name__: make for make in (long_delta, image, deltas, fragments, calls)
}
REQUESTS: dict[str, Callable[[int], Request]] = {
    make.__name__: make for make in (history, tool_history, same_ids, picture)
}
