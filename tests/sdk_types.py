"""Strict reading of SDK types: what of a JSON value does not belong to a type, field by field.

The SDKs make their objects without checks, and pydantic lets unknown fields pass. Here every required field is there,
every field is known, every literal is one of its values, and null stands only where the type allows it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Literal, NotRequired, Required, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import TypeAliasType, get_type_hints, is_typeddict

Check = Callable[[Any, str], list[str]]
"""Returns what is wrong with a value at a place."""


def faults(value: Any, kind: Any, place: str = "") -> list[str]:
    """Return what is wrong with this value, each with its place; an empty list if nothing is."""
    return _check(kind)(value, place)


@cache
def _check(kind: Any) -> Check:
    kind = _bare(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (Any, object) or isinstance(kind, TypeVar):
        return lambda value, place: []
    if origin is Literal:
        return partial(_literal, arguments)
    if origin in (Union, types.UnionType):
        return partial(_union, _members(kind))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return partial(_mapping, arguments[1])
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return partial(_list, arguments[0])
    return partial(_object if _is_object(kind) else _plain, kind)


def _bare(kind: Any) -> Any:
    """A type without what only annotates it."""
    while True:
        if get_origin(kind) in (Annotated, Required, NotRequired):
            kind = get_args(kind)[0]
        elif isinstance(kind, TypeAliasType):
            kind = kind.__value__
        else:
            return kind


def _is_object(kind: Any) -> bool:
    return is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, BaseModel))


@cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Field -> its type, and whether it is required."""
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {name: (_bare(hint), _is_required(kind, name, hint)) for name, hint in hints.items()}
    fields = kind.model_fields.items()
    return {(field.alias or name): (_bare(field.annotation), field.is_required()) for name, field in fields}


def _is_required(kind: Any, name: str, hint: Any) -> bool:
    """The class knows it only where its annotations were evaluated at once."""
    marks = {Required: True, NotRequired: False}
    said = marks.get(get_origin(hint))
    return name in kind.__required_keys__ if said is None else said


@cache
def _checks(kind: Any) -> dict[str, Check]:
    return {name: _check(hint) for name, (hint, _) in _fields(kind).items()}


@cache
def _tags(kind: Any) -> dict[str, tuple[Any, ...]]:
    """The fields of an object whose values are literals; they tell the members of a union apart."""
    return {name: get_args(hint) for name, (hint, _) in _fields(kind).items() if get_origin(hint) is Literal}


def _literal(words: tuple[Any, ...], value: Any, place: str) -> list[str]:
    known = any(value == word and type(value) is type(word) for word in words)
    return [] if known else [f"{place}: {value!r} is none of {words}"]


def _mapping(inner: Any, value: Any, place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place}: an object expected, got {value!r:.80}"]
    check = _check(inner)
    return [fault for name, each in value.items() for fault in check(each, f"{place}.{name}")]


def _list(inner: Any, value: Any, place: str) -> list[str]:
    if not isinstance(value, list):
        return [f"{place}: a list expected, got {value!r:.80}"]
    check = _check(inner)
    return [fault for number, each in enumerate(value) for fault in check(each, f"{place}[{number}]")]


def _plain(kind: Any, value: Any, place: str) -> list[str]:
    if kind in (None, types.NoneType):
        return [] if value is None else [f"{place}: null expected, got {value!r:.80}"]
    if kind is float:
        good = type(value) in (int, float)
    elif kind is int:  # in JSON, 1.0 and 1 are one number
        good = type(value) is int or (type(value) is float and value.is_integer())
    elif kind in (str, bool, dict, list):
        good = type(value) is kind
    else:
        raise TypeError(f"{place}: there is no check for {kind!r}")
    return [] if good else [f"{place}: {kind.__name__} expected, got {value!r:.80}"]


def _object(kind: Any, value: Any, place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place}: {kind.__name__} expected, got {value!r:.80}"]
    fields, checks = _fields(kind), _checks(kind)
    out = [
        f"{place}.{name}: missing in {kind.__name__}"
        for name, (_, required) in fields.items() if required and name not in value
    ]  # fmt: skip
    for name, each in value.items():
        if name in checks:
            out += checks[name](each, f"{place}.{name}")
        else:
            out.append(f"{place}.{name}: unknown in {kind.__name__}")
    return out


@cache
def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, and of the unions in it."""
    bare = _bare(kind)
    if get_origin(bare) not in (Union, types.UnionType):
        return (bare,)
    return tuple(each for member in get_args(bare) for each in _members(member))


def _union(members: tuple[Any, ...], value: Any, place: str) -> list[str]:
    """The faults by the member that fits best: of objects, one whose literals are those of the value."""
    if value is None and types.NoneType in members:
        return []
    if isinstance(value, dict):
        members = tuple(kind for kind in members if not _is_object(kind) or _is_tagged(kind, value)) or members
    best: list[str] = []
    for member in members:
        found = _check(member)(value, place)
        if not found:
            return []
        if not best or _distance(found, place) < _distance(best, place):
            best = found
    return best


def _is_tagged(kind: Any, value: dict[str, Any]) -> bool:
    return all(value[name] in words for name, words in _tags(kind).items() if name in value)


def _distance(found: list[str], place: str) -> tuple[bool, int]:
    """How far a value is from a type: one of another kind altogether is the farthest."""
    return found[0].startswith(f"{place}: "), len(found)
