"""`RpcPeer`: one side of a JSON-RPC connection, without I/O.

It is given frames, one JSON text each, and says what they mean; what it has to send waits until it is taken:

    peer = RpcPeer(methods={"ping"})
    number = peer.request("initialize", {"version": 1})
    send(peer.take())
    for event in peer.receive(frame):
        match event:
            case RpcResponse() if event.id == number:
                ...
            case RpcRequest():
                peer.respond(event.id, {})

Both sides number their requests by themselves: the same id may be in use in both directions.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from bridge.errors import shortened
from bridge.jsonrpc.rpc_messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    InvalidMessage,
    RpcError,
    RpcId,
    RpcMessage,
    RpcNotification,
    RpcParams,
    RpcRequest,
    RpcResponse,
    may_be_deep,
    message_of,
    parse,
)
from bridge.model.jsontext import dumps

MAX_FRAME = 32 * 1024 * 1024
"""Bytes of a message; the limit of the common implementation for JavaScript."""
MAX_BATCH = 1000
"""Messages in a batch."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """A frame, or a message in it, that asks nothing of the program. `reason` is for the log and repeats no content.

    `error`: what is wrong with it; None for what a correct peer may send: calls of unknown methods, and late responses.
    """

    reason: str
    error: RpcError | None = None


Received = RpcRequest | RpcNotification | RpcResponse | Ignored


@dataclass(slots=True)
class _Batch:
    """A batch of the other side: its answers are sent together, when the last one is there."""

    waiting: int = 0
    answers: list[dict[str, Any]] = field(default_factory=list)


class RpcPeer:
    """One side of a connection.

    `methods`: the requests that the program answers, and `notifications` that it knows; None = all. Unknown requests
    are answered with -32601, unknown notifications are ignored. `batches`: lists of messages are accepted, else
    refused; it may be set when the version of the protocol is known. `answers_invalid`: what is not a message is
    answered with -32700 or -32600, as the specification demands; False for programs that may write other things than
    messages. `max_open`: requests of the other side that may wait for their answer; further ones are refused.
    `max_pending`: requests of this side that may. `max_frame`: bytes of a message that is sent.
    """

    def __init__(
        self,
        methods: Container[str] | None = None,
        notifications: Container[str] | None = None,
        *,
        batches: bool = False,
        answers_invalid: bool = True,
        max_open: int = 1000,
        max_pending: int = 1000,
        max_frame: int = MAX_FRAME,
    ) -> None:
        self.batches = batches
        self._methods = methods
        self._notifications = notifications
        self._answers_invalid = answers_invalid
        self._max_open = max_open
        self._max_pending = max_pending
        self._max_frame = max_frame
        self._next = 0
        self._pending: dict[RpcId, str] = {}
        self._open: dict[RpcId, _Batch | None] = {}
        self._frames: list[bytes] = []
        self._unsent = self._refusals = 0

    # ------------------------------------------------------------------ what is to be sent

    @property
    def unsent(self) -> int:
        """The bytes that wait to be taken."""
        return self._unsent

    @property
    def refusals(self) -> int:
        """How many of the frames that wait are answers of this class: to unknown methods and invalid messages."""
        return self._refusals

    def take(self) -> list[bytes]:
        """Return the frames that are to be sent, in order, and forget them."""
        frames, self._frames, self._unsent, self._refusals = self._frames, [], 0, 0
        return frames

    # ------------------------------------------------------------------ this side

    @property
    def pending(self) -> Mapping[RpcId, str]:
        """The requests of this side that have no response yet: their ids and methods."""
        return MappingProxyType(self._pending)

    def request(self, method: str, params: RpcParams | None = None) -> int:
        """Send a request and return its id: a number from 0, never used twice.

        Raises `RuntimeError` when too many requests are pending, `ValueError` for a message that is too long.
        """
        if len(self._pending) >= self._max_pending:
            raise RuntimeError(f"{method}: {self._max_pending} requests are pending; wait for responses")
        number = self._next
        self._send(RpcRequest.of(number, method, params))
        self._next += 1
        self._pending[number] = method
        return number

    def notify(self, method: str, params: RpcParams | None = None) -> int:
        """Send a notification, and return its bytes. Raises `ValueError` for a message that is too long."""
        return self._send(RpcNotification.of(method, params))

    def abandon(self, request_id: RpcId) -> bool:
        """Stop waiting for a response, which is ignored when it comes. Return False if none is pending."""
        return self._pending.pop(request_id, None) is not None

    # ------------------------------------------------------------------ the other side

    @property
    def open(self) -> frozenset[RpcId]:
        """The requests of the other side that have no answer yet."""
        return frozenset(self._open)

    def respond(self, request_id: RpcId, answer: Any) -> bool:
        """Answer a request of the other side with a result or an `RpcError`.

        An answer that is too long is replaced by an error that says so. Return False if the request is not open: it was
        answered or withdrawn. Raises `TypeError` for a result that JSON cannot express; the request stays open.
        """
        if request_id not in self._open:
            return False
        response = RpcResponse.of(request_id, answer)
        frame = response.encode()
        if len(frame) > self._max_frame:
            text = f"The answer has {len(frame)} bytes, more than the limit of {self._max_frame}."
            response = RpcResponse.of(request_id, RpcError(INTERNAL_ERROR, text))
            frame = response.encode()
        batch = self._open.pop(request_id)
        if batch is None:
            self._queue(frame)
        else:
            self._add(batch, response)
        return True

    def withdraw(self, request_id: RpcId) -> bool:
        """Forget a request of the other side without an answer. Return False if it is not open."""
        if request_id not in self._open:
            return False
        batch = self._open.pop(request_id)
        if batch is not None:
            self._add(batch, None)
        return True

    def refuse(self, error: RpcError) -> None:
        """Send an error that answers no request, with the id null: for a frame that could not be read."""
        self._refuse(None, error, None)
        self._refusals += 1

    def receive(self, frame: bytes) -> list[Received]:
        """Return what a frame means: one event, or one for each message of a batch.

        Requests wait for `respond`. Responses belong to a request of this side, which is pending no longer.
        """
        waiting = len(self._frames)
        events = self._events(frame)
        self._refusals += len(self._frames) - waiting
        return events

    def _events(self, frame: bytes) -> list[Received]:
        try:
            value = parse(frame)
            if not isinstance(value, list):
                return [self._message(value, may_be_deep(frame), None)]
            self._check_batch(value)
        except InvalidMessage as invalid:
            return [self._invalid(invalid, None)]
        batch, deep = _Batch(waiting=1), may_be_deep(frame)
        events = [self._message(each, deep, batch) for each in value]
        self._add(batch, None)  # without requests the batch is done
        return events

    def _check_batch(self, messages: list[Any]) -> None:
        if not self.batches:
            raise InvalidMessage(INVALID_REQUEST, "Invalid request: expected an object, got a list.")
        if not 0 < len(messages) <= MAX_BATCH:
            text = f"Invalid request: expected a batch of 1 to {MAX_BATCH} messages, got {len(messages)}."
            raise InvalidMessage(INVALID_REQUEST, text)

    def _message(self, value: object, deep: bool, batch: _Batch | None) -> Received:
        try:
            message = message_of(value, deep=deep)
        except InvalidMessage as invalid:
            return self._invalid(invalid, batch)
        match message:
            case RpcRequest():
                return self._request(message, batch)
            case RpcResponse():
                return self._response(message)
        if self._notifications is not None and message.method not in self._notifications:
            return Ignored(f"a notification of the unknown method {shortened(message.method)!r}")
        return message

    def _request(self, request: RpcRequest, batch: _Batch | None) -> Received:
        if request.id in self._open:
            error = RpcError(INVALID_REQUEST, f"Invalid request: the id {_shown(request.id)} is in use.")
        elif self._methods is not None and request.method not in self._methods:
            error = RpcError(METHOD_NOT_FOUND, "Method not found", {"method": shortened(request.method)})
        elif len(self._open) >= self._max_open:
            error = RpcError(INTERNAL_ERROR, f"Too many requests are open: the limit is {self._max_open}.")
        else:
            self._open[request.id] = batch
            if batch is not None:
                batch.waiting += 1
            return request
        self._refuse(request.id, error, batch)
        reason = f"a request of the method {shortened(request.method)!r} ({error.code})"
        return Ignored(reason, None if error.code == METHOD_NOT_FOUND else error)

    def _response(self, response: RpcResponse) -> Received:
        if self._pending.pop(response.id, None) is not None:
            return response
        if isinstance(response.id, int) and 0 <= response.id < self._next:
            return Ignored("a response to a request that waits no longer")
        return Ignored("a response to no request", RpcError(INVALID_REQUEST, "Invalid response: unknown id."))

    def _invalid(self, invalid: InvalidMessage, batch: _Batch | None) -> Ignored:
        if self._answers_invalid:
            self._refuse(invalid.id, invalid.error, batch)
        return Ignored(f"what is not a message ({invalid.error.code})", invalid.error)

    # ------------------------------------------------------------------ sending

    def _send(self, message: RpcMessage) -> int:
        frame = message.encode()
        if len(frame) > self._max_frame:
            raise ValueError(f"the message has {len(frame)} bytes, more than the limit of {self._max_frame}")
        self._queue(frame)
        return len(frame)

    def _queue(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._unsent += len(frame)

    def _refuse(self, message_id: RpcId, error: RpcError, batch: _Batch | None) -> None:
        response = RpcResponse.of(message_id, error)
        if batch is not None:
            batch.answers.append(response.members)
        else:
            self._queue(response.encode())

    def _add(self, batch: _Batch, answer: RpcResponse | None) -> None:
        """One message of the batch is done."""
        if answer is not None:
            batch.answers.append(answer.members)
        batch.waiting -= 1
        if not batch.waiting and batch.answers:
            self._queue(dumps(batch.answers))


def _shown(request_id: RpcId) -> str:
    return repr(shortened(request_id)) if isinstance(request_id, str) else str(request_id)
