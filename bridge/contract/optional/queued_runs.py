"""The optional contract of dialects whose server queues runs and keeps conversations: start, subscribe, cancel,
history, images, speech.

Each operation has a method that reads its request and one that writes its response; the server does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field

from bridge.contract.context import Context
from bridge.contract.dialect import Dialect, Options
from bridge.contract.wire import FrameLike, WireRequest, WireResponse
from bridge.model.request import Request

CONNECTIONS = "connections"
"""The `reason` in the details of a failure: its user has too many open streams."""


class QueuedRunsOptions(Options):
    """The route options that the server reads; dialects add their own."""

    one_run_per_thread: bool = Field(
        False,
        description="Run the runs of a thread one after the other, not at the same time."
        " For: agents that share files or a memory.",
    )
    interrupt_message: Literal["repeat", "answer", "cancel"] = Field(
        "repeat",
        description="Effect of a message without `resume` while an interrupt is pending: the question is "
        "repeated, the message answers it, or the message cancels it and begins a new turn."
        " For: chats in which people answer by writing (answer), or change their mind (cancel).",
    )
    poll_interval: float = Field(
        1.0,
        gt=0,
        le=60,
        description="Duration of one poll in seconds; idle limits count polls."
        " For: clients whose idle_limit means another interval.",
    )
    connection_limit: int = Field(
        5,
        ge=1,
        description="Maximum number of open event streams of one user, in all processes."
        " For: people with many tabs, or one key for many people.",
    )
    max_attachment: int = Field(
        10 * 2**20, ge=1, description="Maximum size of an image in bytes. For: photos over 10 MiB."
    )
    inline_attachments: bool | None = Field(
        None,
        description="Send stored images to backends as inline data, not as URLs; null = only if public_url is local."
        " For: backends that cannot reach public_url.",
    )


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run of a thread."""

    thread_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class SubscribeRequest(RunRef):
    """A request for the events of a run, until `idle_limit` polls in a row return none."""

    idle_limit: int


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """The messages of the last day before `before`. `thread_id` None = the user's most recent thread."""

    thread_id: str | None
    before: date | None


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A picture or file in a message; `url` is signed if it is the bridge's own."""

    mime: str
    url: str


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """One visible message. `seq` increases over the thread; `metadata` is what its backend sent."""

    id: str
    seq: int
    role: str
    content: str
    at: datetime
    files: tuple[HistoryFile, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """One day of a thread; all empty when there is no such day. `more`: there is an earlier one.

    `removed` is the number of the thread's first messages that are not stored any more.
    """

    thread_id: str | None = None
    day: date | None = None
    more: bool = False
    messages: tuple[HistoryMessage, ...] = ()
    removed: int = 0


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An uploaded image, with a URL that is valid for a limited time."""

    bucket: str
    path: str
    mime: str
    url: str


class QueuedRun(Protocol):
    """One run at a backend that queues it, as a state machine without I/O: a transport sends, waits and reads.

    `uploads` are sent, then `start`; its events are read by `subscribe`, as often as they break off."""

    @property
    def uploads(self) -> Sequence[WireRequest]:
        """The requests that must succeed before the run is started."""

    @property
    def waits(self) -> Sequence[float]:
        """Seconds before each attempt to continue reading; each event starts over. The last failure is final."""

    def start(self, run_id: str, uploaded: Sequence[WireResponse]) -> WireRequest:
        """Return the request that queues the run, given the answers to `uploads`. Sent twice, it is still one run.

        `run_id` is the id for the backend, new for each attempt. Raises `BackendError` for an invalid answer.
        """

    def subscribe(self) -> WireRequest | None:
        """Return the request for the events after those received; None if they do not allow to continue."""

    def fresh(self, frames: Sequence[FrameLike]) -> list[FrameLike]:
        """Return those complete frames that belong to this run and are new. Never raises for invalid data."""

    def cancel(self) -> WireRequest:
        """Return the request to cancel the run."""


class QueuedRunsDialect(Dialect):
    """A dialect with these operations. Its `front_options` are `QueuedRunsOptions`.

    Methods `decode_...` raise `RequestError`. `encode_error` finds in a failure's details the `operation` that failed
    and the `path` of the request.
    """

    front_options: ClassVar[type[Options]] = QueuedRunsOptions
    file_field: ClassVar[str] = "file"
    """The form's field with the image; `audio_field` that with the recording."""
    thread_field: ClassVar[str] = "threadId"
    audio_field: ClassVar[str] = "audio"

    def queued(self, request: Request, context: Context) -> QueuedRun:
        """Return a client of a backend, which queues its runs too. Raises `Unsupported` like `encode_request`."""
        raise NotImplementedError

    def example_events(self) -> WireRequest | None:
        """Return the request that reads the events of the run that `example_request` queues; None to show none."""
        return None

    def encode_started(self, run: RunRef, task_id: str, created: bool) -> WireResponse:
        """The run is queued. `created`: it is the first one of its thread."""
        raise NotImplementedError

    def decode_subscribe(self, wire: WireRequest) -> SubscribeRequest:
        """Return the run whose events are requested, and how long to wait for them."""
        raise NotImplementedError

    def decode_cancel(self, wire: WireRequest) -> RunRef:
        """Return the run to cancel."""
        raise NotImplementedError

    def encode_canceled(self, run: RunRef) -> WireResponse:
        """Return the response to an accepted cancellation, in any state of the run."""
        raise NotImplementedError

    def decode_history(self, wire: WireRequest) -> HistoryQuery:
        """Which day of which thread is to be shown."""
        raise NotImplementedError

    def encode_history(self, day: HistoryPage) -> WireResponse:
        """Return the response with the messages of one day."""
        raise NotImplementedError

    def decode_attach(self, fields: Mapping[str, str], has_file: bool) -> str:
        """The thread that an uploaded file belongs to."""
        raise NotImplementedError

    def encode_attached(self, file: StoredFile) -> WireResponse:
        """The image that was stored."""
        raise NotImplementedError

    def decode_sign(self, wire: WireRequest) -> tuple[str, str]:
        """Bucket and path of an image that is there."""
        raise NotImplementedError

    def encode_signed(self, file: StoredFile) -> WireResponse:
        """The image with its new URL."""
        raise NotImplementedError

    def encode_transcript(self, text: str) -> WireResponse:
        """Return the response with the transcript of a recording."""
        raise NotImplementedError
