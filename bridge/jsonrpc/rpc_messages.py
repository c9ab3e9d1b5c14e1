"""The messages of JSON-RPC 2.0: requests, notifications, responses, and the errors in responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from bridge.model.jsontext import (
    MAX_DEPTH,
    NESTABLE,
    deeper_than,
    dict_of,
    dumps,
    kind_of,
    loads,
    loads_repaired,
    may_nest,
    text_of,
)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
"""The code of a request that its sender cancelled. Not of JSON-RPC, but common to the protocols on top of it."""

RpcId = str | int | float | None
"""The id of a request. Null is an id, too; a message without an id is a notification."""
RpcParams = Mapping[str, Any] | Sequence[Any]
"""The parameters of a request or notification: by name or, rarely, by position."""


class RpcError(Exception):
    """The error of a response: raised by `call`, and by handlers as their answer.

    `message` is one sentence for people; `data` is any JSON value, None if there is none.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def of(cls, members: object) -> Self:
        """Return the error in a response of the other side, however incomplete: the code is -32603 if there is none."""
        error = dict_of(members)
        code = error.get("code")
        known = code if isinstance(code, int) and not isinstance(code, bool) else INTERNAL_ERROR
        return cls(known, text_of(error.get("message")), error.get("data"))

    @property
    def members(self) -> dict[str, Any]:
        """The error as a JSON object."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        return error if self.data is None else {**error, "data": self.data}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code}, {self.message!r})"


class RpcMessage:
    """Base of the messages. `members` is the JSON object, in the order of the wire and with members of extensions."""

    __slots__ = ("members",)

    def __init__(self, members: dict[str, Any]) -> None:
        self.members = members

    def encode(self) -> bytes:
        """Return the message as compact JSON, without a line end. Raises `TypeError` for what JSON cannot express."""
        return dumps(self.members)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.members == self.members

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        # Without parameters and results: a repr ends up in logs.
        shown = {name: self.members[name] for name in ("id", "method") if name in self.members}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class _Call(RpcMessage):
    __slots__ = ()

    @property
    def method(self) -> str:
        """The name of the method."""
        name: str = self.members["method"]
        return name

    @property
    def params(self) -> Any:
        """The parameters: an object, a list, or None if there are none."""
        return self.members.get("params")


class RpcRequest(_Call):
    """A call that expects a response."""

    __slots__ = ()

    @classmethod
    def of(cls, request_id: RpcId, method: str, params: RpcParams | None = None) -> Self:
        rest = {} if params is None else {"params": params}
        return cls({"jsonrpc": "2.0", "id": request_id, "method": method, **rest})

    @property
    def id(self) -> RpcId:
        """The id, which is unique among the open requests of one side."""
        return _id_of(self.members)


class RpcNotification(_Call):
    """A call that expects no response."""

    __slots__ = ()

    @classmethod
    def of(cls, method: str, params: RpcParams | None = None) -> Self:
        rest = {} if params is None else {"params": params}
        return cls({"jsonrpc": "2.0", "method": method, **rest})


class RpcResponse(RpcMessage):
    """The answer to a request: a result or an error."""

    __slots__ = ()

    @classmethod
    def of(cls, request_id: RpcId, answer: Any) -> Self:
        """Return the response to a request. `answer`: the result, or an `RpcError`."""
        rest = {"error": answer.members} if isinstance(answer, RpcError) else {"result": answer}
        return cls({"jsonrpc": "2.0", "id": request_id, **rest})

    @property
    def id(self) -> RpcId:
        """The id of the request; None also for the response to a message whose id could not be read."""
        return _id_of(self.members)

    @property
    def result(self) -> Any:
        """The result; None if the response is an error."""
        return self.members.get("result")

    @property
    def error(self) -> RpcError | None:
        """The error; None if there is a result."""
        error = self.members.get("error")
        if error is None and "result" not in self.members:
            return RpcError(INTERNAL_ERROR, "The response has neither a result nor an error.")
        return None if error is None else RpcError.of(error)


class InvalidMessage(Exception):
    """What came is not a message. `id` is that of the request that it was meant to be, None if it has none."""

    def __init__(self, code: int, message: str, message_id: RpcId = None) -> None:
        super().__init__(message)
        self.error = RpcError(code, message)
        self.id = message_id


def parse(frame: bytes) -> Any:
    """Return the JSON value of one frame. Lone surrogates in it become U+FFFD.

    Raises `InvalidMessage` with the code -32700.
    """
    try:
        return loads(frame)
    except ValueError as error:
        try:
            return loads_repaired(frame.decode())
        except UnicodeDecodeError as undecodable:
            reason = f"byte {undecodable.start} is not UTF-8"
        except ValueError:
            reason = str(error).partition(":")[0]
            position = getattr(error, "pos", None)
            reason = f"{reason} at character {position}" if position is not None else reason
    raise InvalidMessage(PARSE_ERROR, f"Parse error: {reason}.")


def message_of(value: object, *, deep: bool = False) -> RpcRequest | RpcNotification | RpcResponse:
    """Return the message that a JSON value is. `deep`: it may be nested deeper than the project allows.

    Only requests and notifications are checked for `jsonrpc`: a response without it still answers a request of ours.
    Raises `InvalidMessage` with the code -32600.
    """
    if not isinstance(value, dict):
        raise InvalidMessage(INVALID_REQUEST, f"Invalid request: expected an object, got {kind_of(value)}.")
    too_deep = deep and deeper_than(value, MAX_DEPTH)
    if "method" not in value and ("result" in value or "error" in value):
        error = RpcError(INTERNAL_ERROR, f"The response is nested deeper than {MAX_DEPTH} levels.")
        return RpcResponse.of(_id_of(value), error) if too_deep else RpcResponse(value)
    if "id" in value and not _is_id(value["id"]):
        raise _invalid(value, f"id: expected a string, a number or null, got {kind_of(value['id'])}")
    method, params = value.get("method"), value.get("params")
    if not isinstance(method, str):
        got = kind_of(method) if "method" in value else "nothing"
        raise _invalid(value, f"method: expected a string, got {got}")
    if value.get("jsonrpc") != "2.0":
        raise _invalid(value, 'jsonrpc: expected "2.0"')
    if not isinstance(params, dict | list | None):
        raise _invalid(value, f"params: expected an object or a list, got {kind_of(params)}")
    if too_deep:
        raise _invalid(value, f"nested deeper than {MAX_DEPTH} levels")
    return RpcRequest(value) if "id" in value else RpcNotification(value)


def may_be_deep(frame: bytes) -> bool:
    """A cheap look: can this frame be nested deeper than the project allows at all?"""
    return len(frame) > NESTABLE and may_nest(frame)


def _is_id(value: object) -> bool:
    return isinstance(value, str | int | float | None) and not isinstance(value, bool)


def _id_of(members: Mapping[str, Any]) -> RpcId:
    value = members.get("id")
    return value if _is_id(value) else None


def _invalid(members: Mapping[str, Any], reason: str) -> InvalidMessage:
    return InvalidMessage(INVALID_REQUEST, f"Invalid request: {reason}.", _id_of(members))
