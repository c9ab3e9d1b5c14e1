"""The optional contract of dialects whose clients list tools and call them, with JSON-RPC messages to one address.

The backends of a route are its tools: one for its `backend`, or as many as its `tools` name. A message that needs no
backend has its answer here; a call is a run; a task is a run that the client reads later (`AgentTasksDialect`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from bridge.contract.context import Context
from bridge.contract.dialect import EncoderLike, Options
from bridge.contract.optional.agent_tasks import AgentTasksDialect, TaskCall
from bridge.contract.surface import Operation
from bridge.contract.tool_site import ToolSite
from bridge.contract.wire import WireRequest, WireResponse
from bridge.model.request import Request


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """What a message asks for; `operation` is that whose permission it needs.

    One of these is set: `answer`, of a message that needs no backend; `task`, an operation on a task, or a call that is
    to become one; `cancels`, the id of the call that the client no longer wants; `replies`, the answer to a question
    that was sent on the stream of a call; `ends`, the session that is over. None: a call, which is to be run.

    A call has an `id`, unique among those of its `session`. One that `outlives` its response goes on when its client
    leaves. With `streams` false its client takes only the whole answer. It `continues` a conversation, which then must
    be known. `trace`: the context of the trace that it belongs to, as headers (W3C Trace Context), if it names one.
    """

    operation: Operation
    answer: WireResponse | None = None
    task: TaskCall | None = None
    cancels: Any = None
    replies: ToolReply | None = None
    ends: str = ""
    id: Any = None
    session: str = ""
    outlives: bool = False
    streams: bool = True
    continues: bool = False
    trace: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ToolReply:
    """The client's answer to the question `id`: a result, or None if it could not answer."""

    id: Any
    result: Any = None


@dataclass(frozen=True, slots=True)
class ToolAddress:
    """Which of several routes a message concerns: that of a `tool`, that of a `task`, `every` one, or any.

    One that `opens` a session precedes all others; with `batches` its client may send several messages as one.
    `cancels` is the id of the call that a notification cancels.
    """

    tool: str = ""
    task: str = ""
    every: bool = False
    opens: bool = False
    batches: bool = False
    cancels: Any = None


@dataclass(frozen=True, slots=True)
class ToolQuestion:
    """A question to the person at the client. `frame` is the message that asks it, `key` names it in `answered`."""

    key: str
    id: str
    frame: bytes


class ToolEncoder(EncoderLike, Protocol):
    """Writes a call: notifications while it runs, and its response as the last frame."""

    @property
    def questions(self) -> Sequence[ToolQuestion]:
        """Return what is to be asked on the stream after the run, which has no response yet then."""

    def answered(self, results: Mapping[str, Any]) -> Request:
        """Return the request that continues the run with the client's answers to the questions, by their keys."""


class ToolServerDialect(AgentTasksDialect):
    """A dialect whose surface has `TOOLS`: messages of clients, and the end of a session."""

    def batch(self, wire: WireRequest, context: Context) -> list[WireRequest] | None:
        """Return the messages of a batch, each as a request; None for a single message. Raises `RequestError`."""
        return None

    def decode_message(self, wire: WireRequest, context: Context) -> ToolMessage:
        """Decode a message, with `context.site`. Raises `RequestError`.

        It puts into `context.error_details` what the format of errors depends on.
        """
        raise NotImplementedError

    def tool_encoder(self, context: Context, before: ToolEncoder | None = None) -> ToolEncoder:
        """Return what writes a run of a call; `before` wrote the run whose questions it continues."""
        raise NotImplementedError

    # ------------------------------------------------------------- without HTTP

    session_header: ClassVar[str]
    """The response header that names a session, in lower case."""

    def address(self, message: Mapping[str, Any]) -> ToolAddress:
        """Return which of the routes of a program a message concerns."""
        raise NotImplementedError

    def carried(self, message: Mapping[str, Any], session: str) -> WireRequest:
        """Return the request that carries a message which came without HTTP, such as over standard input."""
        raise NotImplementedError

    def cancellation(self, call_id: Any) -> dict[str, Any]:
        """Return the message that cancels a call of a session."""
        raise NotImplementedError

    def merged(self, message: Mapping[str, Any], results: Sequence[Any]) -> Any:
        """Return the result for a client of several routes, which each gave one of `results` for this message."""
        raise NotImplementedError

    # ------------------------------------------------------------- configurations

    def tool_names(self, options: Options, site: ToolSite) -> Sequence[str]:
        """Return the names of the tools of a route. Raises `ConfigError` for options that fit no tool of it."""
        raise NotImplementedError

    def example_call(self, tool: str, text: str) -> WireRequest:
        """Return a call of a tool, as `example_request` returns one of any."""
        raise NotImplementedError

    def undescribed(self, options: Options) -> Sequence[str]:
        """Return the options in which the description of a route's one tool is missing: a model chooses by it."""
        return ()
