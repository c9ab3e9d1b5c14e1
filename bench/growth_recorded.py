"""What an answer of a backend costs as any part of it grows: pieces of recorded answers, repeated and changed.

Each kind of frame that a dialect's recordings have is repeated within its answer, alone and with the frame after it.
The copies are the same, or have other ids, other numbers or fields of other names; lists and objects within one frame
grow as well. `amplified` makes such answers, `read` and `write` translate them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bridge.contract import Dialect, registry
from bridge.contract.wire import Frame, FrameLike
from bridge.model import Event
from bridge.testing.wires import context
from bridge.translation import framing
from bridge.translation.framing.arrays import END
from tests.recorded import answers

WINDOWS = (1, 2)
"""How many frames in a row are repeated."""
LONGEST = 50_000
"""Bytes of a recording; of longer ones each copy costs much by itself."""
_ID = re.compile(r"id|_id$|Id$|ID$|name", re.IGNORECASE)
_NUMBER = re.compile(r"index|number", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Growing:
    """An answer of `dialect` of any size: `frames(n)` has n copies of a piece of the recording `source`."""

    dialect: str
    source: str
    kind: str
    way: str
    frames: Callable[[int], list[FrameLike]]


def _renamed(value: Any, number: int) -> Any:
    """The value with other ids and names."""
    if isinstance(value, dict):
        return {
            key: f"{each}-{number}" if isinstance(each, str) and _ID.search(key) else _renamed(each, number)
            for key, each in value.items()
        }
    return [_renamed(each, number) for each in value] if isinstance(value, list) else value


def _numbered(value: Any, number: int) -> Any:
    """The value with other indexes, and other ids."""
    if isinstance(value, dict):
        return {
            key: number
            if type(each) is int and _NUMBER.search(key)
            else f"{each}-{number}"
            if isinstance(each, str) and key in ("id", "item_id", "toolCallId", "call_id", "msg_id", "messageId")
            else _numbered(each, number)
            for key, each in value.items()
        }
    return [_numbered(each, number) for each in value] if isinstance(value, list) else value


def _with_fields(value: Any, number: int) -> Any:
    """The value with fields that no other copy has, in each of its objects: a text, a number and an object."""
    if isinstance(value, dict):
        own = {f"x{number}": "x", f"n{number}": 1, f"o{number}": {"a": "b"}}
        return {key: _with_fields(each, number) for key, each in value.items()} | own
    return [_with_fields(each, number) for each in value] if isinstance(value, list) else value


WAYS: dict[str, Callable[[Any, int], Any]] = {
    "same": lambda value, _: value,
    "renamed": _renamed,
    "numbered": _numbered,
    "fields": _with_fields,
}


def _widened(value: Any, n: int) -> Iterator[tuple[str, Any]]:
    """The value with one of its lists or objects grown to n, in turn."""
    for path, each in _inner(value):
        if isinstance(each, list) and each:
            yield f"list {'.'.join(path)}", _put(value, path, [_renamed(each[k % len(each)], k) for k in range(n)])
        elif isinstance(each, dict):
            more = {f"k{k}": "x" for k in range(n)}
            yield f"object {'.'.join(path)}", _put(value, path, {**each, **more})


def _inner(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, (dict, list)):
        yield path, value
        for key, each in value.items() if isinstance(value, dict) else enumerate(value[:1]):
            yield from _inner(each, (*path, str(key)))


def _put(value: Any, path: tuple[str, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, list):
        return [_put(value[0], path[1:], new), *value[1:]]
    return {**value, path[0]: _put(value[path[0]], path[1:], new)}


def amplified(name: str) -> list[Growing]:
    """The growing answers of a dialect, one for each kind of piece and each way."""
    found: dict[tuple[str, str], Growing] = {}
    for source, wire in answers(name).items():
        if len(wire) > LONGEST:
            continue
        try:
            frames = _frames(registry.get(name), wire)
        except Exception:  # an answer that is broken on purpose
            continue
        values = [_value(frame) for frame in frames]
        for place, value in enumerate(values):
            if not isinstance(value, dict):
                continue
            for size in WINDOWS:
                window = values[place : place + size]
                if len(window) == size and all(isinstance(each, dict) for each in window):
                    kind = " ".join(map(_kind, window))
                    for way, change in WAYS.items():
                        make = _repeating(frames, place, window, change)
                        found.setdefault((kind, way), Growing(name, source, kind, way, make))
            for way, _ in _widened(value, 1):
                make = _widening(frames, place, value, way)
                found.setdefault((_kind(value), way), Growing(name, source, _kind(value), way, make))
    return list(found.values())


def _repeating(
    frames: list[FrameLike], place: int, window: list[Any], change: Callable[[Any, int], Any]
) -> Callable[[int], list[FrameLike]]:
    def make(n: int) -> list[FrameLike]:
        names = [frame.event if isinstance(frame, Frame) else None for frame in frames[place : place + len(window)]]
        copies: list[FrameLike] = []
        for number in range(n):
            for name, value in zip(names, window, strict=True):
                data = json.dumps(change(value, number)).encode()
                copies.append(data if name is None else Frame(data, name))
        return [*frames[: place + len(window)], *copies, *frames[place + len(window) :]]

    return make


def _widening(frames: list[FrameLike], place: int, value: Any, way: str) -> Callable[[int], list[FrameLike]]:
    def make(n: int) -> list[FrameLike]:
        data = json.dumps(dict(_widened(value, n))[way]).encode()
        old = frames[place]
        return [*frames[:place], data if isinstance(old, bytes) else Frame(data, old.event), *frames[place + 1 :]]

    return make


def _frames(dialect: Dialect, wire: bytes) -> list[FrameLike]:
    splitter = framing.of(dialect.framing).Splitter()
    return [frame for frame in (*splitter.feed(wire), *splitter.close()) if frame is not END]


def _value(frame: FrameLike) -> Any:
    try:
        return json.loads(frame if isinstance(frame, bytes) else frame.data)
    except ValueError:
        return None


def _kind(value: Any) -> str:
    """What a frame is: its type, and the fields that it and its objects have."""
    said = value.get("type") or value.get("object") or value.get("event") or ""
    inner = sorted({path[-1] for path, _ in _inner(value) if path and not path[-1].isdigit()})
    if said and said != "chat.completion.chunk":
        return str(said)
    return f"{said}({','.join(sorted(value))};{','.join(inner)})"


def read(name: str, frames: list[FrameLike]) -> list[Event]:
    """Decode the frames, each as it comes."""
    dialect = registry.get(name)
    decoder = dialect.decoder(context(dialect.back_options()))
    events: list[Event] = []
    for frame in frames:
        events += decoder.feed([frame])
    return events + decoder.close()


def write(name: str, events: list[Event]) -> None:
    """Encode the events, each as it comes."""
    dialect = registry.get(name)
    encoder = dialect.encoder(context(dialect.front_options()))
    join = framing.of(dialect.framing).join
    for event in events:
        join(encoder.encode([event]))
    join(encoder.close())
