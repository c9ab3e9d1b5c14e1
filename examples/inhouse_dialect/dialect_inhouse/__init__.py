"""A chat protocol as companies make them for themselves, as a dialect: its clients, and its servers.

`POST /talk` is answered with JSON lines: one for each piece of text or thought and each whole call, and the last with
the end and the counts of tokens. Without a stream they are one object. Calls have no ids; results name their tool. An
error is `{"error": text}`. `GET /models` lists names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge import BackendError, ErrorCode, Failure, Request, RequestError
from bridge.contract import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    Capabilities,
    Context,
    Demands,
    Endpoint,
    Feature,
    Framing,
    ModelInfo,
    ModelsDialect,
    Operation,
    WireRequest,
    WireResponse,
    entries,
    json_request,
    json_response,
)
from bridge.dialects.openai.shapes import read_function, write_function
from bridge.model import (
    Builder,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Message,
    Part,
    PartKind,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    UsageReported,
    as_text,
    mime_of,
    refuse_resume,
)
from bridge.model import events as ev
from bridge.model.jsontext import arguments_of, dict_of, dumps, input_of, read_json
from bridge.toolkit import (
    BOOLEAN,
    Encoder,
    Fields,
    MessageLosses,
    Node,
    ObjectDialect,
    OpenCalls,
    Row,
    body_of,
    masked,
    model_in,
    supported,
)

NAME = "inhouse"
Wire = dict[str, Any]

# ------------------------------------------------------------- what the protocol has

F = Feature
_NO_FIELD, _AS_TEXT = "the protocol has no field for it", "a link or JSON in the text"
_CARD = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={_AS_TEXT: (F.REFUSAL, F.IMAGE, F.AUDIO, F.VIDEO, F.FILE, F.DATA, F.INTERRUPT)},
        drop={_NO_FIELD: (
            F.REASONING_SIGNATURE, F.TOOL_ORIGIN, F.TOOL_RESULT, F.USAGE_DETAILS, F.STATE, F.STEP, F.CUSTOM, F.RAW,
            F.CHOICES, F.PART_BORDERS)},
        refuse={"sent as an error": (F.FINISH_CONTENT_FILTER, F.FINISH_CANCELED)},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={_AS_TEXT: (F.DATA, F.REFUSAL_HISTORY)},
        drop={_NO_FIELD: (
            F.MESSAGE_NAME, F.TOOL_CHOICE, F.PARALLEL_TOOL_CALLS, F.RESPONSE_FORMAT, F.SAMPLING, F.REASONING_EFFORT,
            F.TOOL_ORIGIN, F.USER_ID, F.THREAD_ID, F.METADATA, F.CONTEXT, F.STATE)},
        refuse={
            "the protocol has no questions": [F.RESUME],
            "turns have pictures only, as bytes": (
                F.IMAGE_URL, F.AUDIO_URL, F.AUDIO_INLINE, F.VIDEO_URL, F.VIDEO_INLINE, F.FILE_URL, F.FILE_INLINE,
                F.FILE_REF),
        },
    ),
    demands=Demands(results_follow_calls=True, results_in_order=True, object_arguments=True),
    totals=False,
    usage_on_failure=False,
    media_types=False,
    call_ids=False,
    exact_arguments=False,
)  # fmt: skip


def _is_picture(part: Part, role: str = "") -> bool:
    return isinstance(part, Media) and part.kind is MediaKind.IMAGE and isinstance(part.source, Inline)


def _tools(body: Node, name: str) -> list[Tool]:
    return [read_function(node) for node in body.objects(name)]


_LOSSES = MessageLosses(_CARD, takes=_is_picture, marks_errors=False, beside_results=())
_BODY = Fields(
    NAME,
    Row("model"),
    Row("turns"),
    Row("tools", _tools, "tools"),
    Row("stream", BOOLEAN, "stream"),
    carries={"resume"},  # which is refused
)


class InHouse(ObjectDialect, ModelsDialect):
    name = NAME
    framing = Framing.JSON_LINES
    requires_model = True
    surface = (Endpoint("POST", "/talk", Operation.RUN), Endpoint("GET", "/models", Operation.MODELS))
    capabilities = _CARD

    # ------------------------------------------------------------- as the front

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        body, calls = body_of(wire), OpenCalls()
        messages = [_message(turn, calls) for turn in body.objects("turns")]
        if not messages:
            raise RequestError("turns: expected at least one turn.", param="turns")
        request = Request(messages, model=model_in(body, context.model))
        if extras := _BODY.read(body, request):
            request.extras = {NAME: extras}
        return request

    def encoder(self, context: Context) -> AnswerEncoder:
        return AnswerEncoder(context, self.capabilities)

    def error_body(self, failure: Failure) -> Wire:
        return {"error": failure.message}

    def encode_models(self, models: Sequence[ModelInfo]) -> WireResponse:
        return json_response(dumps({"models": [model.id for model in models]}))

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        turn = {"from": "user", "text": text}
        return json_request("/talk", dumps({"model": "default", "turns": [turn], "stream": stream}))

    # ------------------------------------------------------------- as the back

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        refuse_resume(request)
        messages = _LOSSES.carried(request.messages, context.lost)
        if any(isinstance(p, Reasoning) and (p.signature or p.redacted) for m in request.messages for p in m.parts):
            context.lost.add(Feature.REASONING_HISTORY, "its signature")
        names = {part.call_id: part.name for m in request.messages for part in m.parts if isinstance(part, ToolCall)}
        made = {
            "model": context.model or request.model or "",
            "turns": [turn for message in messages for turn in _turns(message, names)],
            "tools": [write_function(tool) for tool in supported(request, NAME, context.lost)] or None,
        }
        return json_request("/talk", dumps({**_BODY.write(request, context.lost, made), **request.extra(NAME)}))

    def decode_object(self, node: Node, builder: Builder) -> None:
        if (error := node.string("error")) is not None:
            builder.fail(Failure(ErrorCode.BACKEND_ERROR, masked(error)))
            return
        builder.begin(model=node.string("model"))
        if thought := node.string("thought"):
            builder.flow(0, PartKind.REASONING, thought)
        if text := node.string("text"):
            builder.flow(0, PartKind.TEXT, text)
        for each in filter(None, [node.object("call"), *node.objects("calls")]):
            builder.open_part("call", 0, PartKind.TOOL_CALL, name=each.need_string("name"))
            builder.delta("call", _arguments(each))
            builder.end_part("call")
        if (end := node.one_of("end", ("stop", "length"))) is not None:
            if (tokens := node.object("tokens")) is not None:
                builder.usage(UsageReported(tokens.integer("in", least=0), tokens.integer("out", least=0)))
            builder.finish(FinishReason(end))
            builder.end()

    def models_request(self) -> WireRequest:
        return WireRequest("GET", "/models")

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        models = dict_of(read_json(wire.body)).get("models")
        if not isinstance(models, list):
            raise BackendError("The backend's answer is not a list of models.", code=ErrorCode.BACKEND_PROTOCOL)
        return [ModelInfo(name) for name in models if isinstance(name, str)]


# ------------------------------------------------------------- answers for clients


class AnswerEncoder(Encoder):
    """An object for each piece of text or thought, each complete call, and the end."""

    dialect = NAME
    buffered = (PartKind.TOOL_CALL,)

    def run_started(self, event: ev.RunStarted) -> None:
        self.write({"model": event.model or self.context.model or ""})

    def text(self, event: ev.TextDelta) -> None:
        self.write({"text": event.text})

    def reasoning(self, event: ev.ReasoningDelta) -> None:
        self.write({"thought": event.text})

    def buffered_part(self, part: Reasoning | ToolCall, end: ev.PartEnded) -> None:
        if isinstance(part, ToolCall):
            self.write({"call": {"name": part.name, "input": input_of(part.arguments)}})

    def failed(self, event: ev.RunFailed) -> None:
        self.write({"error": event.error.message})

    def finished(self, event: ev.RunFinished) -> None:
        end: Wire = {"end": "length" if event.reason is FinishReason.LENGTH else "stop"}
        self.write(end if self.usage is None else {**end, "tokens": {"in": self.usage.input, "out": self.usage.output}})

    def accumulate(self, frames: Sequence[Wire]) -> Wire:
        whole: Wire = {}
        for name, value in (field for frame in frames for field in frame.items()):
            if name == "call":
                whole.setdefault("calls", []).append(value)
            else:
                whole[name] = whole.get(name, "") + value if name in ("text", "thought") else value
        return whole


# ------------------------------------------------------------- conversations


def _message(turn: Node, calls: OpenCalls) -> Message:
    """Return the message that a turn is. Raises `RequestError` with the place of what is wrong."""
    role = turn.need_one_of("from", ("system", "user", "assistant", "tool"))
    thought, text = turn.string("thought"), turn.string("text")
    parts: list[Part] = [Reasoning(thought)] if thought else []
    parts += [Text(text)] if text is not None else []
    parts += [_picture(data) for data in turn.strings("pictures") or ()]
    if role == "assistant":
        calls.turn()
    for call in turn.objects("calls"):
        name = call.need_string("name")
        parts.append(ToolCall(calls.add(name), name, _arguments(call)))
    if role == "tool":
        name = turn.need_string("of")
        if (found := calls.take(name)) is None:
            place = turn.at("of")
            raise RequestError(f"{place}: expected the tool of an open call, got {name!r}.", param=place)
        parts = [ToolResult(found.call_id, parts, name=name)]
    return Message(role, parts, places=(turn.path,))


def _arguments(call: Node) -> str:
    given = call.object("input")
    return arguments_of(given.value) if given else "{}"


def _picture(data: str) -> Media:
    picture = Media(MediaKind.IMAGE, Inline(data))
    picture.mime = mime_of(picture)
    return picture


def _turns(message: Message, names: dict[str, str]) -> list[Wire]:
    """Return the turns that a message is: one, or one for each of its results. `names` are the tools by call ids."""
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    others = [part for part in message.parts if not isinstance(part, ToolResult)]
    turns = [{**_turn("tool", result.parts), "of": names.get(result.call_id, "")} for result in results]
    role = "system" if message.role == "developer" else message.role
    return [*turns, _turn(role, others)] if others or not turns else turns


def _turn(role: str, parts: Sequence[Part]) -> Wire:
    texts: list[str] = []
    fields: Wire = {}
    for part in parts:
        match part:
            case Reasoning():
                fields["thought"] = fields.get("thought", "") + part.text
            case ToolCall():
                fields.setdefault("calls", []).append({"name": part.name, "input": input_of(part.arguments)})
            case Media(source=Inline(base64=data)):
                fields.setdefault("pictures", []).append(data)
            case _:
                texts.append(as_text(part))
    return {"from": role, "text": "\n".join(texts), **fields}


dialect = InHouse()
