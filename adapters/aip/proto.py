"""Protocol Buffers on the wire: bytes <-> numbered fields (protobuf.dev, "Encoding").

Messages are dataclasses whose attributes define their numbers and kinds. Reading skips unknown numbers, accepts
repeated numbers packed or one by one, and lets the last of several values win; writing leaves out zero values, as in
proto3. A codec needs no more of the format, and registrations have to stay opaque bytes anyhow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import Enum
from operator import attrgetter
from typing import Any, Self


class Kind(Enum):
    """The wire form of a field's value."""

    STRING = "string"
    BYTES = "bytes"
    BOOL = "bool"
    ENUM = "enum"
    STRINGS = "repeated string"
    BLOBS = "repeated bytes"
    ENUMS = "repeated enum"
    MAP = "map<string, string>"
    MESSAGE = "message"
    MESSAGES = "repeated message"


Field = tuple[int, str, Kind, Any]
"""Number, attribute, kind, and the class of a message."""

_WIRE = "wire"
_EMPTY: dict[Kind, Any] = {Kind.STRING: "", Kind.BYTES: b"", Kind.BOOL: False, Kind.ENUM: 0, Kind.MESSAGE: None}
_UNSAID: Any = object()


def at(number: int, kind: Kind, inner: type[Wire] | None = None, *, default: Any = _UNSAID) -> Any:
    """Define an attribute of a message in its dataclass: its number, its kind, and of messages the class.

    The default is that of proto3, unless another one is given.
    """
    metadata = {_WIRE: (number, kind, inner)}
    if default is not _UNSAID or kind in _EMPTY:
        return dataclasses.field(default=_EMPTY[kind] if default is _UNSAID else default, metadata=metadata)
    return dataclasses.field(default_factory=dict if kind is Kind.MAP else list, metadata=metadata)


def alias(attribute: str) -> Any:
    """Another name of an attribute of a message."""

    def write(message: Any, value: Any) -> None:
        setattr(message, attribute, value)

    return property(attrgetter(attribute), write)


_tables: dict[type[Any], dict[int, Field]] = {}


def _fields_of(message: type[Any]) -> dict[int, Field]:
    """Return the fields of a message by their numbers."""
    table = _tables.get(message)
    if table is None:
        found = ((each.name, each.metadata[_WIRE]) for each in dataclasses.fields(message))
        table = _tables[message] = {number: (number, name, kind, inner) for name, (number, kind, inner) in found}
    return table


class Wire:
    """Base of messages: dataclasses whose every attribute is `at` a number."""

    __slots__ = ()

    def to_bytes(self) -> bytes:
        """The message on the wire."""
        fields = _fields_of(type(self)).values()
        return b"".join(_written(field, getattr(self, field[1])) for field in fields)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse a message. Raises `ValueError` for invalid bytes."""
        message, known = cls(), _fields_of(cls)
        for number, value in fields(data):
            if number in known:
                _read(message, known[number], value)
        return message


# ---------------------------------------------------------------------- reading


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field's number and value: an integer, or the bytes of what has a length. No field here has a fixed width.

    Raises `ValueError` for bytes that are no message.
    """
    place, end = 0, len(data)
    while place < end:
        tag, place = varint(data, place)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise ValueError("a field has the number 0")
        if kind == 0:
            value, place = varint(data, place)
            yield number, value
            continue
        if kind == 2:
            size, place = varint(data, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"field {number} has the unknown wire type {kind}")
        if place + size > end:
            raise ValueError(f"field {number} is truncated: {size} bytes expected, {end - place} left")
        if kind == 2:
            yield number, data[place : place + size]
        place += size


def varint(data: bytes, place: int) -> tuple[int, int]:
    """The number that begins at `place`, and where it ends. Raises `ValueError`."""
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise ValueError("a number is truncated or too long")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place
        shift += 7


def _read(message: Any, field: Field, value: int | bytes) -> None:
    """Takes a value over; one of another wire type than the field's is as unknown as another number, as in protobuf."""
    _, name, kind, inner = field
    if kind in (Kind.BOOL, Kind.ENUM):
        if isinstance(value, int):
            setattr(message, name, bool(value) if kind is Kind.BOOL else value & 0xFFFF_FFFF)
        return
    if kind is Kind.ENUMS:
        getattr(message, name).extend(_numbers(value))
        return
    if not isinstance(value, bytes):
        return
    match kind:
        case Kind.STRING:
            setattr(message, name, value.decode())
        case Kind.BYTES:
            setattr(message, name, value)
        case Kind.STRINGS:
            getattr(message, name).append(value.decode())
        case Kind.BLOBS:
            getattr(message, name).append(value)
        case Kind.MAP:
            key, entry_value = entry(value)
            getattr(message, name)[key] = entry_value
        case Kind.MESSAGE:
            setattr(message, name, inner.from_bytes(value))
        case _:
            getattr(message, name).append(inner.from_bytes(value))


def _numbers(value: int | bytes) -> list[int]:
    if isinstance(value, int):
        return [value]
    found, place = [], 0
    while place < len(value):
        number, place = varint(value, place)
        found.append(number)
    return found


def entry(data: bytes) -> tuple[str, str]:
    """Key and value of one entry of a `map<string, string>`. Raises `ValueError`."""
    texts = {1: "", 2: ""}
    for number, value in fields(data):
        if number in texts:
            texts[number] = value.decode() if isinstance(value, bytes) else ""
    return texts[1], texts[2]


# ---------------------------------------------------------------------- writing


def _written(field: Field, value: Any) -> bytes:
    number, _, kind, _ = field
    match kind:
        case Kind.BOOL | Kind.ENUM:
            return number_field(number, int(value)) if value else b""
        case Kind.STRING:
            return text_field(number, value) if value else b""
        case Kind.BYTES:
            return bytes_field(number, value) if value else b""
        case Kind.STRINGS:
            return b"".join(text_field(number, v) for v in value)
        case Kind.BLOBS:
            return b"".join(bytes_field(number, v) for v in value)
        case Kind.ENUMS:
            return bytes_field(number, b"".join(number_bytes(int(v)) for v in value)) if value else b""
        case Kind.MAP:
            return b"".join(bytes_field(number, text_field(1, k) + text_field(2, v)) for k, v in value.items())
        case Kind.MESSAGE:
            return b"" if value is None else bytes_field(number, value.to_bytes())
        case _:
            return b"".join(bytes_field(number, v.to_bytes()) for v in value)


def number_bytes(value: int) -> bytes:
    """A number as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(number: int, value: int) -> bytes:
    return number_bytes(number << 3) + number_bytes(value)


def bytes_field(number: int, value: bytes) -> bytes:
    return number_bytes(number << 3 | 2) + number_bytes(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    # Lone surrogates are no Unicode text, and a peer would refuse the whole message for one.
    return bytes_field(number, value.encode("utf-8", "replace"))
