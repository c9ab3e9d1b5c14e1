"""Agents: dialects whose backends are programs that ask in the middle of a run, over JSON-RPC in both directions.

A connection to an agent has sessions, a session has prompts, one after the other, and a prompt is one or several runs:
it stays open while the agent waits for the answer to a question. These state machines have no I/O. Messages are JSON
objects; an answer is a result, or the object of an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from bridge.contract.context import Context
from bridge.contract.dialect import Dialect, Framing, Options
from bridge.errors import Failure
from bridge.model.events import Event
from bridge.model.request import Request, Resume

Wire = dict[str, Any]


class Ask(NamedTuple):
    """A request or a notification to an agent."""

    method: str
    params: Wire


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """How agents are kept. Times are in seconds.

    `processes`: programs, or connections, at a time. `sessions`: of one program. `idle`: until one without a run is
    ended. `start`: that one has until it takes sessions. `grace`: that a prompt has to end after its cancellation.
    `park`: that a question waits for its answer.
    """

    processes: int = 4
    sessions: int = 8
    idle: float = 600.0
    start: float = 30.0
    grace: float = 5.0
    park: float = 600.0


class PromptAnswer(NamedTuple):
    """The answer to a question of an agent. `cancels`: the prompt has to be canceled as well."""

    result: Wire
    cancels: bool = False


class AgentPrompt(Protocol):
    """One prompt of a session: it reads what the agent says until the prompt is answered.

    Its events are those of a run. After a question, `park` ends the run, and `resume` begins the next one.
    """

    @property
    def ended(self) -> bool:
        """Return whether the run has ended."""

    @property
    def questions(self) -> Mapping[str, Wire]:
        """The questions of this run, by the ids of their interrupts."""

    @property
    def runs_tool(self) -> bool:
        """Return whether a tool of the agent is at work, so that silence means nothing."""

    def message(self, message: Wire) -> list[Event]:
        """Return the events of a notification of the session. Never raises on data of the agent."""

    def ask(self, message: Wire) -> list[Event]:
        """Return the events of a question, which becomes one of `questions`."""

    def decide(self, message: Wire, policy: str) -> tuple[list[Event], PromptAnswer]:
        """Answer a question that nobody can be asked, by a policy. Return events of the run, and the answer."""

    def answer(self, question: Wire, resume: Resume) -> PromptAnswer:
        """Return what the answer of a person means."""

    def park(self) -> list[Event]:
        """The agent waits for an answer: return the events that end the run."""

    def resume(self, context: Context) -> None:
        """The next run of this prompt begins."""

    def cancel(self) -> None:
        """The prompt was canceled from this side."""

    def answered(self, result: Any) -> list[Event]:
        """The prompt is over: return the events that end the run."""

    def refused(self, error: Wire) -> list[Event]:
        """The prompt failed: return the events that end the run."""

    def broken(self, failure: Failure) -> list[Event]:
        """The run is over for this reason: return the events that end it."""


class AgentConnection(Protocol):
    """One connection to an agent: what is said at its beginning, and what the agent can do."""

    notifications: Sequence[str]
    """The methods of notifications that belong to sessions."""
    questions: Sequence[str]
    """The methods of requests that ask a person."""
    withdrawal: str
    """The method of the notification that withdraws a request of the agent."""

    def hello(self) -> list[Ask]:
        """Return the first requests of a connection. The answer to each is for `greeted`."""

    def greeted(self, method: str, result: Any) -> None:
        """Read the answer to a request of `hello`. Raises `BackendError`."""

    def begin(self, cwd: str) -> Ask:
        """Return the request for a new session in this folder."""

    def restore(self, session: str, cwd: str) -> list[Ask]:
        """Return the requests for a session of an earlier connection, the best first: the next one is for an agent that
        does not know the method. Empty if the agent offers none.
        """

    def replays(self, ask: Ask) -> bool:
        """Return whether a session that was restored by this request repeats what was said, also after the answer."""

    def unknown(self, error: Wire) -> bool:
        """Return whether an error means that the agent does not know the method."""

    def session_opened(self, result: Any, session: str | None = None) -> str:
        """Read the answer, to `restore` for the session named. Return the session's id. Raises `BackendError`."""

    def end(self, session: str) -> Ask | None:
        """Return the request that ends a session; None if the agent offers none."""

    def note(self, message: Wire) -> None:
        """Read a notification of a session that has no run."""

    def session_of(self, message: Wire) -> str | None:
        """Return the session of a message of the agent; None if it names none."""

    def dismiss(self, question: Wire) -> Wire:
        """Return the answer to a question that nobody will answer."""

    def withdrawn(self, message: Wire) -> Any:
        """Return the id of the request that a notification withdraws."""

    def settings(self, session: str, context: Context) -> list[Ask]:
        """Return the requests that a session needs before a prompt of this context."""

    def prompt(self, session: str, request: Request, context: Context, *, fresh: bool) -> Ask:
        """Return the request of a prompt. `fresh`: the session is new, so that the request is the whole conversation.

        Raises `Unsupported` for what the agent does not take, with its place.
        """

    def reading(self, context: Context) -> AgentPrompt:
        """Return what reads the prompt."""

    def cancel(self, session: str) -> Ask:
        """Return the notification that cancels the prompt of a session."""

    def forgot(self, error: Wire) -> bool:
        """Return whether an error of `restore` means that the agent does not have the session."""

    def failure(self, error: Wire) -> Failure:
        """Return the failure that an error means."""


Permissions = Literal["ask", "reject", "allow_once"]


class AgentDialect(Dialect):
    """A dialect whose backends are agents: programs that the bridge starts, or servers of a WebSocket."""

    framing: ClassVar[Framing] = Framing.JSON_LINES

    @property
    def called_over_http(self) -> bool:
        return False

    def limits(self, options: Options) -> AgentLimits:
        """Return how agents with these options are kept."""
        raise NotImplementedError

    def permissions(self, options: Options) -> Permissions:
        """Return who answers the agent's requests for permission: a person where that is possible, or no one."""
        raise NotImplementedError

    def connection(self, options: Options, *, asks: bool) -> AgentConnection:
        """Return a new connection to an agent. `asks`: people can be asked."""
        raise NotImplementedError
