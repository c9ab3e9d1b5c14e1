"""One change at a time, most of them to the JSON inside, so that inputs get past the parser."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import orjson

_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 2**63, 1e308, "", "x", "\u2028\x00", "[DONE]", [], {}, [None], [[]], {"": None},
    "9" * 400, {"type": "text"}, {"type": None, "text": 1}, "data:;base64,!", "null", "{}", "tool", "error",
)  # fmt: skip


def mutate(data: bytes, rnd: random.Random) -> bytes:
    """A neighbour of the data; the same one for the same state of `rnd`."""
    change = rnd.choice((_bytes, _frames, _json, _json, _json))
    return change(data, rnd)


def _bytes(data: bytes, rnd: random.Random) -> bytes:
    at = rnd.randint(0, len(data))
    length = rnd.choice((1, 1, 2, 8, 64))
    match rnd.randint(0, 3):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at + length :]
        case 2:
            return data[:at] + rnd.randbytes(length) + data[at:]
        case _:
            return data[:at] + data[at : at + length] * 2 + data[at + length :]


def _frames(data: bytes, rnd: random.Random) -> bytes:
    """Frames left out, repeated or moved."""
    frames = data.split(b"\n\n")
    at, to = rnd.randrange(len(frames)), rnd.randrange(len(frames))
    frame = frames[at] if rnd.random() < 0.3 else frames.pop(at)
    if rnd.random() < 0.6:
        frames.insert(to, frame)
    return b"\n\n".join(frames)


def _json(data: bytes, rnd: random.Random) -> bytes:
    """One value of one frame, or of the whole body, is another."""
    frames = data.split(b"\n\n")
    at = rnd.randrange(len(frames))
    head, colon, body = frames[at].rpartition(b"data:") if b"data:" in frames[at] else (b"", b"", frames[at])
    try:
        value = orjson.loads(body)
        frames[at] = head + colon + orjson.dumps(_other(value, rnd))
    except (ValueError, TypeError):
        return _bytes(data, rnd)
    return b"\n\n".join(frames)


def _other(value: Any, rnd: random.Random) -> Any:
    """The value with one node changed, somewhere inside."""
    found = list(places(value))
    if not found:
        return rnd.choice(_ODD)
    holder, key = rnd.choice(found)
    match rnd.randint(0, 4):
        case 0:
            del holder[key]
        case 1:
            other, name = rnd.choice(found)
            holder[key] = orjson.loads(orjson.dumps(other[name]))
        case 2 if isinstance(holder, list):
            holder.insert(key, orjson.loads(orjson.dumps(holder[key])))
        case _:
            holder[key] = rnd.choice(_ODD)
    return value


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container inside the value with each of its keys or indexes."""
    inside = [value]
    while inside:
        holder = inside.pop()
        if isinstance(holder, (dict, list)):
            for key, item in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
                yield holder, key
                inside.append(item)
