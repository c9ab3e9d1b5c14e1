"""Scripted backends without sockets: one that reads and writes the bytes of a dialect, and an agent in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from bridge.contract import Context, Dialect, WireResponse, wire_request
from bridge.contract.registry import resolve
from bridge.errors import BridgeError, Failure
from bridge.model import Event, Part, Request
from bridge.run.backends.local_backend import YieldAdapter
from bridge.translation import framing

Item = Event | Part | str
"""A piece of an answer, as an agent yields it: text, whole parts, events. Starts and ends are added."""

Turn = Sequence[Item] | Failure


class Script:
    """The answers of a backend in the order of its `requests`. The last answer is repeated."""

    def __init__(self, *items: Item) -> None:
        self.requests: list[Request] = []
        self._turns: list[Turn] = [items]

    def says(self, *items: Item) -> None:
        """Answers every request from now on with this."""
        self.turns(items)

    def fails(self, failure: Failure) -> None:
        """Refuses every request from now on."""
        self.turns(failure)

    def turns(self, *turns: Turn) -> None:
        """Answers the next requests one after another: each turn is a list of items, or a `Failure`."""
        if not turns:
            raise ValueError("turns: expected at least one list of items or Failure, got none")
        self._turns = list(turns)

    def next(self, request: Request) -> Turn:
        """The answer to this request."""
        self.requests.append(request)
        return self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]


@dataclass(slots=True)
class Reply:
    """An answer on the wire. A stream has one piece for each frame."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)


class ScriptedBackend(Script):
    """A backend of one dialect without sockets: it takes the bytes of a request and returns the bytes of its answer.

    It streams if the request asks for a stream, answers an invalid request with an error of its dialect, and has a
    default model.

        backend = ScriptedBackend("openai-chat", "Hello ", "world")
        reply = backend.reply(translator.request(body))
        for piece in reply.pieces:
            out += translator.feed(piece)
    """

    def __init__(self, dialect: str | Dialect, *items: Item) -> None:
        super().__init__(*items)
        self.dialect = resolve(dialect)

    def reply(
        self, body: bytes, headers: Mapping[str, str] | None = None, *, path: str = "", ended: bool = True
    ) -> Reply:
        """The answer to a request with this body; `headers` are the request's, with lower-case names.

        `path` is the request's, with the query, for dialects that use it.

        Without `ended` it stops after its last item, as if the backend had crashed there.
        """
        options, default = self.dialect.front_options(), "scripted"
        context = Context(f"run{len(self.requests) + 1}", None, 1_700_000_000.0, options, default)
        wire = wire_request(headers or {"content-type": self.dialect.content_type}, body, path)
        try:
            request = self.dialect.decode_request(wire, context)
        except BridgeError as error:
            return _whole(self.dialect.encode_error(error.failure))
        context.request, context.thread_id, context.model = request, request.thread_id, request.model
        turn = self.next(request)
        if isinstance(turn, Failure):
            return _whole(self.dialect.encode_error(turn))
        events, end = events_of(turn, context)
        if not request.stream:
            whole = _whole(self.dialect.assemble([*events, *end], context))
            return whole if ended else Reply(whole.status, whole.headers, [whole.body[: len(whole.body) // 2]])
        encoder = self.dialect.encoder(context)
        frames = encoder.encode(events)
        if ended:
            frames = [*frames, *encoder.encode(end)]
        wire_of = framing.of(self.dialect.framing)
        return Reply(200, {"content-type": wire_of.CONTENT_TYPE}, [wire_of.join([frame]) for frame in frames])


class ScriptedAgent(Script):
    """The same as an agent in this process: give it to `bridge_of`, or name it as a `python` backend's target."""

    async def __call__(self, request: Request) -> AsyncIterator[Item]:
        """Yields the items of the turn; raises the fitting `BridgeError` where the turn is a failure."""
        turn = self.next(request)
        if isinstance(turn, Failure):
            raise BridgeError.of(turn)
        for item in turn:
            yield item


def events_of(items: Sequence[Item], context: Context) -> tuple[list[Event], list[Event]]:
    """Return the events of a well-formed run with these items: its content, and its end."""
    builder = context.builder()
    builder.begin(model=context.model)
    adapter = YieldAdapter(builder)
    for item in items:
        adapter.add(item)
    events = builder.take()
    if not builder.finishing:
        builder.finish()
    builder.end()
    return events, builder.take()


def _whole(wire: WireResponse) -> Reply:
    return Reply(wire.status, wire.headers, [wire.body])
