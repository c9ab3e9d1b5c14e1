"""One run at the service: its requests in their order, and what comes of them.

A session is found or created, its state and the position in its stream are read, the stream is opened after that
position, and only then the run is started; only the session's state shows that a reply waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from hashlib import sha256
from typing import Any, TypeGuard
from weakref import WeakValueDictionary

from bridge.contract import Context, FrameLike, Step, WireRequest, WireResponse, json_request
from bridge.dialects.agentscope_service.calls import Waiting, waiting_in
from bridge.dialects.agentscope_service.options import BackOptions
from bridge.dialects.agentscope_service.read_answer import Decoder
from bridge.dialects.agentscope_service.write_request import (
    USER_HEADER,
    MessageWriter,
    answers_in,
    chat_request,
    note_losses,
    session_body,
)
from bridge.errors import BackendError, ErrorCode, Failure, RequestError
from bridge.model import Request
from bridge.model.events import TERMINAL, Event
from bridge.model.jsontext import dumps, read_json

_BUSY = (0.1, 0.2, 0.4, 0.8, 1.6, 1.6, 1.6)
"""Seconds before a run is requested again while the session is busy with the previous one."""
_REOPEN = (0.2, 0.5, 1.0)
"""Seconds before a stream that broke is opened again."""
_STOPPING = (0.05, *(0.1,) * 49)
"""Seconds before each poll of a session whose waiting reply was interrupted."""
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0
"""Seconds of silence before the session's state is polled: the first, doubling to the longest."""
_ANSWERED_LOOK = 0.5
"""The first one where nothing but an answer was given: its run has to begin before its state means anything."""
_MOST_IDLE = 5
"""Polls of an idle session whose stream does not bring the end."""
_MOST_FAILED = 3
_LONGEST_NAME = 80
_KNOWN = 10_000
"""Sessions whose ids are remembered."""


class _Stage(Enum):
    """The next request."""

    AGENT = auto()
    FIND = auto()
    MAKE = auto()
    PERMIT = auto()
    LOOK = auto()
    STOP = auto()
    OPEN = auto()
    POST = auto()
    READ = auto()
    PENDING = auto()


class Calling:
    """One run. See `bridge.contract.SteppedRun` for what each method promises.

    Raises `Unsupported` for a request that cannot be expressed.
    """

    def __init__(self, request: Request, context: Context, options: BackOptions, memo: dict[str, Any]) -> None:
        self._said = MessageWriter(context, options).write(request)
        note_losses(request, context, options)
        self._request = request
        self._context = context
        self._options = options
        self._memo = memo
        self._decoder = Decoder(context)
        self._headers = {USER_HEADER: options.user_id}
        thread = context.thread_id or context.run_id
        long = len(thread) > _LONGEST_NAME
        self._name = f"bridge {sha256(thread.encode('utf-8', 'surrogatepass')).hexdigest() if long else thread}"
        # Without a name of the client's own for it, the session is this request's alone, unless it waits at the end.
        self._alone = not context.names_thread
        self._answering = bool(request.resume or self._said.results)
        self._agent = options.agent_id or memo.get("agent") or ""
        self._agent_remembered = not options.agent_id and bool(self._agent)
        self._session = ""
        self._new = False
        self._remembered = False
        self._cursor: str | None = None
        self._inputs: list[Any] = []
        self._tries = 0
        self._pause = 0.0
        self._opening = False
        self._broken = False
        self._started = False
        self._taken = False
        self._ended = False
        self._closed = False
        self._waits = False
        self._silence = _FIRST_LOOK
        self._idle = 0
        self._stage = _Stage.FIND
        self._begin()

    def _begin(self) -> None:
        if not self._agent:
            self._stage = _Stage.AGENT
        elif (known := self._sessions.get(self._key)) is not None:
            self._session, self._remembered = known, True
            self._stage = _Stage.LOOK
        else:
            self._stage = _Stage.FIND if self._answering or not self._alone else _Stage.MAKE

    @property
    def _sessions(self) -> OrderedDict[tuple[str, str], str]:
        """The ids of sessions by the agent and their names."""
        found: OrderedDict[tuple[str, str], str] = self._memo.setdefault("sessions", OrderedDict())
        return found

    @property
    def _key(self) -> tuple[str, str]:
        return self._agent, self._name

    def _remember(self) -> None:
        self._sessions[self._key] = self._session
        self._sessions.move_to_end(self._key)
        if len(self._sessions) > _KNOWN:
            self._sessions.popitem(last=False)

    # ------------------------------------------------------------------ asking

    def next(self) -> Step | None:
        match self._stage:
            case _Stage.AGENT:
                return Step(self._get("/agent/"))
            case _Stage.FIND:
                return Step(self._get("/sessions/", agent_id=self._agent))
            case _Stage.MAKE:
                body = session_body(self._agent, self._name, self._request, self._context, self._options)
                return Step(json_request("/sessions/", dumps(body), self._headers))
            case _Stage.PERMIT:
                wire = json_request(self._path(), dumps({"permission_mode": self._options.permission_mode}))
                return Step(
                    WireRequest("PATCH", wire.path, {**wire.headers, **self._headers}, self._query(), body=wire.body)
                )
            case _Stage.LOOK | _Stage.PENDING:
                return Step(self._get(self._path("/messages"), **self._query(), limit="2"), self._pause)
            case _Stage.STOP:
                return Step(WireRequest("POST", self._path("/interrupt"), self._headers, self._query()))
            case _Stage.OPEN:
                return self._open()
            case _Stage.POST:
                self._started = True
                return Step(chat_request(self._agent, self._session, self._inputs[0], self._options), self._pause)
        return self._look_at_state()

    def _open(self) -> Step | None:
        """Read the stream; once it is open, make the requests beside it."""
        if self._opening:
            self._opening, self._pause = False, 0.0
            self._stage = _Stage.POST if self._inputs else _Stage.READ
            return self.next()
        self._opening = True
        after = {"after": self._cursor} if self._cursor is not None else {}
        wire = self._get(self._path("/stream"), **self._query(), **after)
        return Step(
            WireRequest("GET", wire.path, {**wire.headers, "accept": "text/event-stream"}, wire.query), self._pause
        )

    def _look_at_state(self) -> Step | None:
        """Poll the state when it may have changed in a way that the stream does not show: the reply waits, or an
        interrupt or a restart of the service ended the run before its reply began.
        """
        decoder = self._decoder
        if self._broken or decoder.waits or (self._answering and decoder.heard):
            pause = self._silence
        elif not decoder.has_begun:
            pause = _LONGEST_LOOK
        else:
            return None
        return Step(self._get(self._path("/status"), **self._query()), pause)

    def _get(self, path: str, **query: str) -> WireRequest:
        return WireRequest("GET", path, self._headers, query)

    def _path(self, more: str = "") -> str:
        return f"/sessions/{self._session}{more}"

    def _query(self) -> dict[str, str]:
        return {"agent_id": self._agent}

    # ------------------------------------------------------------------ answers

    def whole(self, answer: WireResponse) -> list[Event]:
        match self._stage:
            case _Stage.AGENT:
                self._found_agent(_object(answer))
            case _Stage.FIND:
                self._found_session(_object(answer))
            case _Stage.MAKE:
                self._made(_object(answer))
            case _Stage.PERMIT:
                self._go_on_with(self._whole_inputs())
            case _Stage.LOOK:
                self._looked(_object(answer))
            case _Stage.STOP:
                self._stage = _Stage.LOOK
            case _Stage.OPEN:
                raise BackendError("The backend's answer is not an event stream.", code=ErrorCode.BACKEND_PROTOCOL)
            case _Stage.POST:
                self._replace_previous()
                self._inputs.pop(0)
                self._taken, self._tries, self._pause = True, 0, 0.0
                self._stage = _Stage.POST if self._inputs else _Stage.READ
            case _Stage.READ:
                return self._state(_object(answer))
            case _Stage.PENDING:
                self._decoder.wait(waiting_in(_last(_object(answer))))
                return self._parked()
        return []

    def _replace_previous(self) -> None:
        """Mark the previous run of this session as ended: the service accepts no run while another is in progress.

        A further interrupt for the previous run would end this one.
        """
        running: WeakValueDictionary[str, Calling] = self._memo.setdefault("running", WeakValueDictionary())
        before = running.get(self._session)
        if before is not None and before is not self:
            before._ended = True
        running[self._session] = self

    def _found_agent(self, body: dict[str, Any]) -> None:
        agents = [a["id"] for a in _list(body, "agents") if isinstance(a, dict) and isinstance(a.get("id"), str)]
        if len(agents) != 1:
            raise BackendError(
                f"The agent service has {len(agents)} agents for this user: expected one, or the option agent_id."
            )
        self._agent = self._memo["agent"] = agents[0]
        self._begin()

    def _found_session(self, body: dict[str, Any]) -> None:
        for view in _list(body, "sessions"):
            session = view.get("session") if isinstance(view, dict) else None
            config = session.get("config") if isinstance(session, dict) else None
            named = isinstance(config, dict) and config.get("name") == self._name
            if named and session is not None and _is_id(session.get("id")):
                self._session = session["id"]
                self._remember()
                self._stage = _Stage.LOOK
                return
        self._stage = _Stage.MAKE

    def _made(self, body: dict[str, Any]) -> None:
        session = body.get("session_id")
        if not _is_id(session):
            raise BackendError("The backend created a session without an id.", code=ErrorCode.BACKEND_PROTOCOL)
        self._session, self._new = session, True
        if not self._alone:
            self._remember()
        if self._request.resume:
            raise _nothing_waits()
        if self._options.permission_mode is not None:
            self._stage = _Stage.PERMIT
        else:
            self._go_on_with(self._whole_inputs())

    def _whole_inputs(self) -> list[Any]:
        self._answering = False
        return [self._said.whole or None]

    def _looked(self, body: dict[str, Any]) -> None:
        cursor = body.get("event_cursor")
        self._cursor = cursor if isinstance(cursor, str) else None
        waiting = waiting_in(_last(body))
        if waiting.calls and not (self._answering and self._answers(waiting)):
            # The waiting reply is discarded for the new message.
            if self._tries >= len(_STOPPING):
                raise BackendError("The session is still waiting for an answer.", code=ErrorCode.CONFLICT)
            self._pause = _STOPPING[self._tries]
            self._stage = _Stage.STOP if self._tries == 0 else _Stage.LOOK
            self._tries += 1
            return
        if not waiting.calls:
            if self._request.resume:
                raise _nothing_waits()
            known = bool(_list(body, "messages"))
            self._answering = False
            self._go_on_with([self._said.news or None] if known else [self._said.whole or None])

    def _answers(self, waiting: Waiting) -> bool:
        """Return whether the request answers some of the questions; the run continues then."""
        answers = answers_in(self._request, self._said, waiting)
        if not answers.inputs:
            return False
        self._decoder.goes_on(waiting, answers.answered, answers.brought)
        self._silence = _ANSWERED_LOOK
        self._go_on_with(list(answers.inputs))
        return True

    def _go_on_with(self, inputs: list[Any]) -> None:
        self._inputs, self._tries, self._pause = inputs, 0, 0.0
        self._stage = _Stage.OPEN

    def _state(self, body: dict[str, Any]) -> list[Event]:
        status = body.get("status")
        if isinstance(status, str) and status.startswith("awaiting_"):
            if self._decoder.waits:
                return self._parked()
            self._stage, self._pause = _Stage.PENDING, 0.0
        elif status == "idle":
            self._idle += 1
            if self._idle >= _MOST_IDLE:
                self._ended = True
                text = "The session is idle, and its stream did not bring the end of the run."
                return self.close(Failure(ErrorCode.TRUNCATED_STREAM, text))
        self._silence = min(2 * self._silence, _LONGEST_LOOK)
        return []

    def _parked(self) -> list[Event]:
        """The reply waits: so ends the run, and the session is kept."""
        self._ended = True
        if self._decoder.waits:
            self._waits = True
            self._remember()
            return self._decoder.close()
        return self._decoder.close(
            Failure(ErrorCode.TRUNCATED_STREAM, "The session is waiting, but no question or call is open.")
        )

    def refused(self, failure: Failure) -> bool:
        status = failure.details.get("backend_status")
        match self._stage:
            case _Stage.FIND | _Stage.MAKE if status == 404 and self._agent_remembered:
                # It is gone, or another user's: `forward_headers` may name one for each request.
                self._agent, self._agent_remembered = "", False
                self._begin()
                return True
            case _Stage.LOOK if self._remembered and status == 404:
                # It was deleted there.
                self._sessions.pop(self._key, None)
                self._session, self._remembered = "", False
                self._begin()
                return True
            case _Stage.POST if status == 409:
                return self._again(_BUSY)
            case _Stage.OPEN if self._opening:
                self._opening = False
                # The first time it shows that the session is not there.
                return self._started and status is None and self._again(_REOPEN)
            case _Stage.READ:
                self._idle += 1
                self._silence = _LONGEST_LOOK
                return self._idle <= _MOST_FAILED
        return False

    def _again(self, pauses: Sequence[float]) -> bool:
        """Return whether there is another try, after the next of these pauses."""
        if self._tries >= len(pauses):
            return False
        self._pause = pauses[self._tries]
        self._tries += 1
        return True

    # ------------------------------------------------------------------ the stream

    def opened(self, headers: Mapping[str, str]) -> None:
        """The head of a stream says nothing that its events do not."""

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        if not self._taken:
            return []  # of another run
        events = self._decoder.feed(frames)
        if frames:
            self._silence = min(self._silence, _ANSWERED_LOOK if self._answering else _FIRST_LOOK)
            self._idle = 0
        return self._noted(events)

    def ended(self, failure: Failure | None) -> list[Event]:
        self._stage, self._opening, self._broken = _Stage.OPEN, False, True
        self._decoder.reopened()
        if self._again(_REOPEN):
            return []
        return self.close(failure or Failure(ErrorCode.TRUNCATED_STREAM, "The stream of the session ended repeatedly."))

    def close(self, failure: Failure | None = None) -> list[Event]:
        if self._closed:
            return []
        self._closed = True
        events = self._decoder.close(failure or Failure(ErrorCode.TRUNCATED_STREAM, "The run did not finish."))
        self._decoder = self._decoder.rest()  # it shows when the service has interrupted the run
        return events

    def _noted(self, events: list[Event]) -> list[Event]:
        if events and type(events[-1]) in TERMINAL:
            self._ended = True
        return events

    # ------------------------------------------------------------------ the end

    @property
    def reads_again(self) -> bool:
        return not self._closed

    @property
    def working(self) -> bool:
        return bool(self._session) and (self._gone or (self._started and not self._ended))

    @property
    def misses_cancels(self) -> bool:
        # An interrupt that comes while the service stores or publishes an event has no effect (2.0.11). One that comes
        # after the end of the run would interrupt the next one.
        return not self._gone

    @property
    def _gone(self) -> bool:
        """The session is useless once the run is over."""
        return self._alone and not self._waits

    def cancel(self) -> WireRequest | None:
        if self._gone:
            # This ends a run that is on, too.
            self._sessions.pop(self._key, None)
            return WireRequest("DELETE", self._path(), self._headers, self._query())
        return WireRequest("POST", self._path("/interrupt"), self._headers, self._query())


def _object(answer: WireResponse) -> dict[str, Any]:
    body = read_json(answer.body)
    if not isinstance(body, dict):
        raise BackendError("The backend's answer is not a JSON object.", code=ErrorCode.BACKEND_PROTOCOL)
    return body


def _is_id(value: Any) -> TypeGuard[str]:
    """Return whether this can be the id of a session, which is part of paths."""
    return isinstance(value, str) and value.isascii() and value.replace("-", "").isalnum()


def _list(body: dict[str, Any], key: str) -> list[Any]:
    found = body.get(key)
    return found if isinstance(found, list) else []


def _last(body: dict[str, Any]) -> Any:
    messages = _list(body, "messages")
    return messages[-1] if messages else None


def _nothing_waits() -> RequestError:
    return RequestError(
        "resume: the agent is no longer waiting for an answer.", code=ErrorCode.CONFLICT, param="resume"
    )
