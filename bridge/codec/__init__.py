"""The codec contract: what a dialect is, what it promises, and how it is found."""

from bridge.codec.card import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    Card,
    Entry,
    Fate,
    Feature,
    RunsTools,
    entries,
)
from bridge.codec.check import body_of
from bridge.codec.context import Context, Losses, Shelf, StoredAnswer
from bridge.codec.dialect import Decoder, Dialect, Encoder, Framing, ModelInfo, Options
from bridge.codec.exclusive import ExclusiveDialect, ExclusiveOptions, SessionNamed
from bridge.codec.kept import (
    DayAsked,
    DayShown,
    KeptDialect,
    KeptOptions,
    ReadAsked,
    RunNamed,
    ShownFile,
    ShownMessage,
    StoredFile,
)
from bridge.codec.objects import ObjectDialect
from bridge.codec.outline import Outline, outline, project
from bridge.codec.queued import QueuedRun
from bridge.codec.scope import SCOPES, Scope
from bridge.codec.surface import Endpoint, Operation, Surface, offers, served
from bridge.codec.tasks import TaskAsked, TaskDialect, TaskSeen, TaskState
from bridge.codec.wire import KEEPALIVE, Frame, FrameLike, WireRequest, WireResponse, json_request, json_response

__all__ = [
    "ANSWER_FEATURES",
    "KEEPALIVE",
    "REQUEST_FEATURES",
    "SCOPES",
    "Card",
    "Context",
    "DayAsked",
    "DayShown",
    "Decoder",
    "Dialect",
    "Encoder",
    "Endpoint",
    "Entry",
    "ExclusiveDialect",
    "ExclusiveOptions",
    "Fate",
    "Feature",
    "Frame",
    "FrameLike",
    "Framing",
    "KeptDialect",
    "KeptOptions",
    "Losses",
    "ModelInfo",
    "ObjectDialect",
    "Operation",
    "Options",
    "Outline",
    "QueuedRun",
    "ReadAsked",
    "RunNamed",
    "RunsTools",
    "Scope",
    "SessionNamed",
    "Shelf",
    "ShownFile",
    "ShownMessage",
    "StoredAnswer",
    "StoredFile",
    "Surface",
    "TaskAsked",
    "TaskDialect",
    "TaskSeen",
    "TaskState",
    "WireRequest",
    "WireResponse",
    "body_of",
    "entries",
    "json_request",
    "json_response",
    "offers",
    "outline",
    "project",
    "served",
]
