"""What may happen: hypothesis strategies for event streams, requests and the places where bytes are cut.

`answers()` drives the `Builder`, so every stream it gives obeys the grammar, as if a decoder had made it. Each
feature can be left out by keyword, for dialects that cannot say it. `requests()` does the same for the other way,
`splits()` and `batches()` cut bytes and lists anywhere.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Builder,
    Custom,
    Data,
    Event,
    FileRef,
    FinishReason,
    Heartbeat,
    HistoryMode,
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
    Source,
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
)

T = TypeVar("T")

AWKWARD = "\u2028\u2029\x00\x7f\x85\r\n\t\"'\\/<&\ufeff\ufffd\U0001f600é中"
"""Characters that line splitters, JSON writers and terminals stumble over."""

SNIPPETS = (
    "hello",
    "data: x",
    "\n\ndata: [DONE]\n\n",
    "event: error\r\n\r\n",
    '{"a": 1}',
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "<think>",
    "a\u2028b",
    "  ",
    "\x00",
    "\r",
)

ALL_KINDS = tuple(MediaKind)
ALL_SOURCES: tuple[type, ...] = (Url, Inline, FileRef)
ALL_FINISHES = (
    FinishReason.STOP,
    FinishReason.TOOL_CALLS,
    FinishReason.LENGTH,
    FinishReason.CONTENT_FILTER,
    FinishReason.CANCELED,
)
MIMES = {
    MediaKind.IMAGE: "image/png",
    MediaKind.AUDIO: "audio/wav",
    MediaKind.VIDEO: "video/mp4",
    MediaKind.FILE: "application/pdf",
}


# Making a strategy costs more than drawing from it, so that those without state are kept.


@cache
def texts(*, empty: bool = True, awkward: bool = True, max_size: int = 12) -> st.SearchStrategy[str]:
    """Valid Unicode of every temper; without `awkward`, letters and spaces only."""
    least = 0 if empty else 1
    if not awkward:
        return st.text("abc XYZ.", min_size=least, max_size=max_size)
    return st.one_of(
        st.sampled_from(SNIPPETS),
        st.text(st.sampled_from("ab " + AWKWARD), min_size=least, max_size=max_size),
        st.text(st.characters(codec="utf-8"), min_size=least, max_size=max_size),
    )


@cache
def names() -> st.SearchStrategy[str]:
    """Names that every wire takes, for tools, steps, authors."""
    return st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@cache
def json_values(*, awkward: bool = True) -> st.SearchStrategy[Any]:
    """JSON values that come back equal from any JSON library."""
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53), 2**53),
        st.floats(allow_nan=False, allow_infinity=False),
        texts(awkward=awkward),
    )
    keys = texts(awkward=awkward, max_size=6)
    inner = st.lists(plain, max_size=2) | st.dictionaries(keys, plain, max_size=2)
    return st.one_of(plain, inner, st.lists(inner, max_size=2), st.dictionaries(keys, inner, max_size=2))


@cache
def json_objects(*, awkward: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects."""
    return st.dictionaries(texts(awkward=awkward, max_size=6), json_values(awkward=awkward), max_size=2)


@cache
def arguments(*, ragged: bool = True) -> st.SearchStrategy[str]:
    """Arguments as models write them; with `ragged` also empty, cut off or no JSON at all."""
    good = ('{"city": "Köln"}', "{}", '{"a": [1, {"b": null}], "c": "\\u2028\\n\\"}"}', '{ "spaced" : 1.0 }')
    bad = ("", '{"city": "K', "not json", "[1, 2]", '"text"', '{"a": 1} trailing', "null")
    return st.sampled_from(good + bad if ragged else good)


def sources(kinds: Collection[type] = ALL_SOURCES) -> st.SearchStrategy[Source]:
    made: dict[type, st.SearchStrategy[Source]] = {
        Url: st.sampled_from(("https://example.test/a.png", "http://example.test/ü?q=1&r=%20#f")).map(Url),
        Inline: st.binary(min_size=1, max_size=6).map(lambda b: Inline(base64.b64encode(b).decode())),
        FileRef: st.sampled_from(("file-1", "file_Ab2")).map(FileRef),
    }
    return st.one_of([made[kind] for kind in ALL_SOURCES if kind in kinds])


def media(
    kinds: Collection[MediaKind] = ALL_KINDS,
    source_kinds: Collection[type] = ALL_SOURCES,
    *,
    mime: bool = True,
    filename: bool = True,
) -> st.SearchStrategy[Media]:
    """Media; `mime` and `filename` are said or not, unless switched off."""
    return _media_of(tuple(k for k in ALL_KINDS if k in kinds), tuple(source_kinds), mime, filename)


@cache
def _media_of(
    kinds: tuple[MediaKind, ...], source_kinds: tuple[type, ...], mime: bool, filename: bool
) -> st.SearchStrategy[Media]:
    def of_kind(kind: MediaKind) -> st.SearchStrategy[Media]:
        return st.builds(
            Media,
            st.just(kind),
            sources(source_kinds),
            st.sampled_from((None, MIMES[kind])) if mime else st.none(),
            st.sampled_from((None, "a b.pdf")) if filename else st.none(),
        )

    return st.one_of([of_kind(kind) for kind in kinds])


def failures(codes: Collection[ErrorCode] = tuple(ErrorCode)) -> st.SearchStrategy[Failure]:
    """Failures of these codes, with and without what they may carry besides."""
    return _failures(tuple(codes))


@cache
def _failures(codes: tuple[ErrorCode, ...]) -> st.SearchStrategy[Failure]:
    return st.builds(
        Failure,
        st.sampled_from(codes),
        texts(empty=False),
        param=st.sampled_from((None, "messages[2].content")),
        status=st.sampled_from((None, 422)),
        backend_code=st.sampled_from((None, "insufficient_quota")),
        headers=st.sampled_from(({}, {"retry-after": "3"})).map(dict),
        details=st.sampled_from(({}, {"seen": [1, None]})).map(dict),
    )


# ---------------------------------------------------------------------- answers


@dataclass(frozen=True)
class Features:
    """What may stand in a stream. The keywords of `answers()`."""

    text: bool = True
    reasoning: bool = True
    signatures: bool = True
    redacted: bool = True
    refusal: bool = True
    calls: bool = True
    parallel: bool = True
    interleaved: bool = True
    ragged_arguments: bool = True
    origins: bool = True
    results: bool = True
    result_errors: bool = True
    result_media: bool = True
    media: Collection[MediaKind] = ALL_KINDS
    sources: Collection[type] = ALL_SOURCES
    data: bool = True
    usage: bool = True
    usage_details: bool = True
    interrupts: bool = True
    states: bool = True
    steps: bool = True
    custom: bool = True
    raw: bool = True
    heartbeats: bool = True
    choices: bool = True
    several_messages: bool = True
    roles: Sequence[str] = ("assistant",)
    message_names: bool = True
    message_ids: bool = True
    head: bool = True
    metadata: bool = True
    extras: bool = True
    empty_parts: bool = True
    awkward: bool = True
    finish: Collection[FinishReason] = ALL_FINISHES
    failures: bool = True
    truncated: bool = True
    max_actions: int = 8

    def texts(self, *, empty: bool = False) -> st.SearchStrategy[str]:
        return texts(empty=empty, awkward=self.awkward)


def nothing(**wanted: Any) -> dict[str, Any]:
    """Keywords for `answers` that switch everything off but `wanted`: `answers(**nothing(text=True))`."""
    off: dict[str, Any] = {}
    for name, spec in Features.__dataclass_fields__.items():
        if spec.default is True:
            off[name] = False
    return {**off, "media": (), "finish": (FinishReason.STOP,), **wanted}


@dataclass
class _Run:
    """The state of one stream that is being made."""

    draw: Any
    features: Features
    builder: Builder
    message: int = 0
    choice: int = 0
    parts: int = 0
    names: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Hashable:
        return (self.choice, self.message)

    def open(self) -> Hashable:
        """The key of the current message, which is open after this."""
        if not self.builder.is_open(self.key):
            draw, features = self.draw, self.features
            self.builder.message(
                self.key,
                message_id=draw(st.sampled_from((None, "wire-1", "wire-2"))) if features.message_ids else None,
                role=draw(st.sampled_from(list(features.roles))),
                name=draw(st.none() | names()) if features.message_names else None,
                choice=self.choice,
                extras=self.extras(),
            )
        return self.key

    def extras(self) -> dict[str, dict[str, Any]] | None:
        if not self.features.extras:
            return None
        return self.draw(st.sampled_from((None, None, {"some-dialect": {"seen": [1, "x"]}})))

    def call_id(self) -> str:
        self.parts += 1
        return f"call-{self.parts}"


def _flow(run: _Run, kind: PartKind) -> None:
    key = run.open()
    for piece in run.draw(st.lists(run.features.texts(), min_size=1, max_size=3)):
        run.builder.flow(key, kind, piece)


def _text(run: _Run) -> None:
    if run.draw(st.booleans()):
        _flow(run, PartKind.TEXT)
    else:
        run.builder.add(run.open(), Text(run.draw(run.features.texts(empty=run.features.empty_parts)), run.extras()))


def _refusal(run: _Run) -> None:
    if run.draw(st.booleans()):
        _flow(run, PartKind.REFUSAL)
    else:
        run.builder.add(run.open(), Refusal(run.draw(run.features.texts(empty=run.features.empty_parts)), run.extras()))


def _reasoning(run: _Run) -> None:
    draw, features = run.draw, run.features
    signature = draw(st.sampled_from((None, "c2lnbmVk+/=="))) if features.signatures else None
    redacted = draw(st.sampled_from((None, "ZW5jcnlwdGVk"))) if features.redacted else None
    if draw(st.booleans()):
        _flow(run, PartKind.REASONING)
        if signature or redacted or draw(st.booleans()):
            run.builder.end_flow(run.key, signature=signature, redacted=redacted)
    else:
        part = Reasoning(draw(features.texts(empty=features.empty_parts)), signature, redacted, run.extras())
        run.builder.add(run.open(), part)


def _calls(run: _Run) -> None:
    """One or several calls; their pieces come one after another or mixed."""
    draw, features, builder = run.draw, run.features, run.builder
    key = run.open()
    pieces: list[tuple[str, str | None]] = []
    for _ in range(draw(st.integers(1, 3 if features.parallel else 1))):
        call_id, name = run.call_id(), draw(names())
        run.names[call_id] = name
        origin = draw(st.sampled_from(Origin)) if features.origins else Origin.FUNCTION
        said = draw(arguments(ragged=features.ragged_arguments))
        label = "srv" if origin is Origin.MCP and draw(st.booleans()) else None
        cut = draw(st.integers(0, len(said)))
        own: list[tuple[str, str | None]] = [(call_id, said[:cut]), (call_id, said[cut:]), (call_id, None)]
        if not features.interleaved:
            if draw(st.booleans()):
                builder.add(key, ToolCall(call_id, name, said, origin, label, run.extras()))
                continue
            builder.open_part(
                call_id, key, PartKind.TOOL_CALL, call_id=call_id, name=name, origin=origin, server_label=label
            )
            _apply(builder, own)
            continue
        builder.open_part(
            call_id, key, PartKind.TOOL_CALL,
            call_id=call_id, name=name, origin=origin, server_label=label, extras=run.extras(),
        )  # fmt: skip
        pieces = draw(_merged(pieces, own))
    _apply(builder, pieces)


def _apply(builder: Builder, pieces: list[tuple[str, str | None]]) -> None:
    for call_id, piece in pieces:
        if piece is None:
            builder.end_part(call_id)
        else:
            builder.delta(call_id, piece)


@st.composite
def _merged(draw: Any, first: list[T], second: list[T]) -> list[T]:
    """Two lists as one; the order within each stays."""
    places = sorted(draw(st.integers(0, len(first))) for _ in second)
    out: list[T] = []
    taken = 0
    for place, item in zip(places, second, strict=True):
        out += first[taken:place]
        out.append(item)
        taken = place
    return out + first[taken:]


def _result(run: _Run) -> None:
    draw, features = run.draw, run.features
    if not run.builder.open_calls:
        _calls(run)
    call_id = draw(st.sampled_from(run.builder.open_calls))
    run.builder.result(
        call_id,
        draw(_result_parts(features)),
        name=draw(st.sampled_from((None, run.names[call_id]))),
        is_error=features.result_errors and draw(st.booleans()),
        message_id=draw(st.sampled_from((None, f"result-of-{call_id}"))) if features.message_ids else None,
        extras=run.extras(),
    )


def _result_parts(features: Features) -> st.SearchStrategy[list[Part]]:
    kinds: list[st.SearchStrategy[Part]] = [features.texts(empty=features.empty_parts).map(Text)]
    if features.result_media and features.media:
        kinds.append(media(features.media, features.sources))
    if features.result_media and features.data:
        kinds.append(json_values(awkward=features.awkward).map(Data))
    return st.lists(st.one_of(kinds), min_size=0 if features.empty_parts else 1, max_size=2)


def _media(run: _Run) -> None:
    run.builder.add(run.open(), run.draw(media(run.features.media, run.features.sources)))


def _data(run: _Run) -> None:
    run.builder.add(run.open(), Data(run.draw(json_values(awkward=run.features.awkward)), run.extras()))


def _usage(run: _Run) -> None:
    draw, count = run.draw, st.none() | st.integers(0, 2**31)
    cached, reasoning = (draw(count), draw(count)) if run.features.usage_details else (None, None)
    given, made = draw(st.integers(0, 2**31)), draw(st.integers(0, 2**31))
    run.builder.usage(UsageReported(given, made, draw(st.sampled_from((None, given + made))), cached, reasoning))


def _interrupt(run: _Run) -> None:
    draw = run.draw
    call_id = draw(st.sampled_from([None, *run.builder.open_calls]))
    run.parts += 1
    payload = draw(json_values(awkward=run.features.awkward))
    run.builder.interrupt(
        Interrupted(f"interrupt-{run.parts}", draw(st.sampled_from((None, "approval"))), payload, call_id)
    )


def _state(run: _Run) -> None:
    values: dict[StateOp, st.SearchStrategy[Any]] = {
        StateOp.SNAPSHOT: json_objects(awkward=run.features.awkward),
        StateOp.PATCH: st.just([{"op": "add", "path": "/a", "value": 1}]),
        StateOp.MESSAGES: st.just([{"id": "1", "role": "user", "content": "hi"}]),
    }
    op = run.draw(st.sampled_from(StateOp))
    run.builder.emit(StateChanged(op, run.draw(values[op])))


def _step(run: _Run) -> None:
    name = run.draw(names())
    run.builder.emit(StepStarted(name))
    if run.features.text and run.draw(st.booleans()):
        _flow(run, PartKind.TEXT)
    run.builder.emit(StepEnded(name))


def _custom(run: _Run) -> None:
    run.builder.emit(Custom(run.draw(names()), run.draw(json_values(awkward=run.features.awkward)), run.extras()))


def _raw(run: _Run) -> None:
    run.builder.emit(Raw("some-dialect", run.draw(json_values(awkward=run.features.awkward))))


def _heartbeat(run: _Run) -> None:
    run.builder.emit(Heartbeat())


def _next_message(run: _Run) -> None:
    if run.draw(st.booleans()):
        run.builder.end_message(run.key)
    run.message += 1


def _next_choice(run: _Run) -> None:
    run.choice = run.draw(st.integers(0, 2))


def _actions(features: Features) -> list[Any]:
    table = (
        (features.text, _text),
        (features.reasoning, _reasoning),
        (features.refusal, _refusal),
        (features.calls, _calls),
        (features.calls and features.results, _result),
        (bool(features.media), _media),
        (features.data, _data),
        (features.usage, _usage),
        (features.interrupts, _interrupt),
        (features.states, _state),
        (features.steps, _step),
        (features.custom, _custom),
        (features.raw, _raw),
        (features.heartbeats, _heartbeat),
        (features.several_messages, _next_message),
        (features.choices, _next_choice),
    )
    return [action for wanted, action in table if wanted]


def _end(run: _Run) -> None:
    draw, features, builder = run.draw, run.features, run.builder
    ways = ["finish"] * 3 + ["fail"] * features.failures + ["truncated"] * features.truncated
    match draw(st.sampled_from(ways)):
        case "finish":
            reason = draw(st.sampled_from([r for r in FinishReason if r in features.finish]))
            if features.choices and draw(st.booleans()):
                builder.end_reason(run.key, reason)
            builder.finish(reason, run.extras())
            builder.end()
        case "fail":
            builder.fail(draw(failures()))
        case "truncated":
            builder.close(draw(st.none() | failures((ErrorCode.BACKEND_TIMEOUT, ErrorCode.CANCELED))))


@st.composite
def answers(draw: Any, **features: Any) -> list[Event]:
    """Well-formed streams. The keywords are the fields of `Features`; all is switched on unless it is switched off."""
    chosen = Features(**features)
    made = iter(range(1, 10_000))
    thread = draw(st.sampled_from((None, "thread-1"))) if chosen.head else "thread-1"
    run = _Run(draw, chosen, Builder("run-1", thread, 1_700_000_000.0, lambda prefix: f"{prefix}_{next(made)}"))
    if chosen.head:
        run.builder.begin(
            model=draw(st.sampled_from((None, "model-1"))),
            created_at=draw(st.sampled_from((None, 1_700_000_001.5))),
            metadata=draw(json_objects(awkward=chosen.awkward)) if chosen.metadata else None,
            extras=run.extras(),
        )
    for action in draw(st.lists(st.sampled_from(_actions(chosen)), max_size=chosen.max_actions)):
        action(run)
    _end(run)
    return run.builder.take()


# ---------------------------------------------------------------------- requests


@dataclass(frozen=True)
class Asked:
    """What may stand in a request. The keywords of `requests()`."""

    system: bool = True
    developer: bool = True
    names: bool = True
    message_ids: bool = True
    media: Collection[MediaKind] = ALL_KINDS
    sources: Collection[type] = ALL_SOURCES
    mime: bool = True
    filename: bool = True
    data: bool = True
    reasoning: bool = True
    signatures: bool = True
    refusal: bool = True
    tool_history: bool = True
    ragged_arguments: bool = True
    origins: bool = True
    result_media: bool = True
    tools: bool = True
    tool_choice: bool = True
    parallel_tool_calls: bool = True
    sampling: Collection[str] = tuple(Sampling.__dataclass_fields__)
    response_format: bool = True
    reasoning_effort: bool = True
    model: bool = True
    ids: bool = True
    user_id: bool = True
    delta: bool = True
    resume: bool = True
    state: bool = True
    context: bool = True
    metadata: bool = True
    extras: bool = True
    empty: bool = True
    awkward: bool = True
    max_messages: int = 4

    def texts(self) -> st.SearchStrategy[str]:
        return texts(empty=self.empty, awkward=self.awkward)


def _maybe(wanted: bool, strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy if wanted else st.none()


def _parts_said(asked: Asked, role: str) -> st.SearchStrategy[list[Part]]:
    kinds: list[st.SearchStrategy[Part]] = [asked.texts().map(Text)]
    if role == "user":
        if asked.media:
            kinds.append(media(asked.media, asked.sources, mime=asked.mime, filename=asked.filename))
        if asked.data:
            kinds.append(json_values(awkward=asked.awkward).map(Data))
    if role == "assistant":
        if asked.reasoning:
            signature = st.sampled_from((None, "c2lnbmVk")) if asked.signatures else st.none()
            kinds.append(st.builds(Reasoning, asked.texts(), signature))
        if asked.refusal:
            kinds.append(asked.texts().map(Refusal))
    return st.lists(st.one_of(kinds), min_size=1, max_size=3)


def _message(draw: Any, asked: Asked, role: str, parts: list[Part]) -> Message:
    message_id = draw(st.sampled_from((None, "m-1"))) if asked.message_ids else None
    name = draw(_maybe(asked.names, names())) if role != "tool" else None
    return Message(role, parts, message_id, name)


def _tool_turn(draw: Any, asked: Asked, turn: int) -> list[Message]:
    """An assistant that calls, and the results of its calls: one tool message for each."""
    calls: list[Part] = []
    results: list[Message] = []
    for number in range(draw(st.integers(1, 2))):
        call_id, name = f"call-{turn}-{number}", draw(names())
        origin = draw(st.sampled_from(Origin)) if asked.origins else Origin.FUNCTION
        calls.append(ToolCall(call_id, name, draw(arguments(ragged=asked.ragged_arguments)), origin))
        parts: list[Part] = [Text(draw(asked.texts()))]
        if asked.result_media and asked.media:
            parts += draw(st.lists(media(asked.media, asked.sources), max_size=1))
        results.append(_message(draw, asked, "tool", [ToolResult(call_id, parts)]))
    return [_message(draw, asked, "assistant", calls), *results]


def _messages(draw: Any, asked: Asked) -> list[Message]:
    out: list[Message] = []
    heads = ["system"] * asked.system + ["developer"] * asked.developer
    if heads and draw(st.booleans()):
        out.append(_message(draw, asked, draw(st.sampled_from(heads)), [Text(draw(asked.texts()))]))
    kinds = ["user", "assistant"] + ["tool"] * asked.tool_history
    for turn, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=asked.max_messages))):
        if kind == "tool":
            out += _tool_turn(draw, asked, turn)
        else:
            out.append(_message(draw, asked, kind, draw(_parts_said(asked, kind))))
    out.append(_message(draw, asked, "user", draw(_parts_said(asked, "user"))))
    return out


@cache
def tools() -> st.SearchStrategy[Tool]:
    """Tools with and without what they may say besides their name."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return st.builds(
        Tool, names(), st.none() | texts(), st.sampled_from((None, schema, {})), st.sampled_from((None, True, False))
    )


def _tool_choice(draw: Any, offered: list[Tool]) -> ToolChoice:
    mode = draw(st.sampled_from(ToolMode))
    if mode is not ToolMode.NONE and draw(st.booleans()):
        return ToolChoice(mode, [draw(st.sampled_from([t.name for t in offered]))])
    return ToolChoice(mode)


def samplings(fields: Collection[str] = tuple(Sampling.__dataclass_fields__)) -> st.SearchStrategy[Sampling]:
    """Sampling settings within the usual ranges; only these `fields` are ever said."""
    return _samplings(tuple(fields))


@cache
def _samplings(fields: tuple[str, ...]) -> st.SearchStrategy[Sampling]:
    ranges: dict[str, st.SearchStrategy[Any]] = {
        "temperature": st.sampled_from((0.0, 0.7, 2.0)),
        "top_p": st.sampled_from((0.1, 1.0)),
        "max_tokens": st.integers(1, 10_000),
        "stop": st.lists(texts(empty=False), min_size=1, max_size=3),
        "seed": st.integers(0, 2**31),
        "n": st.integers(1, 3),
        "frequency_penalty": st.sampled_from((-2.0, 0.0, 0.5)),
        "presence_penalty": st.sampled_from((-2.0, 0.0, 0.5)),
    }
    return st.builds(Sampling, **{name: _maybe(name in fields, values) for name, values in ranges.items()})


@st.composite
def requests(draw: Any, **asked: Any) -> Request:
    """Requests as a front decodes them; they end with a user's message. The keywords are the fields of `Asked`."""
    chosen = Asked(**asked)
    request = Request(_messages(draw, chosen), stream=draw(st.booleans()))
    if chosen.tools and draw(st.booleans()):
        request.tools = draw(st.lists(tools(), min_size=1, max_size=2, unique_by=lambda t: t.name))
        if chosen.tool_choice and draw(st.booleans()):
            request.tool_choice = _tool_choice(draw, request.tools)
        request.parallel_tool_calls = draw(_maybe(chosen.parallel_tool_calls, st.booleans()))
    request.sampling = draw(samplings(chosen.sampling))
    if chosen.response_format:
        request.response_format = draw(st.none() | _response_formats())
    request.reasoning_effort = draw(_maybe(chosen.reasoning_effort, st.sampled_from(("low", "medium", "high"))))
    request.model = draw(_maybe(chosen.model, st.sampled_from(("model-1", "vendor/model:2"))))
    if chosen.ids:
        request.thread_id = draw(st.sampled_from((None, "thread-1")))
        request.run_id = draw(st.sampled_from((None, "run-1")))
        request.parent_run_id = draw(st.sampled_from((None, "run-0")))
    request.user_id = draw(_maybe(chosen.user_id, st.just("user-1")))
    if chosen.delta:
        request.history = draw(st.sampled_from(HistoryMode))
    if chosen.resume:
        answer = st.builds(Resume, names(), st.sampled_from(("resolved", "cancelled")), json_values())
        request.resume = draw(st.lists(answer, max_size=2))
    if chosen.state:
        request.state = draw(st.none() | json_objects(awkward=chosen.awkward))
    if chosen.context:
        entry = st.fixed_dictionaries({"description": texts(), "value": texts()})
        request.context = draw(st.lists(entry, max_size=2))
    if chosen.metadata:
        request.metadata = draw(st.dictionaries(names(), texts(awkward=chosen.awkward), max_size=2))
    if chosen.extras:
        request.extras = draw(st.sampled_from((None, {"some-dialect": {"service_tier": "auto"}})))
    return request


@cache
def _response_formats() -> st.SearchStrategy[ResponseFormat]:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    return st.sampled_from(
        (
            ResponseFormat("text"),
            ResponseFormat("json"),
            ResponseFormat("json_schema", "answer", schema),
            ResponseFormat("json_schema", "answer", schema, True, "what it is"),
        )
    )


# ---------------------------------------------------------------------- cutting


@st.composite
def splits(draw: Any, data: bytes) -> list[bytes]:
    """The data in pieces, cut anywhere, some of them empty; `b"".join` gives it back."""
    if draw(st.integers(0, 7)) == 0:
        return [data[i : i + 1] for i in range(len(data))]
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@st.composite
def batches(draw: Any, items: Sequence[T]) -> list[list[T]]:
    """The items in batches as reads bring them, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(items)), max_size=8)))
    return [list(items[a:b]) for a, b in zip([0, *places], [*places, len(items)], strict=True)]
