"""The contract of dialects: what one is, what it promises, and how it is found.

What only some dialects can do is in `bridge.contract.optional`, and exported here, too. What dialects are made of is
`bridge.toolkit`.
"""

from bridge.contract.capabilities import (
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
from bridge.contract.context import Context, Losses, StoredAnswer, StoredResponses
from bridge.contract.demands import Demands, SchemaDemands, SystemPlace
from bridge.contract.dialect import Decoder, Dialect, EncoderLike, Framing, Options, require
from bridge.contract.endings import failure_at_end
from bridge.contract.optional.agent_tasks import (
    AgentTasksDialect,
    PushAction,
    PushCall,
    PushTarget,
    TaskCall,
    TaskPage,
    TaskSummary,
)
from bridge.contract.optional.agents import AgentDialect
from bridge.contract.optional.answering import AnsweringDialect, RouteFacts, ServedModel
from bridge.contract.optional.contracts import CountingDialect, ModesDialect, ResumableDialect, SocketDialect
from bridge.contract.optional.described import DescribedAgent, DescribedDialect
from bridge.contract.optional.embeddings import Embeddings, EmbeddingsDialect, EmbeddingsRequest
from bridge.contract.optional.models import ModelInfo, ModelsDialect
from bridge.contract.optional.queued_runs import (
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
from bridge.contract.optional.rpc import RpcDialect, RpcService
from bridge.contract.optional.sessions import SessionDialect
from bridge.contract.optional.single_run import SessionRef, SingleRunDialect, SingleRunOptions
from bridge.contract.optional.stepped_run import Step, SteppedRun, SteppedRunDialect
from bridge.contract.optional.stored_responses import StoredAnswersDialect
from bridge.contract.optional.tasks import TaskDialect, TaskRequest, TaskState, TaskStatus
from bridge.contract.optional.tool_host import OfferedTool, ToolHostDialect
from bridge.contract.optional.tool_server import (
    ToolAddress,
    ToolEncoder,
    ToolMessage,
    ToolQuestion,
    ToolReply,
    ToolServerDialect,
)
from bridge.contract.scope import SCOPES, Scope
from bridge.contract.sealing import Sealer
from bridge.contract.surface import Endpoint, Operation, QueryParameter, Surface, offers, served
from bridge.contract.tool_site import ToolSite, ToolText
from bridge.contract.wire import (
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
    "EncoderLike",
    "Endpoint",
    "Feature",
    "FeatureSupport",
    "Frame",
    "FrameLike",
    "Framing",
    "HistoryFile",
    "HistoryMessage",
    "HistoryPage",
    "HistoryQuery",
    "Losses",
    "ModelInfo",
    "ModelsDialect",
    "ModesDialect",
    "OfferedTool",
    "Operation",
    "Options",
    "PushAction",
    "PushCall",
    "PushTarget",
    "QueryParameter",
    "QueuedRun",
    "QueuedRunsDialect",
    "QueuedRunsOptions",
    "ResumableDialect",
    "RouteFacts",
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
    "entries",
    "failure_at_end",
    "json_request",
    "json_response",
    "offers",
    "require",
    "served",
    "wire_request",
]
