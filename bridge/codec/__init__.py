"""The codec contract: what a dialect is, what it promises, and how it is found."""

from bridge.codec.agent_tasks import (
    AgentTasksDialect,
    PushAction,
    PushCall,
    PushTarget,
    TaskCall,
    TaskPage,
    TaskSummary,
)
from bridge.codec.agents import AgentDialect
from bridge.codec.answering import AnsweringDialect, RouteFacts, ServedModel
from bridge.codec.capabilities import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    CallSignatures,
    Capabilities,
    Feature,
    FeatureSupport,
    RunsTools,
    Support,
    entries,
)
from bridge.codec.check import Node, body_of
from bridge.codec.context import Context, Losses, StoredAnswer, StoredResponses
from bridge.codec.contracts import (
    CountingDialect,
    ModesDialect,
    ResumableDialect,
    SocketDialect,
)
from bridge.codec.decoder import JsonDecoder
from bridge.codec.demands import Demands, SchemaDemands, SystemPlace
from bridge.codec.described import DescribedAgent, DescribedDialect
from bridge.codec.dialect import Decoder, Dialect, EncoderLike, Framing, Options, require
from bridge.codec.embeddings import Embeddings, EmbeddingsDialect, EmbeddingsRequest
from bridge.codec.encoder import Encoder
from bridge.codec.endings import failure_at_end
from bridge.codec.fields import Fields, Row
from bridge.codec.message_losses import MessageLosses
from bridge.codec.models import ModelInfo, ModelsDialect
from bridge.codec.objects import ObjectDialect
from bridge.codec.projection import Projection
from bridge.codec.queued_runs import (
    CONNECTIONS,
    HistoryFile,
    HistoryMessage,
    HistoryPage,
    HistoryQuery,
    QueuedRun,
    QueuedRunsDialect,
    QueuedRunsOptions,
    RunRef,
    StoredFile,
    SubscribeRequest,
)
from bridge.codec.rpc import RpcDialect, RpcService
from bridge.codec.scope import SCOPES, Scope
from bridge.codec.sealing import Sealer
from bridge.codec.sessions import SessionDialect
from bridge.codec.single_run import SessionRef, SingleRunDialect, SingleRunOptions
from bridge.codec.stepped_run import Step, SteppedRun, SteppedRunDialect
from bridge.codec.stored_responses import StoredAnswersDialect
from bridge.codec.surface import Endpoint, Operation, QueryParameter, Surface, offers, served
from bridge.codec.tasks import TaskDialect, TaskRequest, TaskState, TaskStatus
from bridge.codec.tool_host import OfferedTool, ToolHostDialect
from bridge.codec.tool_server import (
    ToolAddress,
    ToolEncoder,
    ToolMessage,
    ToolQuestion,
    ToolReply,
    ToolServerDialect,
)
from bridge.codec.tool_site import ToolSite, ToolText
from bridge.codec.wire import (
    KEEPALIVE,
    Frame,
    FrameLike,
    WireRequest,
    WireResponse,
    json_request,
    json_response,
    wire_request,
)

__all__ = [
    "ANSWER_FEATURES",
    "CONNECTIONS",
    "KEEPALIVE",
    "REQUEST_FEATURES",
    "SCOPES",
    "AgentDialect",
    "AgentTasksDialect",
    "AnsweringDialect",
    "CallSignatures",
    "Capabilities",
    "Context",
    "CountingDialect",
    "Decoder",
    "Demands",
    "DescribedAgent",
    "DescribedDialect",
    "Dialect",
    "Embeddings",
    "EmbeddingsDialect",
    "EmbeddingsRequest",
    "Encoder",
    "EncoderLike",
    "Endpoint",
    "Feature",
    "FeatureSupport",
    "Fields",
    "Frame",
    "FrameLike",
    "Framing",
    "HistoryFile",
    "HistoryMessage",
    "HistoryPage",
    "HistoryQuery",
    "JsonDecoder",
    "Losses",
    "MessageLosses",
    "ModelInfo",
    "ModelsDialect",
    "ModesDialect",
    "Node",
    "ObjectDialect",
    "OfferedTool",
    "Operation",
    "Options",
    "Projection",
    "PushAction",
    "PushCall",
    "PushTarget",
    "QueryParameter",
    "QueuedRun",
    "QueuedRunsDialect",
    "QueuedRunsOptions",
    "ResumableDialect",
    "RouteFacts",
    "Row",
    "RpcDialect",
    "RpcService",
    "RunRef",
    "RunsTools",
    "SchemaDemands",
    "Scope",
    "Sealer",
    "ServedModel",
    "SessionDialect",
    "SessionRef",
    "SingleRunDialect",
    "SingleRunOptions",
    "SocketDialect",
    "Step",
    "SteppedRun",
    "SteppedRunDialect",
    "StoredAnswer",
    "StoredAnswersDialect",
    "StoredFile",
    "StoredResponses",
    "SubscribeRequest",
    "Support",
    "Surface",
    "SystemPlace",
    "TaskCall",
    "TaskDialect",
    "TaskPage",
    "TaskRequest",
    "TaskState",
    "TaskStatus",
    "TaskSummary",
    "ToolAddress",
    "ToolEncoder",
    "ToolHostDialect",
    "ToolMessage",
    "ToolQuestion",
    "ToolReply",
    "ToolServerDialect",
    "ToolSite",
    "ToolText",
    "WireRequest",
    "WireResponse",
    "body_of",
    "entries",
    "failure_at_end",
    "json_request",
    "json_response",
    "offers",
    "require",
    "served",
    "wire_request",
]
