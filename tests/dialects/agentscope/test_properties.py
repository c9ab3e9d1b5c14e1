"""What must hold for every stream: nothing undeclared is lost, nothing raises, the same input gives the same bytes."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.dialects.agentscope import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Builder,
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
    Reasoning,
    Refusal,
    StateChanged,
    StateOp,
    Text,
    Url,
    UsageReported,
    fold,
    verify,
)
from bridge.testing.outline import outline, project
from bridge.translation.framing.sse import join

from .frontends import WebFrontend
from .helpers import again, check_schemas, context, encode, payloads

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
TEXTS = st.text(min_size=1, max_size=12)
PARTS = st.one_of(
    st.builds(Text, TEXTS),
    st.builds(Refusal, TEXTS),
    st.builds(Reasoning, TEXTS, st.none() | TEXTS),
    st.builds(Data, JSON),
    st.builds(
        Media, st.sampled_from(MediaKind), st.sampled_from([Url("https://x.example/a"), Inline("aGk=")]),
        st.sampled_from([None, "audio/wav", "image/png"]),
    ),
)  # fmt: skip
USAGE = st.none() | st.builds(
    UsageReported, st.integers(0, 99), st.integers(0, 99), st.none() | st.integers(0, 99), st.none() | st.integers(0, 9)
)
ENDINGS = st.sampled_from([*FinishReason, ErrorCode.BACKEND_ERROR, ErrorCode.CANCELED, ErrorCode.OVERLOADED])


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """One run through the builder: whole parts, text in pieces, calls whose pieces interleave, results, the rest."""
    builder = context(run_id="back").builder()
    for number in range(draw(st.integers(0, 3))):
        key = f"m{number}"
        builder.message(key, message_id=draw(st.sampled_from([None, key])))
        calls: list[str] = []
        for step in range(draw(st.integers(0, 4))):
            calls += _step(draw, builder, key, f"{key}-{step}")
        builder.end_message(key)
        # Between messages, since a folded answer puts a result behind the message that is open.
        for call in draw(st.permutations(calls)):
            if draw(st.booleans()):
                builder.result(call, [Text(draw(TEXTS.filter(lambda t: "[" not in t)))])
    if draw(st.booleans()):
        builder.emit(StateChanged(StateOp.SNAPSHOT, draw(JSON)))
    if draw(st.booleans()):
        builder.interrupt(Interrupted("i", draw(st.none() | TEXTS), draw(JSON)))
    usage = draw(USAGE)
    if usage is not None:
        builder.usage(usage)
    ending = draw(ENDINGS)
    if isinstance(ending, ErrorCode):
        builder.fail(Failure(ending, "It broke."))
    else:
        builder.finish(ending)
        builder.end()
    return verify(builder.take())


def _step(draw: st.DrawFn, builder: Builder, key: str, name: str) -> list[str]:
    """One thing that happens inside a message; the ids of the calls it made."""
    match draw(st.sampled_from(["part", "flow", "calls"])):
        case "part":
            builder.add(key, draw(PARTS))
            return []
        case "flow":
            kind = draw(st.sampled_from([PartKind.TEXT, PartKind.REASONING, PartKind.REFUSAL]))
            for text in draw(st.lists(TEXTS, max_size=3)):
                builder.flow(key, kind, text)
            builder.end_flow(key)
            return []
    calls = [f"{name}-{n}" for n in range(draw(st.integers(1, 3)))]
    for call in calls:
        origin = draw(st.sampled_from(Origin))
        builder.open_part(call, key, PartKind.TOOL_CALL, call_id=call, name="f", origin=origin)
    for _ in range(draw(st.integers(0, 4))):
        builder.delta(draw(st.sampled_from(calls)), draw(TEXTS))
    if draw(st.booleans()):
        builder.add(key, draw(PARTS))
    for call in draw(st.permutations(calls)):
        builder.end_part(call)
    return calls


@given(streams())
def test_nothing_is_lost_that_the_card_does_not_name(events: list[Event]) -> None:
    frames = encode(events)
    check_schemas(payloads(frames))
    assert outline(again(events)) == project(fold(events), dialect.capabilities)


@given(streams())
def test_the_web_frontend_is_never_left_with_another_picture(events: list[Event]) -> None:
    """Whatever was streamed, the end changes nothing of what is on the screen, and the spinner stops (section 13)."""
    frames = [join([f]) for f in encode(events)]
    before = WebFrontend().read(b"".join(frames[:-1])).shown()
    frontend = WebFrontend().read(b"".join(frames))
    assert not frontend.errors
    assert frontend.shown() == before
    # Only its own cancel ends with a status that it does not know as an end.
    assert frontend.generating == (frontend.state["status"] == "canceled")


@settings(max_examples=60, deadline=None)
@given(streams(), st.integers(1, 5))
def test_the_same_events_give_the_same_bytes_in_any_batch(events: list[Event], size: int) -> None:
    assert join(encode(events)) == join(encode(events, size=size))


@settings(max_examples=60, deadline=None)
@given(streams(), st.data())
def test_every_prefix_of_a_stream_ends_once(events: list[Event], data: st.DataObject) -> None:
    frames = encode(events)
    end = data.draw(st.integers(0, len(frames)))
    decoder = dialect.decoder(context())
    verify([*decoder.feed(frames[:end]), *decoder.close()])


TYPES = st.sampled_from(["text", "data", "image", "message", "plugin_call", "reasoning", "REFUSAL", "error"])
KEYS = st.sampled_from(["type", "text", "data", "index"])
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "object": st.sampled_from(["response", "message", "content", "error", "x"]) | JSON,
        "status": st.sampled_from(["created", "in_progress", "completed", "failed", "incomplete", "queued"]) | JSON,
        "type": TYPES | JSON,
        "id": st.sampled_from(["a", "b"]) | JSON,
        "msg_id": st.sampled_from(["a", "b"]) | JSON,
        "msgId": JSON,
        "index": st.integers(0, 2) | JSON,
        "delta": st.booleans() | JSON,
        "text": st.text(max_size=3) | JSON,
        "data": JSON,
        "content": JSON | st.lists(st.dictionaries(KEYS, JSON), max_size=2),
        "output": JSON,
        "error": JSON,
        "usage": JSON,
        "metadata": JSON,
        "role": JSON,
        "created_at": JSON,
    },
)  # fmt: skip


@given(st.lists(OBJECTS | JSON, max_size=8))
def test_no_wire_raises_and_what_was_decoded_can_be_encoded(values: list[Any]) -> None:
    frames = [orjson.dumps(v) for v in values]
    decoder = dialect.decoder(context())
    events = verify([*decoder.feed(frames), *decoder.close()])
    out = payloads(encode(events))
    assert [e["sequence_number"] for e in out] == list(range(len(out)))
    # A message of a type that nobody knows passes with all its nonsense; everything else is ours.
    if not any(isinstance(e, Raw) for e in events):
        check_schemas(out)


@given(st.lists(st.binary(max_size=20), max_size=4))
def test_no_bytes_raise(frames: list[bytes]) -> None:
    decoder = dialect.decoder(context())
    verify([*decoder.feed(frames), *decoder.close()])
