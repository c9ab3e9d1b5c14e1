"""Generation 2: AG-UI on the same path.

Delegates to the dialect `ag-ui`, which is looked up by name: it reads and writes `binary` parts, accepts snake_case and
ignores events after the terminal one (a second `RUN_ERROR`, `RUN_FINISHED` after `RUN_ERROR`). This module handles the
differences: fields that may be missing, and interrupts, which are sent as a `CUSTOM` event `on_interrupt` and answered
in `forwardedProps.command.resume`, both without an id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bridge.contract import Context, Dialect, EncoderLike, Feature, FrameLike, WireRequest, registry
from bridge.contract import Decoder as AnyDecoder
from bridge.dialects.ag_kit.errors import GENERATION_2, error_as_text, error_text
from bridge.dialects.ag_kit.options import BackOptions, FrontOptions
from bridge.dialects.ag_kit.read_request import resume_of
from bridge.dialects.ag_kit.wire import NAME
from bridge.dialects.ag_kit.write_request import HEADERS, check_supported, path_of, payload_of
from bridge.errors import ConfigError, RequestError, Unsupported
from bridge.model import (
    Custom,
    Event,
    FinishReason,
    HistoryMode,
    Interrupted,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    Request,
    Resume,
    RunFailed,
    RunFinished,
    TextDelta,
    json_text,
)
from bridge.model.jsontext import dumps, loads
from bridge.toolkit.check import Spelling

AG_UI = "ag-ui"
INTERRUPT = "on_interrupt"
# Defaults of missing fields in this generation's server; AG-UI itself requires some of them.
_DEFAULTS: dict[str, Any] = {"messages": [], "state": {}, "tools": [], "context": [], "forwardedProps": {}}


def ag_ui_dialect() -> Dialect:
    """Return the AG-UI dialect. Raises `Unsupported` if it is not installed."""
    try:
        return registry.get(AG_UI)
    except ConfigError:
        raise Unsupported(f"Generation 2 of AG-Kit needs the dialect {AG_UI}, which is not installed.") from None


# ------------------------------------------------------------------ as the front


def decode_request(wire: WireRequest, body: dict[str, Any], context: Context) -> Request:
    """Decode a request with AG-UI. Raises `RequestError`; this and later errors have this generation's shape."""
    ag_ui = ag_ui_dialect()
    run_id = body.get("runId")
    context.error_details[GENERATION_2] = run_id if isinstance(run_id, str) else "unknown"
    completed = _with_defaults(body, context)
    resumes = _pop_resume(completed)
    try:
        ag_ui_wire = replace(wire, body=dumps(completed))
        request = ag_ui.decode_request(ag_ui_wire, replace(context, options=ag_ui.front_options()))
    except RequestError as error:
        error.failure.details.update(context.error_details)
        raise
    request.resume = [*request.resume, *resumes]
    request.extras = {**(request.extras or {}), NAME: {"notes": {"generation": 2}}}
    # The server compares messages by id: a request may hold the whole history or only new messages.
    request.history = HistoryMode.DELTA
    request.stream = True
    return request


# AG-UI's Python models, which this generation's server uses, also accept snake_case.
normalized = Spelling({"thread_id": "threadId", "run_id": "runId", "forwarded_props": "forwardedProps"})
"""Returns a body with camelCase names of the fields by which generations differ."""


def _with_defaults(body: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the body with the defaults of this generation's server; an empty thread id begins a new thread."""
    completed = {**_DEFAULTS, **{k: v for k, v in body.items() if v is not None}}
    completed["threadId"] = completed.get("threadId") or f"thread_{context.run_id}"
    completed["runId"] = completed.get("runId") or context.run_id
    messages = completed["messages"]
    if "messages" not in body:
        del completed["messages"]  # the one field that is required
    elif isinstance(messages, list):
        completed["messages"] = [
            {"id": f"{completed['runId']}-{position}", **m} if isinstance(m, dict) and m.get("id") is None else m
            for position, m in enumerate(messages)
        ]
    return completed


def _pop_resume(body: dict[str, Any]) -> list[Resume]:
    """Remove the answer to an interrupt from the body and return it."""
    forwarded: Any = body.get("forwardedProps")
    command = forwarded.get("command") if isinstance(forwarded, dict) else None
    if not isinstance(command, dict) or "resume" not in command:
        return []
    other_fields = {k: v for k, v in command.items() if k != "resume"}
    remaining = {k: v for k, v in forwarded.items() if k != "command"}
    body["forwardedProps"] = {**remaining, "command": other_fields} if other_fields else remaining
    return [replace(resume_of("", command["resume"]), place="forwardedProps.command.resume")]


class Encoder(EncoderLike):
    """AG-UI's encoder, with events translated to those of this generation."""

    def __init__(self, inner: EncoderLike, context: Context) -> None:
        self._inner = inner
        self._context = context
        self._errors_as_text = FrontOptions.of(context).errors == "text"

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        if self._errors_as_text and events and isinstance(events[-1], RunFailed):
            events = [*events[:-1], *self._error_message(events[-1]), events[-1]]
        return self._inner.encode([self._translated(e) for e in events])

    def _error_message(self, failed: RunFailed) -> list[Event]:
        message_id, part_id = self._context.make_id("msg"), self._context.make_id("part")
        delta = TextDelta(part_id, error_as_text(error_text(failed.error)))
        return [
            MessageStarted(message_id), PartStarted(part_id, message_id, PartKind.TEXT), delta, PartEnded(part_id),
            MessageEnded(message_id),
        ]  # fmt: skip

    def _translated(self, event: Event) -> Event:
        match event:
            case Interrupted():
                return Custom(INTERRUPT, json_text(event.payload))
            case RunFinished(reason=FinishReason.INTERRUPTED):
                return RunFinished(FinishReason.STOP, event.ended_at, event.extras)
            case _:
                return event


def encoder(context: Context) -> EncoderLike:
    """Return AG-UI's encoder, by default with the reference server's reasoning events (capture g2-thinking)."""
    ag_ui = ag_ui_dialect()
    own = FrontOptions.of(context)
    options = ag_ui.front_options.model_validate({"reasoning_events": own.reasoning_events})
    return Encoder(ag_ui.encoder(replace(context, options=options)), context)


# ------------------------------------------------------------------ as the back


def encode_request(request: Request, context: Context) -> WireRequest:
    """Encode a request with AG-UI as before 1.0, with the answer to an interrupt in `forwardedProps`."""
    ag_ui = ag_ui_dialect()
    check_supported(request)
    extras = {name: fields for name, fields in (request.extras or {}).items() if name != NAME}
    ag_ui_request = replace(request, resume=[], extras=extras or None)
    options = ag_ui.back_options.model_validate({"part_style": "binary"})
    wire = ag_ui.encode_request(ag_ui_request, replace(context, options=options))
    body = wire.body
    if request.resume:
        context.lost.add(Feature.RESUME, "the interrupt's id and the decision")
        body = _with_resume(body, request.resume[0])
    return WireRequest("POST", path_of(BackOptions.of(context)), dict(HEADERS), body=body)


def _with_resume(body: bytes, answer: Resume) -> bytes:
    """Add the answer's payload, which may be any JSON value."""
    fields = loads(body)
    forwarded = fields.get("forwardedProps")
    props = dict(forwarded) if isinstance(forwarded, dict) else {}
    command = props.get("command")
    props["command"] = {**(command if isinstance(command, dict) else {}), "resume": payload_of(answer)}
    return dumps({**fields, "forwardedProps": props})


def decoder(context: Context) -> AnyDecoder:
    """Return AG-UI's decoder, which reads `on_interrupt`."""
    ag_ui = ag_ui_dialect()
    return ag_ui.decoder(replace(context, options=ag_ui.back_options()))
