"""Well-formed event streams, as any decoder might produce them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st

from bridge.errors import ErrorCode
from bridge.model import (
    Builder,
    Custom,
    Data,
    Event,
    FinishReason,
    Heartbeat,
    Interrupted,
    MediaKind,
    Origin,
    Part,
    PartKind,
    Raw,
    Reasoning,
    Refusal,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
    UsageReported,
)
from bridge.testing.strategies.values import (
    ALL_FINISHES,
    ALL_KINDS,
    ALL_SOURCES,
    arguments,
    failures,
    json_objects,
    json_values,
    media,
    names,
    texts,
)
from bridge.toolkit.cut_calls import CUT, is_json

T = TypeVar("T")


@dataclass(frozen=True)
class AnswerFeatures:
    """The features of a stream: the keywords of `answers()`."""

    text: bool = True
    reasoning: bool = True
    signatures: bool = True
    redacted: bool = True
    refusal: bool = True
    calls: bool = True
    parallel: bool = True
    interleaved: bool = True
    unpaired_arguments: bool = True
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
        """Texts as these features allow them."""
        return texts(empty=empty, awkward=self.awkward)


def nothing(**wanted: Any) -> dict[str, Any]:
    """Keywords for `answers` that switch everything off but `wanted`: `answers(**nothing(text=True))`."""
    off: dict[str, Any] = {}
    for name, spec in AnswerFeatures.__dataclass_fields__.items():
        if spec.default is True:
            off[name] = False
    return {**off, "media": (), "finish": (FinishReason.STOP,), **wanted}


@dataclass
class _Run:
    """The state of one stream that is being made."""

    draw: st.DrawFn
    features: AnswerFeatures
    builder: Builder
    message: int = 0
    choice: int = 0
    parts: int = 0
    names: dict[str, str] = field(default_factory=dict)
    has_invalid_calls: bool = False

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
        text = draw(arguments(unpaired=features.unpaired_arguments))
        run.has_invalid_calls = run.has_invalid_calls or not is_json(text)
        label = "srv" if origin is Origin.MCP and draw(st.booleans()) else None
        cut = draw(st.integers(0, len(text)))
        own: list[tuple[str, str | None]] = [(call_id, text[:cut]), (call_id, text[cut:]), (call_id, None)]
        if not features.interleaved:
            if draw(st.booleans()):
                builder.add(key, ToolCall(call_id, name, text, origin, label, run.extras()))
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
    positions = sorted(draw(st.integers(0, len(first))) for _ in second)
    out: list[T] = []
    taken = 0
    for position, item in zip(positions, second, strict=True):
        out += first[taken:position]
        out.append(item)
        taken = position
    return out + first[taken:]


def _interleaved(run: _Run) -> None:
    """Generate texts, or pieces of reasoning, that are open at the same time, in one message or in several."""
    draw, features, builder = run.draw, run.features, run.builder
    allowed = [PartKind.TEXT] * features.text + [PartKind.REASONING] * features.reasoning
    kind = draw(st.sampled_from(allowed))
    pieces: list[tuple[str, str | None]] = []
    for _ in range(draw(st.integers(2, 3))):
        if features.several_messages and draw(st.booleans()):
            run.message += 1
        run.parts += 1
        key = f"interleaved-{run.parts}"
        builder.open_part(key, run.open(), kind)
        own: list[tuple[str, str | None]] = [(key, draw(features.texts())), (key, draw(features.texts())), (key, None)]
        pieces = draw(_merged(pieces, own))
    _apply(builder, pieces)


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


def _result_parts(features: AnswerFeatures) -> st.SearchStrategy[list[Part]]:
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


def _actions(features: AnswerFeatures) -> list[Any]:
    table = (
        (features.text, _text),
        (features.reasoning, _reasoning),
        (features.refusal, _refusal),
        (features.calls, _calls),
        (features.interleaved and (features.text or features.reasoning), _interleaved),
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
            reasons = [r for r in FinishReason if r in features.finish]
            if run.has_invalid_calls:
                # Each dialect indicates a call cut off by a limit in its own way.
                reasons = [r for r in reasons if r not in CUT] or [FinishReason.STOP]
            reason = draw(st.sampled_from(reasons))
            if features.choices and draw(st.booleans()):
                builder.end_reason(run.key, reason)
            builder.finish(reason, run.extras())
            builder.end()
        case "fail":
            builder.fail(draw(failures()))
        case "truncated":
            builder.close(draw(st.none() | failures((ErrorCode.BACKEND_TIMEOUT, ErrorCode.CANCELED))))


@st.composite
def answers(draw: st.DrawFn, /, **features: Any) -> list[Event]:
    """Well-formed streams. The keywords are the fields of `AnswerFeatures`; all is switched on unless it is switched
    off.
    """
    chosen = AnswerFeatures(**features)
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
