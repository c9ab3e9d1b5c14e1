"""What a codec knows of a run besides the bytes: ids, times, options, the request.

A codec has no clock, no randomness and no I/O. The same context and input give the same output; golden tests,
resumption by replay, and use as a library rely on that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.contract.capabilities import Feature
from bridge.contract.tool_site import ToolSite
from bridge.model.builder import Builder
from bridge.model.events import Raw
from bridge.model.parts import Message
from bridge.model.request import Request

MOST_DETAILS = 5
"""Details of one feature that are kept: a log line names them all."""


@dataclass(slots=True)
class Losses:
    """The features that this translation lost, in the order in which they were lost."""

    _names: dict[Feature, dict[str, None]] = field(default_factory=dict)
    """The details of each feature, as keys."""

    def add(self, feature: Feature, detail: str = "") -> None:
        """Record a loss. The first `MOST_DETAILS` different details of a feature are kept."""
        details = self._names.setdefault(feature, {})
        if detail and len(details) < MOST_DETAILS:
            details[detail] = None

    def add_raw(self, event: Raw) -> None:
        """Record the loss of a raw event, unless other events carry the same."""
        if not event.repeated:
            self.add(Feature.RAW, event.label)

    def discard(self, feature: Feature) -> None:
        """Remove a recorded loss that did not happen."""
        self._names.pop(feature, None)

    def copy(self) -> Losses:
        """Return a copy."""
        return Losses({feature: dict(details) for feature, details in self._names.items()})

    def rewind(self, to: Losses) -> None:
        """Remove what was lost since `to` was copied, because that translation was discarded."""
        self._names = to.copy()._names

    def __bool__(self) -> bool:
        return bool(self._names)

    @property
    def names(self) -> list[str]:
        """The lost features' names."""
        return list(map(str, self._names))

    @property
    def details(self) -> dict[str, str]:
        """Feature name -> details of what was lost, where known; several are separated by `; `."""
        return {str(feature): "; ".join(details) for feature, details in self._names.items()}


@dataclass(slots=True)
class StoredAnswer:
    """An answer that its client may read again, or continue, by `id`.

    `body` is the answer as the client got it, a JSON object. `messages` is the conversation up to and including this
    answer, as a client that keeps history would send it. `run_id` names the run that makes the answer in the
    background; it is None if the client waited. Until the answer has `ended`, `messages` holds only the request.
    """

    id: str
    body: dict[str, Any]
    messages: list[Message] = field(default_factory=list)
    run_id: str | None = None
    ended: bool = True


@dataclass(slots=True)
class StoredResponses:
    """The stored answers that one run has to do with.

    `found` are the stored answers that the request refers to, by id. `decode_request` sets `wanted` if the answer is to
    be stored, `previous` to the answer that it continues, and `background` if its run continues without its client; the
    encoder puts the answer of any other run in `answer`. `connected` is set if the request came over a connection that
    remembers its last answer, whether or not it is `wanted`; `stores` is false if answers are stored nowhere else. With
    `prepares`, a request over a connection wants no answer, only to be remembered.
    """

    found: dict[str, StoredAnswer] = field(default_factory=dict)
    wanted: bool = False
    previous: str | None = None
    background: bool = False
    answer: StoredAnswer | None = None
    connected: bool = False
    stores: bool = True
    prepares: bool = False


@dataclass(slots=True)
class Context:
    """One side of one run. `created_at` is in Unix seconds; `options` is an instance of the dialect's option model.

    `model` is the name to send to a backend, or to show a client if the backend does not name one. `decode_request`
    uses it for a request that names none, if one is configured. `request` is None if a stream is translated without its
    request. `decode_request` puts into `error_details` what `encode_error` needs if the shape of an error depends on
    the request; they are added to the details of any failure before the stream began. `stored_responses` is None if no
    answers are stored. `names_thread` is false if the client's protocol has no thread id, so that `thread_id` was
    generated, or found by the messages. `continues` is true if the bridge knows that the backend has the thread, and
    has left out what it has of the messages. `answered_at` is when the first events of a stream came, in Unix seconds,
    if that is known. `caches` is true if the client cannot say what the backend is to cache, so that the codec decides
    that. `host` is the host of the backend's URL. `site` is what the server tells the codec of a `ToolServerDialect`.
    `untouched` is true if the backend gets the client's body unchanged, whatever is read in it.
    """

    run_id: str
    thread_id: str | None = None
    created_at: float = 0.0
    options: Any = None
    model: str | None = None
    request: Request | None = None
    lost: Losses = field(default_factory=Losses)
    error_details: dict[str, Any] = field(default_factory=dict)
    stored_responses: StoredResponses | None = None
    names_thread: bool = True
    continues: bool = False
    caches: bool = False
    host: str = ""
    answered_at: float | None = None
    site: ToolSite | None = None
    untouched: bool = False
    _made: int = 0

    def make_id(self, prefix: str) -> str:
        """Return a new id. The same run gets the same ids in the same order."""
        self._made += 1
        return f"{prefix}_{self.run_id}{self._made:x}" if self._made > 1 else f"{prefix}_{self.run_id}"

    def builder(self) -> Builder:
        """A builder that knows this run."""
        return Builder(self.run_id, self.thread_id, self.created_at, self.make_id)
