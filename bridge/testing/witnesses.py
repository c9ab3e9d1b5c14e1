"""The smallest answer and the smallest request with a feature, one for each feature, and a function that finds it
again.

A feature has arrived if `read` finds the same in what was sent and in what came. A feature whose witness does not
survive a dialect's own wire cannot be expressed in that dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

from bridge.contract import Dialect, Feature, Support, WireRequest
from bridge.errors import RequestError, Unsupported
from bridge.model import (
    Answer,
    Custom,
    Data,
    Event,
    FileRef,
    FinishReason,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Message,
    Origin,
    Part,
    PartKind,
    Raw,
    Reasoning,
    Refusal,
    Request,
    ResponseFormat,
    Resume,
    Sampling,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
    Url,
    UsageReported,
    fold,
    result_text,
    url_of,
)
from bridge.model.builder import Builder
from bridge.testing.outline import outline
from bridge.testing.wires import context, decode, encode, with_numbered_calls
from bridge.translation.policies.signatures import unwrapped


@dataclass(frozen=True)
class AnswerWitness:
    """An answer with one feature: `tell` passes it to a builder, `read` finds it in a finished answer."""

    tell: Callable[[Builder], None]
    read: Callable[[Answer], Any]
    model: str | None = None


@dataclass(frozen=True)
class RequestWitness:
    """A request with one feature; `read` finds it in a request."""

    request: Request
    read: Callable[[Request], Any]


def answer_of(feature: Feature) -> list[Event]:
    """Return a whole run whose answer has the feature."""
    return answer_told(ANSWERS[feature])


def answer_told(witness: AnswerWitness) -> list[Event]:
    """Return a whole run that a witness tells."""
    builder = context(None).builder()
    builder.begin(model=witness.model)
    witness.tell(builder)
    builder.finish()
    builder.end()
    return builder.take()


@cache
def supported_answers(dialect: Dialect) -> frozenset[Feature]:
    """Return the features of answers that this dialect's own wire carries from end to end.

    Of a dialect that is not served, those that its card has as exact: nothing here can write its wire.
    """
    if not dialect.served:
        return frozenset(f for f in ANSWERS if dialect.capabilities.answer(f) is Support.EXACT)
    return frozenset(
        feature
        for feature, witness in ANSWERS.items()
        if witness.read(with_numbered_calls(fold(decode(dialect, [encode(dialect, answer_of(feature))])), dialect))
        == witness.read(with_numbered_calls(fold(answer_of(feature)), dialect))
    )


@cache
def supported_requests(dialect: Dialect) -> frozenset[Feature]:
    """Return the features of requests that this dialect's own wire carries from end to end."""
    return frozenset(feature for feature, witness in REQUESTS.items() if _asks(dialect, witness))


@cache
def supported_parts(dialect: Dialect) -> frozenset[str]:
    """Return the names of those of `REQUEST_PARTS` that this dialect's own wire carries from end to end."""
    return frozenset(name for name, (_, witness) in REQUEST_PARTS.items() if _asks(dialect, witness))


def _asks(dialect: Dialect, witness: RequestWitness) -> bool:
    try:
        wire = dialect.encode_request(witness.request, context(dialect.back_options(), witness.request))
        read = dialect.decode_request(
            WireRequest(headers=wire.headers, body=wire.body), context(dialect.front_options())
        )
    except (RequestError, Unsupported):
        return False
    return bool(
        witness.read(with_numbered_calls(read, dialect)) == witness.read(with_numbered_calls(witness.request, dialect))
    )


# ---------------------------------------------------------------------- answers


def _adds(*parts: Part) -> Callable[[Builder], None]:
    def tell(builder: Builder) -> None:
        for part in parts:
            builder.add(0, part)

    return tell


def _emits(*events: Event) -> Callable[[Builder], None]:
    def tell(builder: Builder) -> None:
        for event in events:
            builder.emit(event)
        builder.flow(0, PartKind.TEXT, "done")

    return tell


def _ends(reason: FinishReason) -> Callable[[Builder], None]:
    def tell(builder: Builder) -> None:
        builder.flow(0, PartKind.TEXT, "half")
        builder.finish(reason)

    return tell


def _waits(builder: Builder) -> None:
    builder.interrupt(Interrupted("i-1", "confirm", {"question": "Really?"}))
    builder.finish(FinishReason.INTERRUPTED)


def _uses(builder: Builder) -> None:
    builder.flow(0, PartKind.TEXT, "done")
    builder.usage(UsageReported(12, 34, 46, 5, 6))


def _chooses(builder: Builder) -> None:
    for choice, text in enumerate(("one", "two")):
        builder.message(f"c{choice}", choice=choice)
        builder.flow(f"c{choice}", PartKind.TEXT, text)


def _borders(builder: Builder) -> None:
    for text in ("one", "two"):
        builder.add(0, Text(text))


def _media(kind: MediaKind) -> Callable[[Answer | Request], list[str]]:
    return lambda said: [url_of(p) or "" for p in _parts(said) if isinstance(p, Media) and p.kind is kind]


def _parts(said: Answer | Request) -> list[Part]:
    return [part for message in said.messages for part in message.parts]


def _others(kind: str) -> Callable[[Answer], list[Any]]:
    return lambda answer: [item[1:] for item in outline(answer).others if item[0] == kind]


_CALL = ToolCall("call-1", "get_weather", '{"city":"Paris"}')
_PNG = Inline("iVBORw0KGgo=")
_WAV = Inline("UklGRiQAAABXQVZF")
_PDF = Inline("JVBERi0xLjQKJeLjz9MK")
_SEEN: dict[MediaKind, Media] = {
    MediaKind.IMAGE: Media(MediaKind.IMAGE, _PNG, "image/png"),
    MediaKind.AUDIO: Media(MediaKind.AUDIO, _WAV, "audio/wav"),
    MediaKind.VIDEO: Media(MediaKind.VIDEO, Url("https://files.example/a.mp4")),
    MediaKind.FILE: Media(MediaKind.FILE, _PDF, "application/pdf", "a.pdf"),
}
_REASON: Callable[[Answer], Any] = lambda answer: answer.reason  # noqa: E731

ANSWERS: dict[Feature, AnswerWitness] = {
    Feature.TEXT: AnswerWitness(_adds(Text("hello")), lambda a: a.text),
    Feature.REASONING: AnswerWitness(_adds(Reasoning("hmm"), Text("hello")), lambda a: a.reasoning),
    Feature.REASONING_SIGNATURE: AnswerWitness(
        _adds(Reasoning("hmm", "c2lnbmVk"), Text("hello")),
        lambda a: [unwrapped(p.signature) for p in a.parts() if isinstance(p, Reasoning)],
    ),
    Feature.REFUSAL: AnswerWitness(_adds(Refusal("no")), lambda a: a.refusal),
    Feature.TOOL_CALL: AnswerWitness(_adds(_CALL), lambda a: [(c.call_id, c.name, c.arguments) for c in a.calls]),
    Feature.TOOL_ORIGIN: AnswerWitness(
        _adds(ToolCall("call-1", "search", "{}", Origin.MCP, "web")), lambda a: [c.origin for c in a.calls]
    ),
    Feature.TOOL_RESULT: AnswerWitness(
        _adds(_CALL, ToolResult("call-1", [Text("sunny")]), Text("It is sunny.")),
        lambda a: [(r.call_id, result_text(r.parts)) for r in _parts(a) if isinstance(r, ToolResult)],
    ),
    Feature.IMAGE: AnswerWitness(_adds(_SEEN[MediaKind.IMAGE]), _media(MediaKind.IMAGE)),
    Feature.AUDIO: AnswerWitness(_adds(_SEEN[MediaKind.AUDIO]), _media(MediaKind.AUDIO)),
    Feature.VIDEO: AnswerWitness(_adds(_SEEN[MediaKind.VIDEO]), _media(MediaKind.VIDEO)),
    Feature.FILE: AnswerWitness(_adds(_SEEN[MediaKind.FILE]), _media(MediaKind.FILE)),
    Feature.DATA: AnswerWitness(_adds(Data({"a": 1})), lambda a: [p.value for p in a.parts() if isinstance(p, Data)]),
    Feature.USAGE: AnswerWitness(_uses, lambda a: a.usage and (a.usage.input, a.usage.output)),
    Feature.USAGE_DETAILS: AnswerWitness(_uses, lambda a: a.usage and (a.usage.cached, a.usage.reasoning)),
    Feature.FINISH_LENGTH: AnswerWitness(_ends(FinishReason.LENGTH), _REASON),
    Feature.FINISH_CONTENT_FILTER: AnswerWitness(_ends(FinishReason.CONTENT_FILTER), _REASON),
    Feature.FINISH_CANCELED: AnswerWitness(_ends(FinishReason.CANCELED), _REASON),
    Feature.INTERRUPT: AnswerWitness(_waits, lambda a: [i.payload for i in a.interrupts]),
    Feature.STATE: AnswerWitness(_emits(StateChanged(StateOp.SNAPSHOT, {"a": 1})), _others("state")),
    Feature.STEP: AnswerWitness(_emits(StepStarted("plan"), StepEnded("plan")), _others("step")),
    Feature.CUSTOM: AnswerWitness(_emits(Custom("ping", {"a": 1})), _others("custom")),
    Feature.RAW: AnswerWitness(_emits(Raw("another", {"a": 1})), _others("raw")),
    Feature.CHOICES: AnswerWitness(_chooses, lambda a: a.choices),
    Feature.PART_BORDERS: AnswerWitness(_borders, lambda a: [p.text for p in a.parts() if isinstance(p, Text)]),
    Feature.MODEL: AnswerWitness(_adds(Text("hello")), lambda a: a.model, "model-of-the-answer"),
}
"""A witness for each of `ANSWER_FEATURES`."""


def _ran(result: ToolResult, read: Callable[[ToolResult], Any]) -> AnswerWitness:
    """Return an answer with the result of a call; a wire without results has lost `TOOL_RESULT`."""
    return AnswerWitness(
        _adds(_CALL, result, Text("done")), lambda a: [read(r) for r in _parts(a) if isinstance(r, ToolResult)]
    )


ANSWER_DETAILS: dict[str, tuple[Sequence[Feature], AnswerWitness]] = {
    "the mark that a result is an error": (
        (Feature.TOOL_RESULT,),
        _ran(ToolResult("call-1", [Text("no city")], is_error=True), lambda r: r.is_error),
    ),
    "a picture in a tool result": (
        (Feature.TOOL_RESULT, Feature.IMAGE),
        _ran(
            ToolResult("call-1", [Text("see"), _SEEN[MediaKind.IMAGE]]),
            lambda r: [url_of(p) for p in r.parts if isinstance(p, Media)],
        ),
    ),
}  # fmt: skip
"""Details of features of answers: each arrives, or one of these features is named as lost."""


# ---------------------------------------------------------------------- requests

_HELLO = Message("user", [Text("hello")])
_TOOL = Tool("get_weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
_CALLED = [
    _HELLO,
    Message("assistant", [_CALL]),
    Message("tool", [ToolResult("call-1", [Text("sunny")])]),
    Message("user", [Text("and now?")]),
]


def _request(**said: Any) -> Request:
    messages = said.pop("messages", None) or [_HELLO]
    return Request(messages, model="m", thread_id=said.pop("thread_id", None), **said)


def _shown(kind: MediaKind, source: Url | Inline | FileRef, mime: str) -> RequestWitness:
    name = "a.pdf" if kind is MediaKind.FILE and isinstance(source, Inline) else None
    request = _request(messages=[Message("user", [Text("look"), Media(kind, source, mime, name)])])
    if isinstance(source, FileRef):
        return RequestWitness(request, lambda r: [p.source for p in _parts(r) if isinstance(p, Media)])
    return RequestWitness(request, _media(kind))


def _past(*parts: Part) -> Request:
    return _request(messages=[_HELLO, Message("assistant", [*parts]), Message("user", [Text("and now?")])])


REQUESTS: dict[Feature, RequestWitness] = {
    Feature.SYSTEM: RequestWitness(
        _request(messages=[Message("system", [Text("Be brief.")]), _HELLO]),
        lambda r: [result_text(m.parts) for m in r.messages if m.role in ("system", "developer")],
    ),
    Feature.MESSAGE_NAME: RequestWitness(
        _request(messages=[Message("user", [Text("hello")], name="ann")]), lambda r: [m.name for m in r.messages]
    ),
    Feature.TOOLS: RequestWitness(
        _request(tools=[_TOOL]), lambda r: [(t.name, t.description, t.parameters) for t in r.tools or ()]
    ),
    Feature.TOOL_CHOICE: RequestWitness(
        _request(tools=[_TOOL], tool_choice=ToolChoice(ToolMode.REQUIRED, ["get_weather"])), lambda r: r.tool_choice
    ),
    Feature.PARALLEL_TOOL_CALLS: RequestWitness(
        _request(tools=[_TOOL], parallel_tool_calls=False), lambda r: r.parallel_tool_calls
    ),
    Feature.RESPONSE_FORMAT: RequestWitness(
        _request(response_format=ResponseFormat("json_schema", "answer", {"type": "object", "properties": {}})),
        lambda r: r.response_format and (r.response_format.kind, r.response_format.schema),
    ),
    Feature.SAMPLING: RequestWitness(
        _request(sampling=Sampling(temperature=0.5, max_tokens=100)),
        lambda r: (r.sampling.temperature, r.sampling.max_tokens),
    ),
    Feature.REASONING_EFFORT: RequestWitness(_request(reasoning_effort="low"), lambda r: r.reasoning_effort),
    Feature.IMAGE_URL: _shown(MediaKind.IMAGE, Url("https://files.example/a.png"), "image/png"),
    Feature.IMAGE_INLINE: _shown(MediaKind.IMAGE, _PNG, "image/png"),
    Feature.AUDIO_URL: _shown(MediaKind.AUDIO, Url("https://files.example/a.wav"), "audio/wav"),
    Feature.AUDIO_INLINE: _shown(MediaKind.AUDIO, _WAV, "audio/wav"),
    Feature.VIDEO_URL: _shown(MediaKind.VIDEO, Url("https://files.example/a.mp4"), "video/mp4"),
    Feature.VIDEO_INLINE: _shown(MediaKind.VIDEO, Inline("bW9vdg=="), "video/mp4"),
    Feature.FILE_URL: _shown(MediaKind.FILE, Url("https://files.example/a.pdf"), "application/pdf"),
    Feature.FILE_INLINE: _shown(MediaKind.FILE, _PDF, "application/pdf"),
    Feature.FILE_REF: _shown(MediaKind.FILE, FileRef("file-1"), "application/pdf"),
    Feature.DATA: RequestWitness(
        _request(messages=[Message("user", [Text("look"), Data({"a": 1})])]),
        lambda r: [p.value for p in _parts(r) if isinstance(p, Data)],
    ),
    Feature.REASONING_HISTORY: RequestWitness(
        _past(Reasoning("hmm"), Text("hello")), lambda r: [p.text for p in _parts(r) if isinstance(p, Reasoning)]
    ),
    Feature.REFUSAL_HISTORY: RequestWitness(
        _past(Refusal("no")), lambda r: [p.text for p in _parts(r) if isinstance(p, Refusal)]
    ),
    Feature.TOOL_HISTORY: RequestWitness(
        _request(messages=_CALLED),
        lambda r: [
            (p.call_id, p.name, p.arguments) if isinstance(p, ToolCall) else (p.call_id, result_text(p.parts))
            for p in _parts(r)
            if isinstance(p, (ToolCall, ToolResult))
        ],
    ),
    Feature.TOOL_ORIGIN: RequestWitness(
        _request(
            messages=[
                _HELLO,
                Message("assistant", [ToolCall("call-1", "search", "{}", Origin.MCP, "web")]),
                *_CALLED[2:],
            ]
        ),
        lambda r: [p.origin for p in _parts(r) if isinstance(p, ToolCall)],
    ),
    Feature.USER_ID: RequestWitness(_request(user_id="user-1"), lambda r: r.user_id),
    Feature.THREAD_ID: RequestWitness(_request(thread_id="thread1"), lambda r: r.thread_id),
    Feature.METADATA: RequestWitness(_request(metadata={"team": "blue"}), lambda r: r.metadata.get("team")),
    Feature.CONTEXT: RequestWitness(_request(context=[{"description": "page", "value": "home"}]), lambda r: r.context),
    Feature.STATE: RequestWitness(_request(state={"a": 1}), lambda r: r.state),
    Feature.RESUME: RequestWitness(
        _request(resume=[Resume("i-1", "resolved", "yes", place="answers[0]")]), lambda r: [a.agrees for a in r.resume]
    ),
}
"""A witness for each of `REQUEST_FEATURES` but `extras`, which are another thing in every dialect."""


def _chooses_mode(mode: ToolMode) -> RequestWitness:
    def read(request: Request) -> bool:
        # Without tools, none is called either.
        unneeded = mode is ToolMode.NONE and not request.tools
        return unneeded or (request.tool_choice is not None and request.tool_choice.mode is mode)

    return RequestWitness(_request(tools=[_TOOL], tool_choice=ToolChoice(mode)), read)


_SAMPLING: dict[str, Any] = {
    "temperature": 0.5, "top_p": 0.5, "max_tokens": 100, "stop": ["END"], "seed": 7, "n": 2, "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
}  # fmt: skip
REQUEST_PARTS: dict[str, tuple[Feature, RequestWitness]] = {
    **{
        f"sampling.{name}": (
            Feature.SAMPLING,
            RequestWitness(_request(sampling=Sampling(**{name: value})), attrgetter(f"sampling.{name}")),
        )
        for name, value in _SAMPLING.items()
    },
    **{
        f"tool_choice.{mode}": (Feature.TOOL_CHOICE, _chooses_mode(mode)) for mode in (ToolMode.REQUIRED, ToolMode.NONE)
    },
}
"""Further witnesses of features with several parts, of which a dialect may carry some: each arrives or is named."""


# ---------------------------------------------------------------------- details of requests


def _results(request: Request) -> list[ToolResult]:
    return [part for part in _parts(request) if isinstance(part, ToolResult)]


def _with_result(*parts: Part, beside: Sequence[Part] = (), is_error: bool = False) -> Request:
    result = ToolResult("call-1", [*parts], name="get_weather", is_error=is_error)
    return _request(messages=[*_CALLED[:2], Message("tool", [*beside, result]), _CALLED[3]])


def _shown_by_results(request: Request) -> list[str]:
    """Pictures of results, which some wires have in a message after them."""
    inner = [part for result in _results(request) for part in result.parts]
    return [url_of(part) or "" for part in [*inner, *_parts(request)] if isinstance(part, Media)]


def _pictured(role: str, picture: Media) -> RequestWitness:
    said = Message(role, [Text("look"), picture])
    return RequestWitness(_request(messages=[_HELLO, said, _HELLO]), _media(MediaKind.IMAGE))


_LINKED = Media(MediaKind.IMAGE, Url("https://files.example/detail.png"), "image/png")
LINK = b"https://files.example/detail.png"
"""What the wire has of a picture of `REQUEST_DETAILS` that is sent as text."""
REQUEST_DETAILS: dict[str, tuple[Feature, RequestWitness]] = {
    "a picture by URL in a tool result": (
        Feature.IMAGE_URL,
        RequestWitness(_with_result(Text("see"), _LINKED), _shown_by_results),
    ),
    "a picture as bytes in a tool result": (
        Feature.IMAGE_INLINE,
        RequestWitness(_with_result(Text("see"), _SEEN[MediaKind.IMAGE]), _shown_by_results),
    ),
    **{
        f"a picture by URL in a message of role {role}": (Feature.IMAGE_URL, _pictured(role, _LINKED))
        for role in ("system", "assistant")
    },
    "the detail of a picture": (
        Feature.IMAGE_URL,
        RequestWitness(
            _request(messages=[Message("user", [Text("look"), replace(_LINKED, detail="low")])]),
            lambda r: [part.detail for part in _parts(r) if isinstance(part, Media)],
        ),
    ),
    "the mark that a result is an error": (
        Feature.TOOL_HISTORY,
        RequestWitness(_with_result(Text("no city"), is_error=True), lambda r: [each.is_error for each in _results(r)]),
    ),
    "a text beside a tool result": (
        Feature.TOOL_HISTORY,
        RequestWitness(
            _with_result(Text("sunny"), beside=[Text("beside it")]),
            lambda r: any("beside it" in result_text(message.parts) for message in r.messages),
        ),
    ),
    "strict of a tool": (
        Feature.TOOLS,
        RequestWitness(_request(tools=[replace(_TOOL, strict=True)]), lambda r: [t.strict for t in r.tools or ()]),
    ),
    "strict of one of two tools": (
        Feature.TOOLS,
        RequestWitness(
            _request(tools=[replace(_TOOL, strict=True), replace(_TOOL, name="other")]),
            lambda r: [bool(t.strict) for t in r.tools or ()],
        ),
    ),
}
"""Details of features that many wires carry without this detail: each is sent, or named as lost."""
