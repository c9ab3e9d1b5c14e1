"""`Fields`: the fields of a request's body, as one table for reading, checking and writing them.

What a request says and no row carries is lost; that follows from the table and is written down nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

from bridge.contract.capabilities import Feature
from bridge.contract.context import Losses
from bridge.contract.wire import WireRequest
from bridge.errors import RequestError
from bridge.model import Request, Sampling, ToolMode
from bridge.toolkit.check import Node

Read = Callable[[Any, str], Any]
"""Reads a field of a `Node` by its name. Raises `RequestError` with its place for a value of another type.

Any function `(body, name)` may be one. Ready are `STRING`, `BOOLEAN`, `NUMBER`, `INTEGER`, `STRINGS`, `OBJECT`,
`number(...)` and `integer(...)`.
"""


def _object(body: Node, name: str) -> dict[str, Any] | None:
    found = body.object(name)
    return None if found is None else dict(found.value)


STRING: Read = Node.string
"""A string."""
BOOLEAN: Read = Node.boolean
"""True or false."""
NUMBER: Read = Node.number
"""A number."""
STRINGS: Read = Node.strings
"""A list of strings."""
OBJECT: Read = _object
"""The object's fields; None if it is absent."""


def integer(*, convert: bool = False, least: int | None = None, most: int | None = None) -> Read:
    """Return a reader of whole numbers, as `Node.integer` reads them."""
    return partial(Node.integer, convert=convert, least=least, most=most)


INTEGER: Read = Node.integer
"""A whole number."""


def number(*, convert: bool) -> Read:
    """Return a reader of numbers; with `convert` also of strings that hold one."""
    return partial(Node.number, convert=convert)


class Row(NamedTuple):
    """One field.

    Attributes:
        name: Its name in the body; `options.seed` is the field `seed` of the object `options`.
        read: Reads and checks it. None: the dialect reads it itself, and the table only says where it is written.
        to: The attribute of `Request` that it is, such as `user_id` or `sampling.seed`. None: it has no place in the
            model; a client's value is checked and stays among the fields that only this dialect knows.
        write: Makes the field's value of the attribute's; what becomes None is not sent. Without it, both are equal.
            What it cannot say is recorded by `encode_request`, with `Context.lost.add`.
    """

    name: str
    read: Read | None = None
    to: str | None = None
    write: Callable[[Any], Any] | None = None


_SAMPLING = tuple(Sampling.__dataclass_fields__)
_FEATURES: dict[str, Feature] = {
    "model": Feature.MODEL,
    "tools": Feature.TOOLS,
    "tool_choice": Feature.TOOL_CHOICE,
    "parallel_tool_calls": Feature.PARALLEL_TOOL_CALLS,
    "response_format": Feature.RESPONSE_FORMAT,
    "reasoning_effort": Feature.REASONING_EFFORT,
    "user_id": Feature.USER_ID,
    "thread_id": Feature.THREAD_ID,
    "metadata": Feature.METADATA,
    "context": Feature.CONTEXT,
    "state": Feature.STATE,
    "resume": Feature.RESUME,
    **{f"sampling.{name}": Feature.SAMPLING for name in _SAMPLING},
}
"""What a request may ask for, by the attribute that says it."""
_ATTRIBUTES = frozenset(Request.__dataclass_fields__) | {f"sampling.{name}" for name in _SAMPLING}
OF_OTHERS = "fields of other dialects"
_NOTHING: tuple[Any, ...] = (None, "", [], {})
_ORDERS = 256
"""Sets of fields whose order is remembered: most requests have the same few."""


class Fields:
    """The fields of one object of a request's body, in the order in which they are written."""

    __slots__ = (
        "_carried",
        "_common",
        "_dialect",
        "_objects",
        "_order",
        "_ranks",
        "_readers",
        "_rows",
        "_values",
        "known",
    )

    def __init__(
        self,
        dialect: str,
        *rows: Row,
        also: Collection[str] = (),
        carries: Collection[str] = (),
        common: Collection[str] = (),
        has_model: bool = True,
    ) -> None:
        """The table of one dialect.

        Arguments:
            dialect: The key of its extras.
            rows: Its fields.
            also: Names of further fields that the dialect reads itself.
            carries: Attributes of `Request` that it carries elsewhere than in a row.
            common: Fields of `Request.shared` that it writes.
            has_model: Whether a request can name a model, in a row or elsewhere.

        Raises `ValueError` for a row of an attribute that requests do not have.
        """
        if wrong := sorted({row.to for row in rows if row.to is not None} - _ATTRIBUTES):
            raise ValueError(f"{dialect}: no attribute of a Request: {', '.join(wrong)}")
        inner: dict[str, list[Row]] = {}
        for row in rows:
            if "." in row.name:
                inner.setdefault(row.name.partition(".")[0], []).append(row._replace(name=row.name.partition(".")[2]))
        outer = [row for row in rows if "." not in row.name]
        self._objects = {name: Fields(dialect, *of_object) for name, of_object in inner.items()}
        self.known = frozenset(also).union(inner, (row.name for row in outer if row.to is not None or row.read is None))
        """The fields that have a place in the model; all others travel as they are."""
        self._dialect = dialect
        self._common = frozenset(common)
        self._rows = [(row.name, row.to, row.write) for row in rows if row.to is not None]
        self._values = _getter([row.to for row in rows if row.to is not None])
        # What is given for a whole object comes after its rows.
        self._ranks: dict[str, float] = {}
        for rank, row in enumerate(rows):
            self._ranks[row.name] = rank
            if "." in row.name:
                self._ranks[row.name.partition(".")[0]] = rank + 0.5
        self._order = lru_cache(_ORDERS)(self._ordered)
        self._readers = {row.name: (row.read, *_owner(row.to)) for row in outer if row.read is not None}
        said = frozenset(row.to for row in rows if row.to is not None)
        self._carried = said.union(carries, {"model"} if has_model else ())

    def read(
        self, body: Node, request: Request, *, only: Collection[str] | None = None, tolerant: bool = False
    ) -> dict[str, Any]:
        """Set what the rows say, and return the fields that have no place in the model.

        Of two rows for one attribute the later one counts. Raises `RequestError` with the place of what is wrong.

        Arguments:
            body: The object.
            request: What it asks for.
            only: The fields that are read, None for all; the others are returned as unknown ones are.
            tolerant: Fields of another type are returned as well, and raise nothing.
        """
        values, known = body.value, self.known
        if only is not None:
            known = known.intersection(only)
        for name in sorted(self._readers.keys() & values.keys(), key=self._ranks.__getitem__):
            if only is not None and name not in only:
                continue
            read, of_sampling, attribute = self._readers[name]
            try:
                value = read(body, name)
            except RequestError:
                if not tolerant:
                    raise
                known = known - {name}
                continue
            if value is not None and attribute:
                setattr(request.sampling if of_sampling else request, attribute, value)
        rest = body.rest(known)
        for name, table in self._objects.items():
            inner = body.object(name) if only is None or name in only else None
            if inner is not None and (left := table.read(inner, request, tolerant=tolerant)):
                rest[name] = left
        return rest

    def write(
        self,
        request: Request,
        lost: Losses,
        given: Mapping[str, Any] | None = None,
        *,
        only: Collection[str] | None = None,
        carries: Collection[str] = (),
    ) -> dict[str, Any]:
        """Return the fields that the request says something about, and record what it says and no field carries.

        Arguments:
            request: What is asked for.
            lost: Where losses are recorded.
            given: Values of fields that the dialect makes itself; None leaves a field out, which is then no loss.
                A value for a whole object is added to its fields. Each needs a row, or it raises `ValueError`.
            only: The fields that are sent, None for all; what others say is lost.
            carries: Further attributes of this request that are carried elsewhere.
        """
        made = dict(given or ())
        for (name, _, write), value in zip(self._rows, self._values(request), strict=True):
            if value is not None and name not in made:
                made[name] = value if write is None else write(value)
        order = self._order(tuple(made))
        if only is not None:
            order = [name for name in order if name in only]
        out = {name: value for name in order if (value := made[name]) is not None}
        carried = self._carried
        if only is not None:
            in_rows = {to for name, to, _ in self._rows if name in only}
            carried = carried.difference(to for _, to, _ in self._rows if to not in in_rows)
        self._lose(request, lost, carried.union(carries) if carries else carried)
        return self._nested(out) if self._objects else out

    def _ordered(self, names: tuple[str, ...]) -> Sequence[str]:
        """Return the names of fields in their order. Raises `ValueError` for a name without a row."""
        if unknown := sorted(set(names) - self._ranks.keys()):
            raise ValueError(f"{self._dialect}: no row for {', '.join(unknown)}")
        return sorted(names, key=self._ranks.__getitem__)

    def _nested(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with those of an object in it."""
        out: dict[str, Any] = {}
        for name, value in fields.items():
            owner, _, inner = name.partition(".")
            if owner in self._objects:
                out.setdefault(owner, {}).update({inner: value} if inner else value)
            else:
                out[name] = value
        return out

    def _lose(self, request: Request, lost: Losses, carried: frozenset[str]) -> None:
        values, unsaid = _left(carried)
        if values(request) != unsaid:
            self._lose_fields(request, lost, carried)
        if self._loses_extras(request):
            lost.add(Feature.EXTRAS, OF_OTHERS)

    def _lose_fields(self, request: Request, lost: Losses, carried: frozenset[str]) -> None:
        for name, feature in _PLAIN.items():
            if name in carried or (value := getattr(request, name)) in _NOTHING or not _asks(name, value):
                continue
            if name != "thread_id" or "metadata" not in carried or value not in request.metadata.values():
                lost.add(feature)
        if request.sampling != _UNSAID:
            values = {name: getattr(request.sampling, name) for name in _SAMPLING if f"sampling.{name}" not in carried}
            if said := [name for name, value in values.items() if value is not None and _asks(name, value)]:
                lost.add(Feature.SAMPLING, ", ".join(said))

    def _loses_extras(self, request: Request) -> bool:
        """Return whether a request has fields of other dialects, or shared ones that are not written."""
        if request.extras and request.has_fields_of_others(self._dialect, self._common):
            return True
        if not request.shared or self._dialect in (request.extras or ()):
            return False
        left = request.shared.keys() - self._common - {"logprobs"}  # which `Request.logprobs` says as well
        return any(request.shared[name] for name in left)


_PLAIN = {name: feature for name, feature in _FEATURES.items() if "." not in name}
_UNSAID = Sampling()


def _getter(names: Sequence[str]) -> Callable[[Request], tuple[Any, ...]]:
    """Return a function that returns these attributes of a request."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda request: tuple(attrgetter(name)(request) for name in names)


@lru_cache(maxsize=256)
def _left(carried: frozenset[str]) -> tuple[Callable[[Request], tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that returns what a request may ask for beside these attributes, and what it returns for a
    request that asks for nothing.
    """
    values = _getter([name for name in _FEATURES if name not in carried])
    return values, values(Request([]))


def thread_in(metadata: Mapping[str, Any], wire: WireRequest) -> str | None:
    """Return the thread of a request whose protocol has none: clients name one in the metadata or in a header."""
    for name in ("session_id", "thread_id") if metadata else ():
        value = metadata.get(name)
        if isinstance(value, str) and value:
            return value
    return wire.headers.get("x-session-id") or None


def _owner(to: str | None) -> tuple[bool, str]:
    """Return whether an attribute is one of the sampling, and its name."""
    owner, _, name = (to or "").rpartition(".")
    return owner == "sampling", name


def _asks(name: str, value: Any) -> bool:
    """Return whether a value asks for something that APIs do not do anyway."""
    match name:
        case "tool_choice":
            return bool(value.mode is not ToolMode.AUTO or value.names)
        case "parallel_tool_calls":
            return value is False
        case "response_format":
            return bool(value.kind != "text")
        case "n":
            return bool(value != 1)
    return True
