"""The codec contract: what a dialect is, what it promises, and how it is found."""

from bridge.codec.capabilities import (
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
from bridge.codec.counting import CountingDialect
from bridge.codec.decoder import JsonDecoder
from bridge.codec.dialect import Decoder, Dialect, Encoder, Framing, Options, require
from bridge.codec.models import ModelInfo, ModelsDialect
from bridge.codec.modes import ModesDialect
from bridge.codec.objects import ObjectDialect
from bridge.codec.outline import Outline, outline, project
from bridge.codec.queued_run import QueuedRun
from bridge.codec.queued_runs import (
    CONNECTIONS,
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
from bridge.codec.scope import SCOPES, Scope
from bridge.codec.sessions import SessionDialect
from bridge.codec.single_run import SessionNamed, SingleRunDialect, SingleRunOptions
from bridge.codec.stored_responses import StoredAnswersDialect
from bridge.codec.surface import Endpoint, Operation, Surface, offers, served
from bridge.codec.tasks import TaskAsked, TaskDialect, TaskSeen, TaskState
from bridge.codec.tools import OfferedTool, ToolHostDialect
from bridge.codec.wire import KEEPALIVE, Frame, FrameLike, WireRequest, WireResponse, json_request, json_response

__all__ = [
    "ANSWER_FEATURES",
    "CONNECTIONS",
    "KEEPALIVE",
    "REQUEST_FEATURES",
    "SCOPES",
    "Card",
    "Context",
    "CountingDialect",
    "DayAsked",
    "DayShown",
    "Decoder",
    "Dialect",
    "Encoder",
    "Endpoint",
    "Entry",
    "Fate",
    "Feature",
    "Frame",
    "FrameLike",
    "Framing",
    "JsonDecoder",
    "KeptDialect",
    "KeptOptions",
    "Losses",
    "ModelInfo",
    "ModelsDialect",
    "ModesDialect",
    "ObjectDialect",
    "OfferedTool",
    "Operation",
    "Options",
    "Outline",
    "QueuedRun",
    "ReadAsked",
    "RunNamed",
    "RunsTools",
    "Scope",
    "SessionDialect",
    "SessionNamed",
    "Shelf",
    "ShownFile",
    "ShownMessage",
    "SingleRunDialect",
    "SingleRunOptions",
    "StoredAnswer",
    "StoredAnswersDialect",
    "StoredFile",
    "Surface",
    "TaskAsked",
    "TaskDialect",
    "TaskSeen",
    "TaskState",
    "ToolHostDialect",
    "WireRequest",
    "WireResponse",
    "body_of",
    "entries",
    "json_request",
    "json_response",
    "offers",
    "outline",
    "project",
    "require",
    "served",
]
