"""What a size, a depth or a count may do: values that JSON libraries do not write, put into recorded wires."""

from __future__ import annotations

import random
from collections.abc import Callable

import orjson

from tests.fuzz.mutate import mutate, places

_MARK = "\ue000"
_MARKED = orjson.dumps(_MARK)
_PIECES = (
    b"x", b"a@a.", b"http://", b"sk-", b"%41", b"\\\\", b"\\u0000", b"\\n", b" ", b"<think>", b"</think>", b"[",
    b"{\\\"a\\\":", b"AAAA", b"\xe2\x98\x80", b"\xcc\x81", b"data:image/png;base64,", b"data: ", b"key=", b"Bearer ",
    b"../", b"1,", b"${A}",
)  # fmt: skip
_NUMBERS = (
    b"1e999",
    b"-1e999",
    b"1E-999",
    b"NaN",
    b"Infinity",
    b"-0",
    b"18446744073709551616",
    b"1.0000000000000000001",
)
_BROKEN = (
    b'"\xff\xfe"',
    b'"\xc3"',
    b'"\xed\xa0\x80"',
    b'"\\ud800"',
    b'"\\udc00\\ud83d"',
    b'"\\x"',
    b'"\x00"',
    b"'a'",
    b"",
)

Raw = Callable[[bytes, int, random.Random], bytes]


def grow(data: bytes, rnd: random.Random, limit: int) -> bytes:
    """A neighbour of the data that is up to about `limit` bytes long; the same one for the same state of `rnd`."""
    frames = data.split(b"\n\n")
    at = rnd.randrange(len(frames))
    size = min(limit, rnd.choice((100, 2_000, 60_000, limit)))
    if len(frames) > 2 and rnd.random() < 0.3:
        frames[at] = b"\n\n".join([frames[at]] * max(2, size // max(1, len(frames[at]))))
        return b"\n\n".join(frames)
    head, colon, body = frames[at].rpartition(b"data:") if b"data:" in frames[at] else (b"", b"", frames[at])
    try:
        value = orjson.loads(body)
    except ValueError:
        return mutate(data, rnd)
    found = list(places(value))
    if not found:
        return mutate(data, rnd)
    holder, key = rnd.choice(found)
    old, holder[key] = orjson.dumps(holder[key]), _MARK
    new = rnd.choice(_RAWS)(old, size, rnd)
    frames[at] = head + colon + orjson.dumps(value).replace(_MARKED, new)
    return b"\n\n".join(frames)


def _deep(old: bytes, size: int, rnd: random.Random) -> bytes:
    opening, closing = rnd.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"type":"text","text":', b"}"), (b"[", b"")))
    depth = max(1, size // (len(opening) + len(closing)))
    return opening * depth + old + closing * depth


def _string(old: bytes, size: int, rnd: random.Random) -> bytes:
    piece = rnd.choice(_PIECES)
    return b'"' + piece * (size // len(piece)) + b'"'


def _number(old: bytes, size: int, rnd: random.Random) -> bytes:
    return rnd.choice((*_NUMBERS, b"9" * size, b"0." + b"1" * size))


def _broken(old: bytes, size: int, rnd: random.Random) -> bytes:
    return rnd.choice(_BROKEN)


def _many(old: bytes, size: int, rnd: random.Random) -> bytes:
    """The same element over and over, as an array where it stood, or behind it where it is an element itself."""
    row = b",".join([old] * max(1, size // (len(old) + 1)))
    return rnd.choice((b"[" + row + b"]", row))


def _keys(old: bytes, size: int, rnd: random.Random) -> bytes:
    return b"{" + b",".join(b'"k%d":%b' % (n, old) for n in range(max(1, size // (len(old) + 8)))) + b"}"


_RAWS: tuple[Raw, ...] = (_deep, _string, _string, _number, _broken, _many, _many, _keys)
