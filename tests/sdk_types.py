"""Strict reading of SDK types: what of a JSON value does not belong to a type, field by field.

The SDKs make their objects without checks, and pydantic lets unknown fields pass. Here every required field is there,
every field is known, every literal is one of its values, and null stands only where the type allows it.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, Required, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import TypeAliasType, get_type_hints, is_typeddict

_LISTS = (list, Iterable, Sequence, Iterator)


@cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Field -> its type, and whether it is required."""
    if is_typeddict(kind):
        required = kind.__required_keys__
        return {name: (hint, name in required) for name, hint in get_type_hints(kind, include_extras=True).items()}
    return {(field.alias or name): (field.annotation, field.is_required()) for name, field in kind.model_fields.items()}


@cache
def _tags(kind: Any) -> dict[str, tuple[Any, ...]]:
    """The fields of an object whose values are literals; they tell the members of a union apart."""
    out = {}
    for name, (hint, _) in _fields(kind).items():
        plain = _bare(hint)
        if get_origin(plain) is Literal:
            out[name] = get_args(plain)
    return out


def _bare(hint: Any) -> Any:
    """A type without what only annotates it."""
    while True:
        origin = get_origin(hint)
        if origin in (Annotated, Required, NotRequired):
            hint = get_args(hint)[0]
        elif isinstance(hint, TypeAliasType):
            hint = hint.__value__
        else:
            return hint


def _is_object(kind: Any) -> bool:
    return is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, BaseModel))


def faults(value: Any, hint: Any, place: str = "") -> list[str]:
    """Return what is wrong with this value, each with its place; an empty list if nothing is."""
    hint = _bare(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (Any, object) or isinstance(hint, TypeVar):
        return []
    if origin is Literal:
        known = any(value == each and type(value) is type(each) for each in arguments)
        return [] if known else [f"{place}: {value!r} is none of {arguments}"]
    if origin in (Union, types.UnionType):
        return _of_union(value, arguments, place)
    if origin in _LISTS or (isinstance(origin, type) and issubclass(origin, Iterable) and len(arguments) == 1):
        if not isinstance(value, list):
            return [f"{place}: a list expected, got {value!r:.80}"]
        return [f for n, each in enumerate(value) for f in faults(each, arguments[0], f"{place}[{n}]")]
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        if not isinstance(value, dict):
            return [f"{place}: an object expected, got {value!r:.80}"]
        return [f for name, each in value.items() for f in faults(each, arguments[1], f"{place}.{name}")]
    if _is_object(hint):
        return _of_object(value, hint, place)
    return _of_plain(value, hint, place)


def _of_plain(value: Any, hint: Any, place: str) -> list[str]:
    match hint:
        case types.NoneType:
            good = value is None
        case type() if hint is float:
            good = type(value) in (int, float)
        case type() if hint is int:  # in JSON, 1.0 and 1 are one number
            good = type(value) is int or (type(value) is float and value.is_integer())
        case type() if hint in (str, bool, dict, list):
            good = type(value) is hint
        case type() if hint in (bytes, datetime):
            good = type(value) is str
        case type() if issubclass(hint, Enum):
            good = value in {each.value for each in hint}
        case _:
            raise TypeError(f"{place}: no check for {hint!r}")
    return [] if good else [f"{place}: {hint.__name__} expected, got {value!r:.80}"]


def _of_object(value: Any, kind: Any, place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place}: {kind.__name__} expected, got {value!r:.80}"]
    fields = _fields(kind)
    out = [f"{place}.{name}: unknown in {kind.__name__}" for name in value if name not in fields]
    out += [
        f"{place}.{name}: missing in {kind.__name__}"
        for name, (_, must) in fields.items()
        if must and name not in value
    ]
    for name, (hint, _) in fields.items():
        if name in value:
            out += faults(value[name], hint, f"{place}.{name}")
    return out


def _of_union(value: Any, members: Sequence[Any], place: str) -> list[str]:
    """The faults by the member that fits best: of objects, one whose literals are those of the value."""
    flat = [each for member in members for each in _members(member)]
    if isinstance(value, dict):
        objects = [kind for kind in flat if _is_object(kind)]
        tagged = [
            kind
            for kind in objects
            if all(value.get(name) in words for name, words in _tags(kind).items() if name in value)
        ]
        flat = [kind for kind in flat if not _is_object(kind)] + (tagged or objects)
    best: list[str] = []
    for member in flat:
        found = faults(value, member, place)
        if not found:
            return []
        if not best or _distance(found, place) < _distance(best, place):
            best = found
    return best


def _distance(found: list[str], place: str) -> tuple[bool, int]:
    """How far a value is from a type: one of another kind altogether is the farthest."""
    return found[0].startswith(f"{place}: "), len(found)


def _members(hint: Any) -> list[Any]:
    bare = _bare(hint)
    if get_origin(bare) in (Union, types.UnionType):
        return [each for member in get_args(bare) for each in _members(member)]
    return [bare]
