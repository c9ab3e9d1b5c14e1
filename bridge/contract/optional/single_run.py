"""The optional contract of dialects in which a session has one run at a time: identify the session, stop it, reconnect.

The server refuses a second run of a session, or lets it supersede the first:
`bridge.server.operations.single_run_endpoints`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from bridge.contract.context import Context
from bridge.contract.dialect import Dialect, Options
from bridge.contract.wire import WireRequest, WireResponse
from bridge.model.jsontext import dumps
from bridge.model.request import Request


class SingleRunOptions(Options):
    """The route options that the server reads; dialects add their own."""

    supersede: bool = Field(
        False,
        description="A request for a session with a running run cancels that run; false: the request is refused."
        " For: the web frontend, whose cancel button sends nothing.",
    )


@dataclass(frozen=True, slots=True)
class SessionRef:
    """A session as requests name it. Sessions of two users with the same id are different."""

    session_id: str
    user_id: str | None = None

    @property
    def key(self) -> str:
        """One text for both."""
        return self.session_id if self.user_id is None else dumps([self.user_id, self.session_id]).decode()


class SingleRunDialect(Dialect):
    """A dialect whose surface has `STOP`. Its `front_options` are `SingleRunOptions`."""

    front_options: ClassVar[type[Options]] = SingleRunOptions

    def session_of(self, request: Request) -> SessionRef | None:
        """Return the session that a request names; None if the request has a session that no other can join."""
        return SessionRef(request.thread_id, request.user_id) if request.thread_id else None

    def busy(self, session: SessionRef) -> str:
        """Return the error message for a second run of a session."""
        raise NotImplementedError

    def decode_stop(self, wire: WireRequest) -> SessionRef:
        """Return the session whose run is to end. Raises `RequestError`."""
        raise NotImplementedError

    def encode_stopped(self, wire: WireRequest, stopped: bool) -> WireResponse:
        """The answer to that request. `stopped`: something was running."""
        raise NotImplementedError

    def stop_request(self, request: Request, context: Context) -> WireRequest | None:
        """Return the request that ends the run of `request` at a backend; None if disconnecting is enough."""
        return None

    def decode_reconnect(self, wire: WireRequest) -> SessionRef | None:
        """Return the session to whose run the client reconnects; None for a request for a new run.

        Raises `RequestError` for one that reconnects without naming a session.
        """
        return None
