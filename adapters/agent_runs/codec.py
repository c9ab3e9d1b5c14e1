"""The dialect `agent-runs`: AG-UI's events with queued runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bridge.contract import (
    Context,
    Decoder,
    Demands,
    Endpoint,
    HistoryPage,
    HistoryQuery,
    ModesDialect,
    Operation,
    Options,
    QueuedRun,
    QueuedRunsDialect,
    RunRef,
    StoredFile,
    SubscribeRequest,
    WireRequest,
    WireResponse,
)
from bridge.contract.dialect import EncoderLike
from bridge.dialects.agent_runs import answers, errors, read_request
from bridge.dialects.agent_runs.base import AGUI, CAPABILITIES, MODES, NAME, outer
from bridge.dialects.agent_runs.calling import Calling
from bridge.dialects.agent_runs.options import BackOptions, FrontOptions
from bridge.dialects.agent_runs.read_answer import RunDecoder
from bridge.dialects.agent_runs.write_answer import RunEncoder
from bridge.errors import Failure
from bridge.model import Event, Request
from bridge.model.jsontext import loads


class AgentRuns(QueuedRunsDialect, ModesDialect):
    """Queue a run, read its events as often as one likes."""

    name = NAME
    resumable = True
    mount = "/api/v1/agent"
    url = "http://127.0.0.1:8000/api/v1/agent"
    capabilities = CAPABILITIES
    whole_is_stream = True
    surface = (
        Endpoint("POST", "/runs", Operation.START, success=202),
        Endpoint(
            "GET",
            "/runs/{thread_id}/events",
            Operation.SUBSCRIBE,
            query_token="access_token",
            query=(read_request.RUN_ID, read_request.IDLE_LIMIT),
        ),
        Endpoint("POST", "/runs/{thread_id}/cancel", Operation.CANCEL, query=(read_request.RUN_ID,), success=202),
        Endpoint("GET", "/history", Operation.HISTORY, query=read_request.HISTORY),
        Endpoint("POST", "/attachments", Operation.ATTACH),
        Endpoint("GET", "/attachments/signed-url", Operation.SIGN, query=read_request.FILE),
        Endpoint("GET", "/attachments/content/{bucket}/{path:.+}", Operation.FETCH, public=True),
        Endpoint("POST", "/transcribe", Operation.TRANSCRIBE),
    )
    front_options = FrontOptions
    back_options = BackOptions
    modes = MODES

    # ------------------------------------------------------------- as the front

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context)

    def mode_of(self, wanted: Request) -> str | None:
        return read_request.mode_of(wanted)

    def encoder(self, context: Context) -> EncoderLike:
        return RunEncoder(context)

    def encode_error(self, failure: Failure) -> WireResponse:
        return errors.encode_error(failure)

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        return read_request.with_mode(AGUI.example_request(text, stream), None)

    def example_events(self) -> WireRequest:
        body = loads(self.example_request("").body)
        return WireRequest("GET", f"/runs/{body['threadId']}/events", {}, {"runId": body["runId"]})

    def encode_started(self, run: RunRef, task_id: str, created: bool) -> WireResponse:
        return answers.encode_started(run, task_id, created)

    def decode_subscribe(self, wire: WireRequest) -> SubscribeRequest:
        return read_request.decode_subscribe(wire)

    def decode_cancel(self, wire: WireRequest) -> RunRef:
        return read_request.decode_cancel(wire)

    def encode_canceled(self, run: RunRef) -> WireResponse:
        return answers.encode_canceled(run)

    def decode_history(self, wire: WireRequest) -> HistoryQuery:
        return read_request.decode_history(wire)

    def encode_history(self, day: HistoryPage) -> WireResponse:
        return answers.encode_history(day)

    def decode_attach(self, fields: Mapping[str, str], has_file: bool) -> str:
        return read_request.decode_attach(fields, has_file)

    def encode_attached(self, file: StoredFile) -> WireResponse:
        return answers.encode_attached(file)

    def decode_sign(self, wire: WireRequest) -> tuple[str, str]:
        return read_request.decode_sign(wire)

    def encode_signed(self, file: StoredFile) -> WireResponse:
        return answers.encode_signed(file)

    def encode_transcript(self, text: str) -> WireResponse:
        return answers.encode_transcript(text)

    # ------------------------------------------------------------- as the back

    def demands(self, options: Options) -> Demands:
        """The contract refuses a request that does not end with a message of the user or of a tool."""
        return replace(self.capabilities.demands, needs_user=True)

    def encode_request(self, wanted: Request, context: Context) -> WireRequest:
        return read_request.encode_request(wanted, context)

    def queued(self, wanted: Request, context: Context) -> QueuedRun:
        return Calling(self.encode_request(wanted, context), BackOptions.of(context), wanted.messages)

    def decoder(self, context: Context) -> Decoder:
        return RunDecoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        return AGUI.parse_response(wire, outer(context))

    def decode_error(self, wire: WireResponse) -> Failure:
        return errors.ERRORS.decode(wire)


dialect = AgentRuns()
