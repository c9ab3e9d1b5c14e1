"""What must hold for every stream: nothing undeclared is lost, nothing raises, the same input gives the same bytes."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import WireResponse
from bridge.dialects.ag_ui import dialect
from bridge.errors import ErrorCode
from bridge.model import Event, fold, verify
from bridge.testing.outline import Outline, outline, project
from bridge.translation.framing.sse import join
from tests.strategies import answers, batches, json_values, splits

from .helpers import OF_ANOTHER_BRIDGE, again, back, decode, encode, front, new_client, old_client, payloads, said
from .order import check_order


def comparable(out: Outline) -> Outline:
    """A folded answer puts a result behind the message that was open, which differs: results are compared apart."""
    results = [i for i in out.items if i[0] == "tool_result"]
    items: list[tuple[Any, ...]] = []
    for item in (i for i in out.items if i[0] != "tool_result"):
        joins = items and items[-1][0] == item[0] in ("text", "reasoning") and not any(items[-1][2:])
        if joins:
            items[-1] = (item[0], items[-1][1] + item[1], *item[2:])
        else:
            items.append(item)
    out.items = [*items, *results]
    return out


@given(answers(choices=False))
def test_nothing_is_lost_that_the_card_does_not_name(events: list[Event]) -> None:
    said(events)
    meant = project(fold(events), dialect.capabilities)
    if meant.error in set(OF_ANOTHER_BRIDGE):
        meant.error = str(OF_ANOTHER_BRIDGE[ErrorCode(meant.error)])
    assert comparable(outline(again(events))) == comparable(meant)


@given(answers())
def test_clients_of_every_version_accept_every_stream(events: list[Event]) -> None:
    said(events, new_client())
    old = said(events, old_client())
    check_order(old, alone=True)
    said(events, old_client(reasoning_events="thinking"))
    said(events, new_client(reasoning_events="none"))


@given(answers(), st.data())
def test_the_same_events_give_the_same_bytes_in_any_batch(events: list[Event], data: st.DataObject) -> None:
    for make in (new_client, old_client):
        whole = join(encode(events, make()))
        encoder = dialect.encoder(make())
        frames = [f for batch in data.draw(batches(events)) for f in encoder.encode(batch)]
        assert join(frames) == whole
    assert decode(data.draw(splits(whole))) == decode([whole])


KINDS = st.sampled_from(
    [
        "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED", "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TEXT_MESSAGE_CHUNK", "TOOL_CALL_START", "TOOL_CALL_ARGS",
        "TOOL_CALL_END", "TOOL_CALL_CHUNK", "TOOL_CALL_RESULT", "REASONING_START", "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_MESSAGE_CHUNK", "REASONING_END",
        "REASONING_ENCRYPTED_VALUE", "STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT", "ACTIVITY_SNAPSHOT", "RAW",
        "CUSTOM", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "THINKING_START", "THINKING_TEXT_MESSAGE_CONTENT",
        "THINKING_TEXT_MESSAGE_END", "NEW",
    ]
)  # fmt: skip
IDS = st.sampled_from(["a", "b"])
SOURCES = st.fixed_dictionaries(
    {"type": st.sampled_from(["data", "url", "file"]), "value": IDS},
    optional={"mimeType": st.just("image/png") | json_values(), "provider": IDS | json_values()},
)
PARTS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "image", "document", "hologram"])},
        optional={"text": IDS | json_values(), "source": SOURCES | json_values(), "metadata": json_values()},
    ),
    max_size=2,
)
CALLS = st.lists(
    st.fixed_dictionaries(
        {"id": IDS, "type": st.just("function"), "function": st.just({"name": "f", "arguments": "{}"}) | json_values()},
        optional={"metadata": json_values(), "encryptedValue": json_values()},
    ),
    max_size=2,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"id": IDS, "role": st.sampled_from(["user", "assistant", "tool", "reasoning", "system", "activity"])},
        optional={
            "content": st.just("x") | PARTS | json_values(),
            "toolCalls": CALLS | json_values(),
            "toolCallId": IDS,
            "name": IDS | json_values(),
            "error": IDS | json_values(),
            "metadata": json_values(),
            "activityType": IDS,
        },
    ),
    max_size=3,
)
NEARLY = st.fixed_dictionaries(
    {"type": KINDS},
    optional={
        "messageId": IDS | json_values(),
        "toolCallId": IDS | json_values(),
        "parentMessageId": IDS | json_values(),
        "subagentRunId": IDS,
        "entityId": IDS,
        "subtype": st.sampled_from(["message", "tool-call"]),
        "activityType": IDS,
        "patch": st.just([{"op": "add", "path": "/a", "value": None}]) | json_values(),
        "timestamp": st.just(1) | json_values(),
        "event": json_values(),
        "encryptedValue": st.just("s") | json_values(),
        "delta": st.sampled_from(["x", ""]) | json_values(),
        "role": st.sampled_from(["assistant", "user"]) | json_values(),
        "toolCallName": json_values(),
        "stepName": IDS | json_values(),
        "name": st.just("on_interrupt") | json_values(),
        "value": json_values(),
        "content": PARTS | json_values(),
        "messages": MESSAGES | json_values(),
        "snapshot": json_values(),
        "outcome": st.sampled_from([{"type": "cancelled"}, {"type": "interrupt", "interrupts": [{}]}]) | json_values(),
        "usage": st.lists(st.dictionaries(st.sampled_from(["inputTokens", "x"]), json_values())) | json_values(),
        "metadata": st.sampled_from([{"finish_reason": "length"}, {"finish_reason": []}]) | json_values(),
        "code": json_values(),
        "message": json_values(),
        "source": json_values(),
    },
)


@given(st.lists(NEARLY | json_values(), max_size=8))
def test_no_wire_raises_and_what_was_decoded_can_be_encoded(values: list[Any]) -> None:
    frames = [orjson.dumps(v) for v in values]
    decoder = dialect.decoder(back())
    events = verify([*decoder.feed(frames), *decoder.close()])
    one_by_one = dialect.decoder(back())
    assert [e for f in frames for e in one_by_one.feed([f])] + one_by_one.close() == events
    check_order(payloads(encode(events, old_client())), alone=True)
    check_order(payloads(encode(events, front())))


@given(st.lists(st.binary(max_size=20), max_size=4), st.sampled_from([200, 400, 503]))
def test_no_bytes_raise(frames: list[bytes], status: int) -> None:
    decoder = dialect.decoder(back())
    verify([*decoder.feed(frames), *decoder.close()])
    wire = WireResponse(status, {}, b"".join(frames))
    verify(dialect.parse_response(wire, back()))
    assert dialect.decode_error(wire).message


@given(json_values(), st.sampled_from([200, 400, 401, 404, 422, 429, 500, 503]))
def test_no_body_raises(value: Any, status: int) -> None:
    for body in (value, {"error": value}, {"detail": value}, {"type": value}):
        wire = WireResponse(status, {"content-type": "application/json"}, orjson.dumps(body))
        verify(dialect.parse_response(wire, back()))
        orjson.loads(dialect.encode_error(dialect.decode_error(wire)).body)
