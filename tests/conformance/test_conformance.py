"""What every dialect must do, whichever it is. Knows none by name: a new entry point is tested here by itself."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.codec import Context, Dialect, Losses, Outline, WireRequest, WireResponse, outline, project, registry
from bridge.errors import ErrorCode, Failure, RequestError, Unsupported
from bridge.framing import sse
from bridge.model import (
    Event,
    FinishReason,
    Heartbeat,
    PartKind,
    Request,
    RunFailed,
    RunFinished,
    ToolMode,
    fold,
    verify,
)
from tests.strategies import answers, json_values, requests, splits

dialects = pytest.mark.parametrize("dialect", [registry.get(n) for n in registry.names()], ids=registry.names())
quick = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def context(options: Any, request: Request | None = None) -> Context:
    return Context("run1", "thread1", 1_700_000_000.0, options, "m", request, Losses())


def encode(dialect: Dialect, events: list[Event]) -> bytes:
    encoder = dialect.encoder(context(dialect.front_options()))
    return sse.join([*encoder.encode(events), *encoder.close()])


def decode(dialect: Dialect, reads: list[bytes], failure: Failure | None = None) -> list[Event]:
    splitter, decoder = sse.Splitter(), dialect.decoder(context(dialect.back_options()))
    events: list[Event] = []
    for read in reads:
        events += decoder.feed(splitter.feed(read))
    if failure is None:
        events += decoder.feed(splitter.close())
    return events + decoder.close(failure)


def comparable(out: Outline) -> tuple[Any, ...]:
    """Results stand beside their calls on some wires and after the whole message on others: they are compared apart."""
    results = sorted((i for i in out.items if i[0] == "tool_result"), key=repr)
    items: list[tuple[Any, ...]] = []
    for item in (i for i in out.items if i[0] != "tool_result"):
        joins = items and items[-1][0] == item[0] in ("text", "refusal") and len(item) == 2
        if joins:
            items[-1] = (item[0], items[-1][1] + item[1])
        else:
            items.append(item)
    return items, results, out.usage, out.error is not None, out.reason


@dialects
@quick
@given(data=st.data())
def test_what_is_written_is_read_as_the_card_says(dialect: Dialect, data: st.DataObject) -> None:
    events = data.draw(answers(interrupts=False, raw=False, choices=False))
    again = verify(decode(dialect, [encode(dialect, events)]))
    assert comparable(outline(fold(again))) == comparable(project(fold(events), dialect.card))


@dialects
@quick
@given(data=st.data())
def test_the_same_events_give_the_same_bytes_however_they_are_cut(dialect: Dialect, data: st.DataObject) -> None:
    events = data.draw(answers())
    whole = encode(dialect, events)
    assert encode(dialect, events) == whole
    encoder = dialect.encoder(context(dialect.front_options()))
    frames = [f for event in events for f in encoder.encode([event])]
    assert sse.join([*frames, *encoder.close()]) == whole
    assert decode(dialect, data.draw(splits(whole))) == decode(dialect, [whole])


@dialects
@quick
@given(data=st.data())
def test_every_prefix_ends_well(dialect: Dialect, data: st.DataObject) -> None:
    """A stream that is cut anywhere, or breaks there, is one well-formed run; and never a success that it was not."""
    wire = encode(dialect, data.draw(answers(interrupts=False)))
    place = data.draw(st.integers(0, len(wire)))
    broken = verify(decode(dialect, [wire[:place]], Failure(ErrorCode.TRUNCATED_STREAM, "cut")))
    clean = verify(decode(dialect, [wire[:place]]))
    assert isinstance(clean[-1], (RunFinished, RunFailed))
    whole = fold(decode(dialect, [wire]))
    if not isinstance(broken[-1], RunFailed):
        assert fold(broken).reason == whole.reason


@dialects
@quick
@given(data=st.data())
def test_no_bytes_raise(dialect: Dialect, data: st.DataObject) -> None:
    payloads = data.draw(st.lists(st.one_of(json_values().map(orjson.dumps), st.binary(max_size=40)), max_size=6))
    verify(decode(dialect, [b"".join(b"data: " + p + b"\n\n" for p in payloads)]))
    body = data.draw(st.one_of(json_values().map(orjson.dumps), st.binary(max_size=40)))
    wire = WireResponse(200, {"content-type": "application/json"}, body)
    verify(dialect.parse_response(wire, context(dialect.back_options())))
    assert dialect.decode_error(WireResponse(500, wire.headers, body)).message
    with contextlib.suppress(RequestError):
        dialect.decode_request(WireRequest(headers=wire.headers, body=body), context(dialect.front_options()))


@dialects
@quick
@given(data=st.data())
def test_a_request_is_sent_or_refused_with_its_place(dialect: Dialect, data: st.DataObject) -> None:
    request = data.draw(requests())
    wire: WireRequest | None = None
    refused: Failure | None = None
    try:
        wire = dialect.encode_request(request, context(dialect.back_options(), request))
    except Unsupported as error:
        refused = error.failure
    assert (wire is None) == (refused is not None)
    if wire is None:
        assert refused is not None
        assert refused.param
        return
    sent = orjson.loads(wire.body)
    assert isinstance(sent, dict)
    read = dialect.decode_request(WireRequest(headers=wire.headers, body=wire.body), context(dialect.front_options()))
    offered = [t.name for t in request.tools or []]
    # Where the wire cannot say "call none of them", leaving them out says it.
    unwanted = request.tool_choice is not None and request.tool_choice.mode is ToolMode.NONE
    assert [t.name for t in read.tools or []] in ([offered, []] if unwanted else [offered])


@dialects
@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_failure_has_a_response_and_a_place_in_the_stream(dialect: Dialect, code: ErrorCode) -> None:
    failure = Failure(code, "it went wrong", headers={"retry-after": "7"})
    response = dialect.encode_error(failure)
    assert 400 <= response.status <= 599
    assert b"it went wrong" in response.body
    assert response.headers["retry-after"] == "7"
    assert dialect.decode_error(response).message
    builder = context(None).builder()
    builder.flow(0, PartKind.TEXT, "half")
    builder.fail(failure)
    again = fold(decode(dialect, [encode(dialect, builder.take())]))
    assert again.failure is not None
    assert again.text == "half"
    # What a backend says about keys is not repeated to anybody.
    hidden = again.failure.code is ErrorCode.BACKEND_AUTH
    assert hidden or "it went wrong" in again.failure.message


@dialects
def test_a_heartbeat_says_nothing(dialect: Dialect) -> None:
    builder = context(None).builder()
    builder.emit(Heartbeat())
    builder.flow(0, PartKind.TEXT, "x")
    builder.emit(Heartbeat())
    builder.finish(FinishReason.STOP)
    builder.end()
    answer = fold(decode(dialect, [encode(dialect, builder.take())]))
    assert (answer.text, answer.reason) == ("x", FinishReason.STOP)


@dialects
def test_its_example_is_a_request_it_reads(dialect: Dialect) -> None:
    wire = dialect.example_request("Hello")
    request = dialect.decode_request(wire, context(dialect.front_options()))
    assert request.stream
    assert "Hello" in str(request.messages[-1].parts)


@dialects
@pytest.mark.parametrize("said", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_a_body_that_says_it_is_something_else_is_refused(dialect: Dialect, said: str) -> None:
    wire = dialect.example_request("Hello")
    wire.headers = {"content-type": said}
    with pytest.raises(RequestError, match="content-type: expected application/json") as caught:
        dialect.decode_request(wire, context(dialect.front_options()))
    assert 400 <= dialect.encode_error(caught.value.failure).status < 500
    for fine in ({}, {"content-type": "application/json; charset=utf-8"}):
        wire.headers = fine
        dialect.decode_request(wire, context(dialect.front_options()))
