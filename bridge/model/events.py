"""Stream events, which every backend is decoded to and every frontend is encoded from.

Dataclasses with slots, treated as values: nothing changes an event after it was emitted. They are not frozen, as that
costs 240 ns instead of 90 ns to create one. `grammar.py` holds the grammar of a stream; decoders create events through
`builder.Builder`. `extras` maps the name of a dialect to what only that dialect understands.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import compress
from typing import Any, Final, TypeAlias

from bridge.errors import Failure, shortened
from bridge.model.parts import Extras, Origin, Part


class PartKind(StrEnum):
    """Content that streams in pieces."""

    TEXT = "text"
    REFUSAL = "refusal"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"


class FinishReason(StrEnum):
    """Why a run, or one choice of it, ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    INTERRUPTED = "interrupted"
    CANCELED = "canceled"


class MessageStatus(StrEnum):
    """How a message or a part of it ended."""

    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELED = "canceled"


class StateOp(StrEnum):
    """What a `StateChanged` holds: the whole state, a JSON Patch (RFC 6902), or the conversation's messages."""

    SNAPSHOT = "snapshot"
    PATCH = "patch"
    MESSAGES = "messages"


@dataclass(slots=True)
class RunStarted:
    """Always first. `created_at` is in Unix seconds."""

    run_id: str
    thread_id: str | None = None
    model: str | None = None
    created_at: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)
    extras: Extras | None = None


@dataclass(slots=True)
class MessageStarted:
    """`choice` is the number of the choice if the request had `n` > 1, else 0; it is on each event inside, too."""

    message_id: str
    role: str = "assistant"
    name: str | None = None
    choice: int = 0
    extras: Extras | None = None


@dataclass(slots=True)
class PartStarted:
    """`call_id`, `name`, `origin`, `server_label` are for tool calls only. `choice` is that of its message."""

    part_id: str
    message_id: str
    kind: PartKind
    call_id: str | None = None
    name: str | None = None
    origin: Origin = Origin.FUNCTION
    server_label: str | None = None
    extras: Extras | None = None
    choice: int = 0


@dataclass(slots=True)
class TextDelta:
    """A piece of a text or refusal part."""

    part_id: str
    text: str
    extras: Extras | None = None


@dataclass(slots=True)
class ReasoningDelta:
    """A piece of a reasoning part."""

    part_id: str
    text: str
    extras: Extras | None = None


@dataclass(slots=True)
class ArgsDelta:
    """A piece of a tool call's arguments string."""

    part_id: str
    text: str
    extras: Extras | None = None


@dataclass(slots=True)
class PartEnded:
    """`signature` and `redacted` belong to reasoning (see `parts.Reasoning`).

    `status` is not COMPLETED for a part that its message or the run left open when it failed or was canceled.
    """

    part_id: str
    signature: str | None = None
    redacted: str | None = None
    extras: Extras | None = None
    status: MessageStatus = MessageStatus.COMPLETED


@dataclass(slots=True)
class ContentAdded:
    """A part that is not streamed: media or data. `choice` is that of its message."""

    message_id: str
    part: Part
    extras: Extras | None = None
    choice: int = 0


@dataclass(slots=True)
class ToolResulted:
    """The result of a tool that the backend ran."""

    call_id: str
    parts: list[Part]
    name: str | None = None
    is_error: bool = False
    message_id: str | None = None
    extras: Extras | None = None


@dataclass(slots=True)
class MessageEnded:
    """`reason` is why this message's choice ended, if the protocol reports it per choice."""

    message_id: str
    status: MessageStatus = MessageStatus.COMPLETED
    reason: FinishReason | None = None
    extras: Extras | None = None
    choice: int = 0


@dataclass(slots=True)
class UsageReported:
    """Token counts, running totals: the last report counts. `cached` and `reasoning` are parts of input and output.

    `estimated`: the backend reported nothing, and the bridge counted characters. `written`: the part of the input that
    was written to the prompt cache, as `cached` is the part that was read from it.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    extras: Extras | None = None
    estimated: bool = False
    written: int | None = None


@dataclass(slots=True)
class StepStarted:
    """A phase of the agent's work begins, such as router or worker."""

    name: str
    extras: Extras | None = None


@dataclass(slots=True)
class StepEnded:
    """A phase of the agent's work ended."""

    name: str
    extras: Extras | None = None


@dataclass(slots=True)
class StateChanged:
    """Shared state: a snapshot, a JSON Patch (list of operations), or a list of messages."""

    op: StateOp
    value: Any
    extras: Extras | None = None


APPROVALS: Final = frozenset({"approval", "confirmation", "tool_call"})
"""Reasons of interrupts that ask for a yes or a no."""

STOP_SEQUENCE: Final = "stop_sequence"
"""The key, among the shared extras of `RunFinished`, of the stop sequence that ended the answer."""
AWAITS_RESULT: Final = "tool_result"
"""The reason of an interrupt that only waits for the result of its call. Clients are shown the call, not a question."""


@dataclass(slots=True)
class Interrupted:
    """The run waits for a person or a client tool."""

    interrupt_id: str
    reason: str | None = None
    payload: Any = None
    call_id: str | None = None
    extras: Extras | None = None


@dataclass(slots=True)
class Custom:
    """An application's own event."""

    name: str
    value: Any = None
    extras: Extras | None = None


@dataclass(slots=True)
class Raw:
    """An event that no other dialect understands, for routes with the same dialect on both sides.

    `repeated`: other events carry the same, or it holds nothing.
    """

    dialect: str
    value: Any
    extras: Extras | None = None
    repeated: bool = False

    @property
    def label(self) -> str:
        """The dialect and the type of the event, by which a report names it."""
        kind = self.value.get("type") if isinstance(self.value, dict) else None
        return f"{self.dialect} {shortened(kind)}" if isinstance(kind, str) and kind else self.dialect


@dataclass(slots=True)
class Heartbeat:
    """A sign of life, which keeps an idle connection open."""

    extras: Extras | None = None


@dataclass(slots=True)
class RunFailed:
    """Terminal. `ended_at` is in Unix seconds, set outside the codec."""

    error: Failure
    ended_at: float | None = None
    extras: Extras | None = None


@dataclass(slots=True)
class RunFinished:
    """Terminal. `ended_at` is in Unix seconds, set outside the codec."""

    reason: FinishReason = FinishReason.STOP
    ended_at: float | None = None
    extras: Extras | None = None


Event: TypeAlias = (
    RunStarted
    | MessageStarted
    | PartStarted
    | TextDelta
    | ReasoningDelta
    | ArgsDelta
    | PartEnded
    | ContentAdded
    | ToolResulted
    | MessageEnded
    | UsageReported
    | StepStarted
    | StepEnded
    | StateChanged
    | Interrupted
    | Custom
    | Raw
    | Heartbeat
    | RunFailed
    | RunFinished
)
"""Any event of a stream."""

Delta: TypeAlias = TextDelta | ReasoningDelta | ArgsDelta

TERMINAL: frozenset[type] = frozenset({RunFailed, RunFinished})
"""The event types that end a run; exactly one of them is the last event of every stream."""

CONTENT: frozenset[type] = frozenset(
    {MessageStarted, PartStarted, ContentAdded, ToolResulted, StateChanged, Interrupted, Custom, Raw, StepStarted}
)
"""The event types by which a backend has begun to answer: until one was passed on, a try may be repeated elsewhere."""


def of_types(events: Sequence[Event], types: Container[type]) -> Iterator[Any]:
    """Return the events of these types. The others, which are most of a stream, are passed over in C."""
    return compress(events, map(types.__contains__, map(type, events)))
