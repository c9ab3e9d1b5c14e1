"""Generation 2: AG-UI on the same path.

The work is done by the dialect `ag-ui`, found by name: it reads and writes `binary` parts, takes snake_case and ignores
what comes after the end (a second `RUN_ERROR`, `RUN_FINISHED` behind `RUN_ERROR`). Here stands what differs: fields
that may be missing, and interrupts, which are a `CUSTOM` event `on_interrupt` and come back in
`forwardedProps.command.resume`, both without an id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bridge.codec import Context, Dialect, Feature, FrameLike, WireRequest, registry
from bridge.codec import Decoder as AnyDecoder
from bridge.codec import Encoder as AnyEncoder
from bridge.codec.jsontext import dumps, loads
from bridge.dialects.ag_kit.errors import SECOND, error_text, told_error
from bridge.dialects.ag_kit.options import back, front
from bridge.dialects.ag_kit.request import resume_of
from bridge.dialects.ag_kit.wire import NAME
from bridge.dialects.ag_kit.writing import HEADERS, path_of, payload_of, refuse
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

BASE = "ag-ui"
INTERRUPT = "on_interrupt"
# What the server of this generation takes for granted when it is missing; AG-UI itself requires more.
_DEFAULTS: dict[str, Any] = {"messages": [], "state": {}, "tools": [], "context": [], "forwardedProps": {}}


def base() -> Dialect:
    """The AG-UI dialect. Raises `Unsupported` when it is not installed."""
    try:
        return registry.get(BASE)
    except ConfigError:
        raise Unsupported(f"Generation 2 of AG-Kit needs the dialect {BASE}, which is not installed.") from None


# ------------------------------------------------------------------ as the front


def decode_request(wire: WireRequest, body: dict[str, Any], context: Context) -> Request:
    """The request as AG-UI reads it. Raises `RequestError`; this and later errors have this generation's shape."""
    agui = base()
    run_id = body.get("runId")
    context.error_details[SECOND] = run_id if isinstance(run_id, str) else "unknown"
    completed = _complete(body, context)
    answers = _take_resume(completed)
    try:
        asked = replace(wire, body=dumps(completed))
        request = agui.decode_request(asked, replace(context, options=agui.front_options()))
    except RequestError as error:
        error.failure.details.update(context.error_details)
        raise
    request.resume = [*request.resume, *answers]
    request.extras = {**(request.extras or {}), NAME: {"notes": {"generation": 2}}}
    # Messages are compared by id: the whole history and the increment alone are both legal.
    request.history = HistoryMode.DELTA
    request.stream = True
    return request


# AG-UI's Python models, which this generation's server uses, take their own spelling as well.
_ALIASES = {"thread_id": "threadId", "run_id": "runId", "forwarded_props": "forwardedProps"}


def named(body: dict[str, Any]) -> dict[str, Any]:
    """The body with the fields by which generations differ as the wire spells them."""
    if _ALIASES.keys().isdisjoint(body):
        return body
    return {
        **{_ALIASES[k]: v for k, v in body.items() if k in _ALIASES},
        **{k: v for k, v in body.items() if k not in _ALIASES},
    }


def _complete(body: dict[str, Any], context: Context) -> dict[str, Any]:
    """The body with the fields that this generation's server makes up itself; an empty thread id begins a thread."""
    out = {**_DEFAULTS, **{k: v for k, v in body.items() if v is not None}}
    out["threadId"] = out.get("threadId") or f"thread_{context.run_id}"
    out["runId"] = out.get("runId") or context.run_id
    messages = out["messages"]
    if "messages" not in body:
        del out["messages"]  # the one field that is required
    elif isinstance(messages, list):
        out["messages"] = [
            {"id": f"{out['runId']}-{place}", **m} if isinstance(m, dict) and m.get("id") is None else m
            for place, m in enumerate(messages)
        ]
    return out


def _take_resume(body: dict[str, Any]) -> list[Resume]:
    """Takes the answer to an interrupt out of the body."""
    forwarded: Any = body.get("forwardedProps")
    command = forwarded.get("command") if isinstance(forwarded, dict) else None
    if not isinstance(command, dict) or "resume" not in command:
        return []
    others = {k: v for k, v in command.items() if k != "resume"}
    kept = {k: v for k, v in forwarded.items() if k != "command"}
    body["forwardedProps"] = {**kept, "command": others} if others else kept
    return [replace(resume_of("", command["resume"]), place="forwardedProps.command.resume")]


class Encoder:
    """AG-UI's encoder behind a change of words."""

    def __init__(self, inner: AnyEncoder, context: Context) -> None:
        self._inner = inner
        self._context = context
        self._tells_errors = front(context).errors == "text"

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        if self._tells_errors and events and isinstance(events[-1], RunFailed):
            events = [*events[:-1], *self._told(events[-1]), events[-1]]
        return self._inner.encode([self._worded(e) for e in events])

    def _told(self, failed: RunFailed) -> list[Event]:
        message, part = self._context.make_id("msg"), self._context.make_id("part")
        text = TextDelta(part, told_error(error_text(failed.error)))
        return [
            MessageStarted(message), PartStarted(part, message, PartKind.TEXT), text, PartEnded(part),
            MessageEnded(message),
        ]  # fmt: skip

    def close(self) -> list[FrameLike]:
        return self._inner.close()

    def _worded(self, event: Event) -> Event:
        match event:
            case Interrupted():
                return Custom(INTERRUPT, json_text(event.payload))
            case RunFinished(reason=FinishReason.INTERRUPTED):
                return RunFinished(FinishReason.STOP, event.ended_at, event.extras)
            case _:
                return event


def encoder(context: Context) -> AnyEncoder:
    """AG-UI's encoder, by default with the reasoning events that the reference server writes (g2-thinking)."""
    agui = base()
    options = agui.front_options.model_validate({"reasoning_events": front(context).reasoning_events})
    return Encoder(agui.encoder(replace(context, options=options)), context)


# ------------------------------------------------------------------ as the back


def encode_request(request: Request, context: Context) -> WireRequest:
    """AG-UI's request of before 1.0, with the answer to an interrupt where this generation reads it."""
    agui = base()
    refuse(request)
    extras = {name: fields for name, fields in (request.extras or {}).items() if name != NAME}
    plain = replace(request, resume=[], extras=extras or None)
    options = agui.back_options.model_validate({"part_style": "binary"})
    wire = agui.encode_request(plain, replace(context, options=options))
    body = wire.body
    if request.resume:
        context.lost.add(Feature.RESUME, "the interrupt's id and the decision")
        body = _with_resume(body, request.resume[0])
    return WireRequest("POST", path_of(back(context)), dict(HEADERS), body=body)


def _with_resume(body: bytes, answer: Resume) -> bytes:
    """The payload as it is: any JSON can stand here."""
    value = loads(body)
    forwarded = value.get("forwardedProps")
    props = dict(forwarded) if isinstance(forwarded, dict) else {}
    command = props.get("command")
    props["command"] = {**(command if isinstance(command, dict) else {}), "resume": payload_of(answer)}
    return dumps({**value, "forwardedProps": props})


def decoder(context: Context) -> AnyDecoder:
    """AG-UI's decoder, which knows `on_interrupt`."""
    agui = base()
    return agui.decoder(replace(context, options=agui.back_options()))
