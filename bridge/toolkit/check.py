"""Reads fields out of a decoded JSON body and explains what is wrong with them.

Bodies are checked while they are translated, in one walk: a long history costs half of what models would, and every
message names the place (`messages[2].content[0].type`), what was expected and what came. `null` counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Set
from math import isfinite
from typing import Any, ClassVar, NoReturn, Self

from bridge.contract.surface import QueryParameter
from bridge.contract.wire import WireRequest
from bridge.errors import RequestError, Wrong, shortened
from bridge.model.jsontext import kind_of, read_body


class Node:
    """A JSON object at a place in the body. Its readers raise `RequestError` with that place as `param`.

    A field that is null counts as absent. The objects in it are nodes of the same class, so that a subclass may read
    names in another spelling.
    """

    __slots__ = ("path", "value")

    def __init__(self, value: dict[str, Any], path: str = "") -> None:
        self.value = value
        self.path = path

    @classmethod
    def of(cls, value: Any, path: str) -> Self:
        """Return the object at `path`. Raises `RequestError` for any other value."""
        if not isinstance(value, dict):
            wrong(path, "an object", value)
        return cls(value, path)

    def at(self, name: str) -> str:
        """The path of a field of this object."""
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> Any:
        """Return the value of a field of any type; None if it is absent."""
        return self.value.get(name)

    def string(self, name: str) -> str | None:
        """A string, or None."""
        value = self.value.get(name)
        if value is not None and not isinstance(value, str):
            wrong(self.at(name), "a string", value)
        return value

    def need_string(self, name: str) -> str:
        """A string; raises if it is absent."""
        value = self.value.get(name)
        if not isinstance(value, str):
            wrong(self.at(name), "a string", value, missing=name not in self.value)
        return value

    def boolean(self, name: str) -> bool | None:
        """A boolean, or None."""
        value = self.value.get(name)
        if value is not None and not isinstance(value, bool):
            wrong(self.at(name), "true or false", value)
        return value

    def number(self, name: str, *, convert: bool = False) -> float | None:
        """A number; with `convert` also a string that holds one."""
        value = self.value.get(name)
        if value is None:
            return None
        if convert and isinstance(value, str):
            try:
                number = float(value)
            except ValueError:
                wrong(self.at(name), "a number", value)
            if not isfinite(number):  # "nan" and "inf" are numbers to Python, not to JSON
                wrong(self.at(name), "a number", value)
            return number
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            wrong(self.at(name), "a number", value)
        return value

    def integer(
        self, name: str, *, convert: bool = False, least: int | None = None, most: int | None = None
    ) -> int | None:
        """A whole number within `least..most`; `2.0` counts as whole."""
        value = self.number(name, convert=convert)
        if value is None:
            return None
        if value != int(value) if abs(value) != float("inf") else True:
            wrong(self.at(name), "a whole number", value)
        if (least is not None and value < least) or (most is not None and value > most):
            limits = f"of at least {least}" if most is None else f"of at most {most}"
            if least is not None and most is not None:
                limits = f"from {least} to {most}"
            raise RequestError(
                f"{self.at(name)}: expected a number {limits}, got {int(value)}.", param=self.at(name), wrong=Wrong.TYPE
            )
        return int(value)

    def object(self, name: str) -> Self | None:
        """An object, or None."""
        value = self.value.get(name)
        return None if value is None else self.of(value, self.at(name))

    def need_object(self, name: str) -> Self:
        """An object; raises if it is absent."""
        value = self.value.get(name)
        if not isinstance(value, dict):
            wrong(self.at(name), "an object", value, missing=name not in self.value)
        return self.of(value, self.at(name))

    def array(self, name: str) -> list[Any] | None:
        """A list, or None."""
        value = self.value.get(name)
        if value is not None and not isinstance(value, list):
            wrong(self.at(name), "a list", value)
        return value

    def need_array(self, name: str) -> list[Any]:
        """A list; raises if it is absent."""
        value = self.value.get(name)
        if not isinstance(value, list):
            wrong(self.at(name), "a list", value, missing=name not in self.value)
        return value

    def objects(self, name: str) -> Iterator[Self]:
        """The objects of a list, each with its own path; nothing when the list is absent."""
        values = self.value.get(name)
        if values is None:
            return
        path = self.at(name)
        if not isinstance(values, list):
            wrong(path, "a list", values)
        for index, value in enumerate(values):
            if not isinstance(value, dict):
                wrong(f"{path}[{index}]", "an object", value)
            yield type(self)(value, f"{path}[{index}]")

    def one_of(self, name: str, allowed: Collection[str]) -> str | None:
        """One of these strings, or None."""
        return None if self.value.get(name) is None else self.need_one_of(name, allowed)

    def need_one_of(self, name: str, allowed: Collection[str]) -> str:
        """One of these strings; raises if it is absent."""
        value = self.value.get(name)
        if not isinstance(value, str):
            wrong(self.at(name), "a string", value, missing=name not in self.value)
        if value not in allowed:
            wrong(self.at(name), "one of " + ", ".join(sorted(allowed)), value)
        return value

    def strings(self, name: str) -> list[str] | None:
        """A list of strings, or one string as a list of one."""
        value = self.value.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            wrong(self.at(name), "a string or a list of strings", value)
        return value

    def rest(self, known: Set[str]) -> dict[str, Any]:
        """Return the fields that are not in `known`, which are passed on unchanged."""
        if self.value.keys() <= known:
            return {}
        return {k: v for k, v in self.value.items() if k not in known}


class Spelling:
    """The spellings of the names of a protocol's fields.

    Called with an object, it returns the object with the names that its dialect knows; what is in it stays as it is. It
    is the same object where it has no other names. Of two spellings of a name the known one counts.

    Arguments:
        names: The known name for each other spelling. None: every name in snake_case is one in camelCase, where
            underscores at its beginning stay.
        dropped: Names of fields that only repeat others.
    """

    __slots__ = ("_dropped", "_names", "_others")

    def __init__(self, names: Mapping[str, str] | None = None, dropped: Collection[str] = ()) -> None:
        self._names = names
        self._dropped = frozenset(dropped)
        self._others = None if names is None else self._dropped.union(names)

    def name(self, name: str) -> str:
        """Return the known name for a spelling."""
        if self._names is not None:
            return self._names.get(name, name)
        return _WORD.sub(lambda found: found[1].upper(), name) if "_" in name else name

    def __call__(self, value: dict[str, Any]) -> dict[str, Any]:
        if "_" not in "".join(value) if self._others is None else self._others.isdisjoint(value):
            return value
        out: dict[str, Any] = {}
        for name, each in value.items():
            known = self.name(name)
            if name not in self._dropped and (known == name or known not in value):
                out[known] = each
        return out


_WORD = re.compile(r"(?<=[A-Za-z0-9])_([a-z0-9])")


class SpelledNode(Node):
    """An object whose names may be spelled in several ways. Errors name fields as the client spelled them."""

    __slots__ = ("_sent",)

    spelling: ClassVar[Spelling] = Spelling()

    def __init__(self, value: dict[str, Any], path: str = "") -> None:
        super().__init__(self.spelling(value), path)
        self._sent = value

    def at(self, name: str) -> str:
        """The path of a field of this object, in the spelling that was sent."""
        if self._sent is not self.value and name not in self._sent:
            name = next((sent for sent in self._sent if self.spelling.name(sent) == name), name)
        return super().at(name)


def body_of(wire: WireRequest) -> Node:
    """Return the JSON object in the body of a request. Raises `RequestError` for any other body."""
    need_json(wire)
    return Node(read_body(wire.body))


def model_in(body: Node, default: str | None) -> str | None:
    """Return the `model` of a request. Raises `RequestError` if it names none and there is no `default`."""
    return body.string("model") if default else body.need_string("model")


def wrong(path: str, expected: str, got: Any, *, missing: bool = False) -> NoReturn:
    """Raises the one error for a field that is not what it should be. Long values are not repeated."""
    where = path or "body"
    if missing:
        raise RequestError(f"{where}: required, expected {expected}.", param=path or None, wrong=Wrong.MISSING)
    got_kind = kind_of(got)
    if isinstance(got, (str, int, float)) and not isinstance(got, bool) and len(str(got)) <= 40:
        got_kind = repr(got)
    raise RequestError(f"{where}: expected {expected}, got {got_kind}.", param=path or None, wrong=Wrong.TYPE)


_MEDIA_TYPE = re.compile(r"[\w.+-]{1,80}/[\w.+-]{1,80}", re.ASCII)


def need_json(wire: WireRequest, status: int | None = None) -> None:
    """Raise `RequestError` if the request declares another content type; declaring none is accepted.

    `status`: the HTTP status of that error where it is not that of any invalid request.
    """
    declared = wire.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared and declared != "application/json" and not declared.endswith("+json"):
        # Not quoted: the log masks quoted text, and the type is what readers need.
        got = declared if _MEDIA_TYPE.fullmatch(declared) else repr(shortened(declared))
        raise RequestError(
            f"content-type: expected application/json, got {got}.",
            param="content-type",
            status=status,
        )


def given_number(query: Node, parameter: QueryParameter) -> int | None:
    """Return the whole number that a client gave for a parameter; None if it gave none.

    Raises `RequestError` for a number outside of `minimum` and `maximum`.
    """
    return query.integer(parameter.name, convert=True, least=parameter.minimum, most=parameter.maximum)


def number_in(query: Node, parameter: QueryParameter) -> int:
    """Return the number that a client gave for a parameter, or else its default. Raises as `given_number` does."""
    value = given_number(query, parameter)
    return int(parameter.default or 0) if value is None else value
