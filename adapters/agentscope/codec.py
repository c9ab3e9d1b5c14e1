"""The dialects `agentscope` and `agentscope-java`: AgentScope Runtime's agent API in its two documented forms.

Both read all written forms; the name selects the form that is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bridge.contract import (
    Capabilities,
    Context,
    Endpoint,
    Operation,
    Options,
    SessionRef,
    SingleRunDialect,
    TaskDialect,
    TaskRequest,
    TaskStatus,
    WireRequest,
    WireResponse,
    json_response,
)
from bridge.dialects.agentscope import errors, services
from bridge.dialects.agentscope.capabilities import CAPABILITIES, JAVA_CAPABILITIES, card
from bridge.dialects.agentscope.extras import own
from bridge.dialects.agentscope.fields import read_json_unpaired, status_of
from bridge.dialects.agentscope.forms import JAVA, PYTHON, Form
from bridge.dialects.agentscope.normalization import normalized
from bridge.dialects.agentscope.options import BackOptions, FrontOptions, JavaBackOptions, JavaFrontOptions
from bridge.dialects.agentscope.read_answer import Decoder
from bridge.dialects.agentscope.read_request import decode_request
from bridge.dialects.agentscope.write_answer import MessagesEncoder
from bridge.dialects.agentscope.write_request import encode_request, encode_stop
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, Request, RunFailed
from bridge.model.jsontext import MAX_DEPTH, deeper_than, dumps, may_nest


class AgentScope(SingleRunDialect, TaskDialect):
    """Both sides of the agent API. A subclass with another `form` supports another spelling."""

    name = "agentscope"
    resumable = True
    url = "http://127.0.0.1:8090"
    capabilities = CAPABILITIES
    # The documentation shows events as JSON lines.
    streams_json_lines = True
    form: Form = PYTHON
    surface = (
        Endpoint("POST", "/process", Operation.RUN),
        Endpoint("POST", "/process/task", Operation.START, durable=True),
        Endpoint("GET", "/process/task/{task_id}", Operation.STATUS, durable=True),
        Endpoint("POST", "/stop", Operation.STOP, query=services.SESSION_IN_QUERY),
        Endpoint("POST", "/process/stop", Operation.STOP, query=services.SESSION_IN_QUERY),
        Endpoint("GET", "/health", Operation.HEALTH),
    )
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the front

    def capabilities_with(self, options: Options) -> Capabilities:
        return card(self.form.exact, options.events) if isinstance(options, FrontOptions) else self.capabilities

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return decode_request(wire, context)

    def decode_task(self, wire: WireRequest, context: Context) -> TaskRequest:
        return services.decode_task(wire, context)

    def encode_submitted(self, task_id: str) -> WireResponse:
        return services.encode_submitted(task_id)

    def encode_task(self, task_id: str, seen: TaskStatus | None) -> WireResponse:
        return services.encode_task(task_id, seen, self)

    def busy(self, session: SessionRef) -> str:
        return services.busy(session)

    def decode_stop(self, wire: WireRequest) -> SessionRef:
        return services.decode_stop(wire)

    def encode_stopped(self, wire: WireRequest, stopped: bool) -> WireResponse:
        return services.encode_stopped(wire, stopped)

    def decode_reconnect(self, wire: WireRequest) -> SessionRef | None:
        return services.decode_reconnect(wire)

    def encoder(self, context: Context) -> MessagesEncoder:
        options = self.front_options.of(context)
        return MessagesEncoder(context, self._form(options), options)

    def assemble(self, events: Sequence[Event], context: Context) -> WireResponse:
        """Return the terminal response object, which holds the whole answer; for a failed run, an error response.

        The status and code that a backend of this dialect sent are passed on, with the HTTP status of the failure.
        """
        last = events[-1]
        failure = last.error if isinstance(last, RunFailed) else None
        if failure is not None and "status" not in own(last.extras):
            return self.encode_error(failure)
        frame = self.encoder(context).encode(events)[-1]
        body = frame if isinstance(frame, bytes) else frame.data
        return (
            json_response(body, 200) if failure is None else json_response(body, failure.http_status, failure.headers)
        )

    def encode_error(self, failure: Failure) -> WireResponse:
        return errors.encode_error(failure)

    def encode_health(self, alive: bool) -> WireResponse:
        status, runner = ("healthy", "ready") if alive else ("unhealthy", "not_ready")
        body = {"status": status, "mode": "daemon_thread", "runner": runner}
        return json_response(dumps(body), 200 if alive else 503)

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        message = {"role": "user", "type": "message", "content": [{"type": "text", "text": text}]}
        body = self.form.named({"input": [self.form.message(message)], "session_id": "example", "stream": stream})
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        return WireRequest("POST", "/process", headers, body=dumps(body))

    # ------------------------------------------------------------- as the back

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        options = self.back_options.of(context)
        return encode_request(request, context, self._form(options), options)

    def stop_request(self, request: Request, context: Context) -> WireRequest | None:
        options = self.back_options.of(context)
        return encode_stop(request, context, self._form(options), options)

    def decoder(self, context: Context) -> Decoder:
        return Decoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        """Read a JSON body as the terminal response, also without a status in it."""
        decoder = self.decoder(context)
        body = read_json_unpaired(wire.body)
        if not isinstance(body, dict):
            text = "The backend's answer is neither an event stream nor a JSON object."
            return decoder.close(Failure(ErrorCode.BACKEND_PROTOCOL, text))
        if may_nest(wire.body) and deeper_than(body, MAX_DEPTH):
            return decoder.close(Failure(ErrorCode.BACKEND_PROTOCOL, "The backend's answer is nested too deep."))
        if "detail" in body and "output" not in body:
            return decoder.close(self.decode_error(WireResponse(502, wire.headers, wire.body)))
        response = normalized(body)
        if "output" in response and not status_of(response):
            response = {**response, "status": "completed"}
        return [*decoder.feed([dumps(response)]), *decoder.close()]

    def decode_error(self, wire: WireResponse) -> Failure:
        return errors.ERRORS.decode(wire)

    def _form(self, options: FrontOptions | BackOptions) -> Form:
        return self.form


class AgentScopeJava(AgentScope):
    """The documented Java form: camelCase, upper-case message types, milliseconds."""

    name = "agentscope-java"
    url = "http://127.0.0.1:10021"
    capabilities = JAVA_CAPABILITIES
    form = JAVA
    front_options = JavaFrontOptions
    back_options = JavaBackOptions

    def _form(self, options: FrontOptions | BackOptions) -> Form:
        """Return the Java form. Its enumeration has no type for reasoning; by option it is sent as messages."""
        if getattr(options, "reasoning", "reasoning") == "message":
            return replace(JAVA, types={**JAVA.types, "reasoning": "message"})
        return JAVA


dialect = AgentScope()
"""The dialect, as an entry point of the registry."""

java = AgentScopeJava()
"""Its Java form, as an entry point of the registry."""
