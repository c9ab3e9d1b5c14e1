"""The dialect `a2a`: messages to an agent, answered by tasks with artifacts, over JSON-RPC or plain HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import (
    AgentTasksDialect,
    Capabilities,
    Context,
    Decoder,
    DescribedAgent,
    DescribedDialect,
    EncoderLike,
    Endpoint,
    FrameLike,
    Operation,
    Options,
    PushTarget,
    QueryParameter,
    SteppedRun,
    SteppedRunDialect,
    TaskCall,
    TaskPage,
    TaskStatus,
    TaskSummary,
    WireRequest,
    WireResponse,
    json_request,
)
from bridge.dialects.a2a import (
    call,
    calling,
    described,
    push,
    read_request,
    tasks,
    whole_answer,
    write_errors,
)
from bridge.dialects.a2a.capabilities import CAPABILITIES, card
from bridge.dialects.a2a.options import BackOptions, FrontOptions
from bridge.dialects.a2a.read_answer import A2ADecoder
from bridge.dialects.a2a.read_request import Notes
from bridge.dialects.a2a.wire import (
    CARD_PATH,
    EXTENSIONS_HEADER,
    NAME,
    OLD_BASE,
    OLD_CARD_PATH,
    VERSION_HEADER,
    Method,
    Version,
)
from bridge.dialects.a2a.write_answer import A2AEncoder
from bridge.errors import Failure, RequestError
from bridge.model import Event, Request
from bridge.model.jsontext import dumps

_TASK = "/tasks/{id:[^/:]+}"
_CONFIGS = f"{_TASK}/pushNotificationConfigs"
_LIST = (
    QueryParameter("contextId", "only tasks of this context"),
    QueryParameter("status", "only tasks in this state"),
    tasks.PAGE_SIZE,
    QueryParameter("pageToken", "nextPageToken of the previous page"),
    QueryParameter("statusTimestampAfter", "only tasks that changed after this time", format="date-time"),
    QueryParameter("includeArtifacts", "include the artifacts", type="boolean"),
    read_request.HISTORY,
)


def _endpoint(method: str, path: str, *query: QueryParameter) -> Endpoint:
    return Endpoint(method, path, Operation.TASKS, query=query)


class A2A(AgentTasksDialect, DescribedDialect, SteppedRunDialect):
    """Both sides of A2A."""

    name = NAME
    url = "http://127.0.0.1:9999"
    capabilities = CAPABILITIES
    event_ids = False
    own_headers = (VERSION_HEADER, EXTENSIONS_HEADER)
    surface = (
        Endpoint("POST", "", Operation.RUN),
        Endpoint("POST", "/message:send", Operation.RUN),
        Endpoint("POST", "/message:stream", Operation.RUN),
        _endpoint("GET", "/tasks", *_LIST),
        _endpoint("GET", _TASK, read_request.HISTORY),
        _endpoint("POST", f"{_TASK}:cancel"),
        _endpoint("POST", f"{_TASK}:subscribe"),
        _endpoint("GET", f"{_TASK}:subscribe"),
        _endpoint("POST", _CONFIGS),
        _endpoint("GET", _CONFIGS),
        _endpoint("GET", _CONFIGS + "/{config_id}"),
        _endpoint("DELETE", _CONFIGS + "/{config_id}"),
        _endpoint("GET", "/extendedAgentCard"),
        Endpoint("POST", f"{OLD_BASE}/message:send", Operation.RUN),
        Endpoint("POST", f"{OLD_BASE}/message:stream", Operation.RUN),
        _endpoint("GET", OLD_BASE + _TASK, read_request.HISTORY),
        _endpoint("POST", f"{OLD_BASE}{_TASK}:cancel"),
        _endpoint("POST", f"{OLD_BASE}{_TASK}:subscribe"),
        _endpoint("GET", f"{OLD_BASE}{_TASK}:subscribe"),
        _endpoint("POST", OLD_BASE + _CONFIGS),
        _endpoint("GET", OLD_BASE + _CONFIGS),
        _endpoint("GET", OLD_BASE + _CONFIGS + "/{config_id}"),
        _endpoint("DELETE", OLD_BASE + _CONFIGS + "/{config_id}"),
        _endpoint("GET", f"{OLD_BASE}/card"),
        Endpoint("GET", CARD_PATH, Operation.DESCRIBE, public=True),
        Endpoint("GET", OLD_CARD_PATH, Operation.DESCRIBE, public=True),
    )
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the front

    def capabilities_with(self, options: Options) -> Capabilities:
        return card(thoughts=isinstance(options, FrontOptions) and options.reasoning == "status")

    def decode_call(self, wire: WireRequest, context: Context) -> TaskCall:
        return call.decode_call(wire, context)

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context)

    def encoder(self, context: Context) -> EncoderLike:
        return A2AEncoder(context)

    def assemble(self, events: Sequence[Event], context: Context) -> WireResponse:
        return whole_answer.assemble(events, context)

    def encode_error(self, failure: Failure) -> WireResponse:
        return write_errors.encode_error(failure)

    def encode_description(self, agent: DescribedAgent) -> WireResponse:
        return described.encode_card(agent)

    def continues(self, wanted: Request, runs: Sequence[TaskStatus]) -> Request:
        return tasks.continues(wanted, runs)

    def encode_task_now(self, asked: TaskCall, runs: Sequence[TaskStatus]) -> WireResponse:
        return tasks.encode_task_now(asked, runs)

    def not_cancelable(self, task_id: str) -> RequestError:
        return tasks.not_cancelable(task_id)

    def lists(self, asked: TaskCall, known: Sequence[TaskSummary]) -> TaskPage:
        return tasks.lists(asked, known)

    def encode_task_list(self, asked: TaskCall, page: TaskPage, shown: Sequence[Sequence[TaskStatus]]) -> WireResponse:
        return tasks.encode_task_list(asked, page, shown)

    def encode_own_description(self, asked: TaskCall, agent: DescribedAgent) -> WireResponse:
        return described.encode_extended_card(asked, agent)

    def watch(self, asked: TaskCall, runs: Sequence[TaskStatus]) -> tuple[list[FrameLike], EncoderLike]:
        return tasks.watch(asked, runs)

    def push_hosts(self, options: object) -> Sequence[str]:
        return options.push_hosts if isinstance(options, FrontOptions) else ()

    def no_push(self) -> RequestError:
        return write_errors.no_push()

    def encode_push_targets(self, asked: TaskCall, targets: Sequence[PushTarget]) -> WireResponse:
        return tasks.encode_push_targets(asked, targets)

    def push_headers(self, target: PushTarget) -> dict[str, str]:
        return push.headers_of(target)

    def push_encoder(self, context: Context, target: PushTarget) -> EncoderLike:
        return A2AEncoder(context, Notes(rest=True, version=Version(target.version)))

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        message = {"messageId": "example", "role": "ROLE_USER", "parts": [{"text": text}]}
        method = Method.STREAM if stream else Method.SEND
        body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": {"message": message}}
        return json_request("", dumps(body), {VERSION_HEADER: Version.NEW})

    # ------------------------------------------------------------- as the back

    def encode_request(self, wanted: Request, context: Context) -> WireRequest:
        return calling.encode_request(wanted, context)

    def stepped(self, wanted: Request, context: Context, memo: dict[str, Any]) -> SteppedRun:
        return calling.Calling(wanted, context, memo)

    def decoder(self, context: Context) -> Decoder:
        return A2ADecoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        return calling.parse_response(wire, context)

    def decode_error(self, wire: WireResponse) -> Failure:
        return calling.decode_error(wire)


dialect = A2A()
