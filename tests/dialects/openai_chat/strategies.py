"""Generated runs and generated wire values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Builder,
    Custom,
    Data,
    Event,
    FinishReason,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Origin,
    PartKind,
    Raw,
    StateChanged,
    StateOp,
    StepStarted,
    Text,
    Url,
    UsageReported,
)

from .helpers import build

Op = Callable[[Builder], Any]

any_text = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates too
plain_text = st.text(max_size=8)
words = st.text("abc_", min_size=1, max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)

# ------------------------------------------------------------------ runs


def _flow(key: int, kind: PartKind, pieces: list[str]) -> Op:
    def tell(b: Builder) -> None:
        b.join_halves()
        for piece in pieces:
            if piece:
                b.flow(key, kind, piece)

    return tell


def _thought(key: int, text: str, signature: str) -> Op:
    def tell(b: Builder) -> None:
        part = ("thought", b.message(key))
        b.open_part(part, key, PartKind.REASONING)
        b.delta(part, text)
        b.end_part(part, signature=signature)

    return tell


def _calls(key: int, calls: list[tuple[str, Origin, list[str]]]) -> Op:
    """Calls that are open together, their pieces taken in turns."""

    def tell(b: Builder) -> None:
        b.join_halves()
        opened = []
        for name, origin, pieces in calls:
            part = ("call", len(b.open_calls), name)
            b.open_part(part, key, PartKind.TOOL_CALL, name=name, origin=origin)
            opened.append((part, list(pieces)))
        while any(pieces for _, pieces in opened):
            for part, pieces in opened:
                if pieces:
                    b.delta(part, pieces.pop(0))
        for part, _ in opened:
            b.end_part(part)

    return tell


def _emit(event: Event) -> Op:
    return lambda b: b.emit(event)


def _add(key: int, part: Media | Data) -> Op:
    return lambda b: b.add(key, part)


def _result(text: str) -> Op:
    """A result for a call that was shown, or for none."""
    return lambda b: b.result(b.open_calls[0] if b.open_calls else "hidden", [Text(text)])


def _interrupt(reason: str) -> Op:
    return lambda b: b.interrupt(Interrupted("i", reason))


keys = st.sampled_from([0, 0, 0, 1])
kinds = st.sampled_from([PartKind.TEXT, PartKind.TEXT, PartKind.REASONING, PartKind.REFUSAL])
media = st.sampled_from(
    [
        Media(MediaKind.IMAGE, Url("https://x.test/a")),
        Media(MediaKind.AUDIO, Inline("QUJD"), "audio/wav"),
        Media(MediaKind.FILE, Inline("QUJD"), None, "a.txt"),
        Data({"a": [1]}),
    ]
)
others = st.sampled_from(
    [Custom("c", 1), StateChanged(StateOp.PATCH, []), StepStarted("s"), Raw("elsewhere", {"delta": {"content": "x"}})]
)
call = st.tuples(words, st.sampled_from(list(Origin)), st.lists(any_text, max_size=3))
ops: st.SearchStrategy[Op] = st.one_of(
    st.builds(_flow, keys, kinds, st.lists(any_text, max_size=3)),
    st.builds(_flow, keys, kinds, st.lists(any_text, max_size=3)),
    st.builds(_calls, keys, st.lists(call, min_size=1, max_size=3)),
    st.builds(_thought, keys, plain_text, words),
    st.builds(_add, keys, media),
    st.builds(_emit, others),
    st.builds(_result, plain_text),
    st.builds(_interrupt, words),
)
counts = st.integers(0, 10**9)
usages = st.none() | st.builds(UsageReported, counts, counts, st.none(), st.none() | counts, st.none() | counts)
PASSING = [
    ErrorCode.RATE_LIMITED,
    ErrorCode.CONTEXT_LENGTH,
    ErrorCode.BACKEND_ERROR,
    ErrorCode.TRUNCATED_STREAM,
    ErrorCode.CANCELED,
]
ends = st.sampled_from([*FinishReason, *PASSING])


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    """A well-formed run."""
    told, usage, end = draw(st.lists(ops, max_size=8)), draw(usages), draw(ends)

    def tell(b: Builder) -> None:
        for key in (0, 1):
            b.message(key, choice=key)
        for op in told:
            op(b)
        if usage:
            b.usage(usage)
        if isinstance(end, FinishReason):
            b.finish(end)
            b.end()
        else:
            b.fail(Failure(end, "why"))

    return build(tell, end=False)


# ------------------------------------------------------------------ wire values


def _either(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return right | right | json_values


def _object(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional={k: _either(v) for k, v in fields.items()})


indexes = st.integers(-1, 2)
functions = _object(name=words, arguments=st.sampled_from(["", "{", '{"x":1}', "}"]) | json_values, odd=json_values)
fragments = _object(
    index=indexes, id=words, type=st.sampled_from(["function", "custom"]), function=functions, custom=functions,
    extra_content=json_values,
)  # fmt: skip
content = any_text | st.lists(_object(type=st.sampled_from(["text", "thinking", "image_url"]), text=any_text))
delta_values = _object(
    role=words, content=content, reasoning=any_text, reasoning_content=any_text, refusal=any_text,
    tool_calls=st.lists(_either(fragments), max_size=3), function_call=functions,
    audio=_object(id=words, data=words, transcript=words), images=st.lists(json_values, max_size=2), odd=json_values,
)  # fmt: skip
errors = _object(message=any_text, code=st.integers(0, 600), type=words, param=words)
choices = _object(
    index=indexes, delta=delta_values, message=delta_values, logprobs=json_values, odd=json_values,
    finish_reason=st.sampled_from(["stop", "length", "error", "tool_calls", ""]), error=errors,
)  # fmt: skip
chunks = _object(
    id=words, model=words, created=st.integers(), choices=st.lists(_either(choices), max_size=2), odd=json_values,
    usage=_object(prompt_tokens=st.integers(), completion_tokens=json_values, prompt_tokens_details=json_values),
    error=errors, detail=json_values, object=words, message=any_text, code=json_values, system_fingerprint=json_values,
)  # fmt: skip
chunks_without_errors = chunks.map(
    lambda c: (
        {k: v for k, v in c.items() if k not in ("error", "detail", "message", "code")} if isinstance(c, dict) else c
    )
)
