"""Generated runs survive the trip as the card says; no wire value whatever makes a codec raise."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import WireRequest, WireResponse
from bridge.dialects.openai_chat import dialect
from bridge.dialects.openai_chat.options import FrontOptions
from bridge.errors import BridgeError, RequestError
from bridge.model import Answer, Event, fold, verify
from bridge.model.surrogates import repair
from bridge.testing.outline import Outline, outline, project
from bridge.testing.wires import has_inner_result, without_separators
from bridge.toolkit.repeat import Repeat
from bridge.translation.framing.sse import Splitter, join

from . import strategies as our
from .helpers import back, decode, encode, front


def seen(events: list[Event], answer: Answer, choice: int) -> Outline:
    """What a client has. Of a result inside a message, the folded answer does not show which texts it separates."""
    out = outline(answer, choice)
    return without_separators(out, dialect.capabilities.separator) if has_inner_result(events) else out


def expected(events: list[Event], choice: int) -> Outline:
    """The projection, and what it cannot know of this wire: the finish of the run is that of choice 0."""
    answer = fold(events)
    wanted = project(answer, dialect.capabilities, choice)
    if wanted.reason in ("stop", "tool_calls"):
        has_calls = any(item[0] == "tool_call" for item in project(answer, dialect.capabilities, 0).items)
        wanted.reason = "tool_calls" if has_calls else "stop"
    return without_separators(wanted, dialect.capabilities.separator) if has_inner_result(events) else wanted


@given(our.runs())
def test_a_run_comes_back_as_its_projection(events: list[Event]) -> None:
    verify(events)
    again = fold(decode([encode(events)]))
    for choice in (0, 1):
        assert seen(events, again, choice) == expected(events, choice)
    assert again.model == "m"


@given(our.runs(), st.lists(st.integers(0, 4000), max_size=6))
def test_reads_and_batches_do_not_matter(events: list[Event], cuts: list[int]) -> None:
    data = encode(events)
    encoder = dialect.encoder(front())
    assert join([f for e in events for f in encoder.encode([e])]) == data
    places = sorted(min(c, len(data)) for c in cuts)
    reads = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    assert decode(reads) == decode([data])


@given(our.runs())
def test_one_piece_says_what_the_stream_says(events: list[Event]) -> None:
    """But for the order of text, reasoning and calls, which the completion object does not have."""
    wire = dialect.assemble(events, front())
    again = fold(verify(dialect.parse_response(wire, back())))
    for choice in (0, 1):
        wanted, got = expected(events, choice), seen(events, again, choice)
        if wanted.error:
            assert got.error == wanted.error
            return
        assert sorted_items(got) == sorted_items(wanted)
        assert (got.reason, got.usage, got.details) == (wanted.reason, wanted.usage, wanted.details)


def sorted_items(seen: Outline) -> list[Any]:
    texts = {k: "".join(i[1] for i in seen.items if i[0] == k) for k in ("text", "refusal", "reasoning")}
    return [texts, [i for i in seen.items if i[0] == "tool_call"]]


def written(value: Any) -> bytes:
    return json.dumps(value).encode()


@given(st.lists(our.chunks | our.chunks_without_errors | our.json_values, max_size=5), st.booleans())
def test_no_chunk_makes_the_decoder_raise(values: list[Any], think: bool) -> None:
    context = back({"think_tags": "reasoning"} if think else None)
    decoder = dialect.decoder(context)
    events = decoder.feed([written(v) for v in values])
    events += decoder.close()
    verify(events)
    for options in (FrontOptions(), FrontOptions(media="drop", reasoning_field="both")):
        out = front()
        out.options = options
        for frame in Splitter().feed(encode(events, out)):
            assert isinstance(frame, bytes)
            assert frame == b"[DONE]" or isinstance(json.loads(frame), dict)
        json.loads(dialect.assemble(events, out).body)


plain_chunks = st.builds(
    lambda text, index, more: {
        "choices": [{"index": index, "delta": {"content": text}, "finish_reason": None, **more}],
        "usage": None,
    },
    our.any_text,
    st.sampled_from([0, 0, 0, 1, None]),
    st.sampled_from([{}, {}, {}, {"logprobs": {"content": []}}, {"finish_reason": "stop"}]),
)


@given(st.lists(plain_chunks | plain_chunks | our.chunks, max_size=12))
def test_reading_repeated_chunks_by_their_text_changes_nothing(values: list[Any]) -> None:
    frames = [written(v) for v in values]
    quick, full = dialect.decoder(back()), dialect.decoder(back())
    seen = [quick.feed(frames), quick.close()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repeat, "learn", lambda *_, **__: None)
        assert seen == [full.feed(frames), full.close()]


@given(our.chunks | our.json_values, st.sampled_from([200, 400, 401, 404, 429, 500, 503]))
def test_no_body_makes_the_readers_raise(value: Any, status: int) -> None:
    wire = WireResponse(status, {"content-type": "application/json"}, written(value))
    verify(dialect.parse_response(wire, back()))
    json.loads(dialect.encode_error(dialect.decode_error(wire)).body)
    with suppress(BridgeError):
        dialect.decode_models(wire)


@given(st.binary(max_size=60))
def test_no_bytes_make_the_readers_raise(data: bytes) -> None:
    decode([data])
    decode([b"data: " + data + b"\n\ndata: [DONE]\n\n"])
    wire = WireResponse(200, {}, data)
    verify(dialect.parse_response(wire, back()))
    dialect.decode_error(wire)


request_bodies = st.fixed_dictionaries(
    {
        "model": our.words,
        "messages": st.lists(
            st.fixed_dictionaries(
                {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
                optional={
                    "content": our.content | our.json_values,
                    "tool_calls": st.lists(our.fragments, max_size=2),
                    "tool_call_id": our.words,
                    "refusal": our.any_text,
                    "reasoning": our.any_text,
                    "odd": our.json_values,
                },
            ),
            max_size=3,
        ),
    },
    optional={
        "tools": st.lists(our.json_values, max_size=2),
        "tool_choice": our.json_values,
        "stop": our.json_values,
        "n": our.json_values,
        "metadata": our.json_values,
        "response_format": our.json_values,
        "odd": our.json_values,
    },
)


@given(request_bodies | our.json_values)
def test_a_request_is_read_or_refused(body: Any) -> None:
    try:
        request = dialect.decode_request(WireRequest(body=written(body)), front())
    except RequestError as error:
        dialect.encode_error(error.failure)
        return
    again = dialect.encode_request(request, back())
    json.loads(again.body)


def test_surrogates_are_generated_at_all() -> None:
    """The strategy must be able to make them, or the properties above would prove less than they say."""
    with pytest.raises(UnicodeEncodeError):
        "\ud800".encode()
    assert repair("\ud800") == "\ufffd"
