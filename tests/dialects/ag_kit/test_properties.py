"""What must hold for every stream: nothing undeclared is lost, nothing raises, the same input gives the same bytes."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from bridge.dialects.ag_kit import dialect
from bridge.errors import RequestError
from bridge.model import Event, fold, verify
from bridge.testing.outline import Outline, outline, project
from bridge.testing.wires import has_inner_result, without_separators
from bridge.translation.framing.sse import join
from tests.strategies import answers, batches, json_objects, json_values, requests, splits

from .helpers import again, asked, context, decode, encode, payloads, sent, shown

EVENTS = {
    "text": {"content"},
    "tool-call-start": {"toolCallId", "toolCallName"},
    "tool-call-args": {"toolCallId", "delta"},
    "tool-call-end": {"toolCallId"},
    "tool-result": {"toolCallId", "result"},
    "interrupt": {"id", "reason", "payload"},
    "error": {"error"},
}


def comparable(out: Outline) -> tuple[Any, ...]:
    """Results apart: a folded answer puts them behind the message that is open. Of an error only its text goes out."""
    results = [i for i in out.items if i[0] == "tool_result"]
    items: list[Any] = []
    for item in out.items:
        if item[0] == "tool_result":
            continue
        if items and item[0] == items[-1][0] == "text":
            items[-1] = ("text", items[-1][1] + item[1])
        else:
            items.append(item)
    return items, results, out.interrupts, out.reason, out.error is not None, out.usage, out.others


@given(answers())
def test_nothing_is_lost_that_the_card_does_not_name(events: list[Event]) -> None:
    read, wanted = outline(again(events)), project(fold(events), dialect.capabilities)
    if has_inner_result(events):
        read, wanted = (without_separators(out, dialect.capabilities.separator) for out in (read, wanted))
    assert comparable(read) == comparable(wanted)


@given(answers(choices=False))
def test_only_the_events_of_the_page_are_written(events: list[Event]) -> None:
    for event in payloads(encode(events)):
        kind = event.pop("type")
        assert set(event) == EVENTS[kind]
        assert all(isinstance(v, str) for k, v in event.items() if k != "payload")
    separator = dialect.capabilities.separator if has_inner_result(events) else ""
    wanted = "".join(i[1] for i in project(fold(events), dialect.capabilities).items if i[0] == "text")
    assert shown(events).text.replace(separator, "") == wanted.replace(separator, "")


@given(answers(), st.data())
def test_the_same_events_give_the_same_bytes_in_any_batch(events: list[Event], data: st.DataObject) -> None:
    encoder = dialect.encoder(context())
    pieces = [encoder.encode(batch) for batch in data.draw(batches(events))]
    assert b"".join(map(join, pieces)) == join(encode(events)) == join(encode(events))


@given(answers(), st.data())
def test_where_reads_end_changes_nothing(events: list[Event], data: st.DataObject) -> None:
    body = join(encode(events))
    assert decode(data.draw(splits(body))) == decode([body])


KINDS = st.sampled_from([*EVENTS, "Text", "x", ""])
IDS = st.sampled_from(["a", "b", ""])
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "type": KINDS | json_values(),
        "content": st.text(max_size=3) | json_values(),
        "toolCallId": IDS | json_values(),
        "toolCallName": st.text(max_size=3) | json_values(),
        "delta": st.sampled_from(["{", "}", ""]) | json_values(),
        "result": json_values(),
        "id": json_values(),
        "reason": json_values(),
        "payload": json_values(),
        "error": json_values(),
    },
)  # fmt: skip


@given(st.lists(OBJECTS | json_values(), max_size=8))
def test_no_wire_raises_and_what_was_decoded_can_be_encoded(values: list[Any]) -> None:
    decoder = dialect.decoder(context())
    events = verify([*decoder.feed([orjson.dumps(v) for v in values]), *decoder.close()])
    frames = encode(events)
    assert frames[-1] == b"[DONE]"


@given(st.lists(st.binary(max_size=20), max_size=4))
def test_no_bytes_raise(frames: list[bytes]) -> None:
    decoder = dialect.decoder(context())
    verify([*decoder.feed(frames), *decoder.close()])


BODIES = st.fixed_dictionaries(
    {"conversationId": st.text(max_size=3) | json_values()},
    optional={
        "messages": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "role": st.sampled_from(["user", "assistant", "tool", "system", "x"]) | json_values(),
                    "content": st.text(max_size=3) | json_values(),
                    "toolCallId": json_values(),
                    "toolCalls": st.lists(json_objects(), max_size=2) | json_values(),
                },
            ),
            max_size=3,
        )
        | json_values(),
        "tools": st.lists(json_objects(), max_size=2) | json_values(),
        "resume": json_objects() | json_values(),
    },
)


@given(BODIES | json_values())
def test_every_body_is_read_or_refused_by_name(body: Any) -> None:
    try:
        request = asked(orjson.dumps(body))
    except RequestError as error:
        wire = dialect.encode_error(error.failure)
        assert wire.status == 422
        assert orjson.loads(wire.body)["detail"][0]["msg"]
    else:
        assert asked(orjson.dumps(sent(request))).messages == asked(orjson.dumps(sent(request))).messages


PLAIN: dict[str, Any] = {"media": (), "resume": False, "sampling": ("temperature", "stop")}


@given(requests(**PLAIN))
def test_whatever_is_asked_of_a_backend_can_be_read_again(request: Any) -> None:
    first = sent(request)
    assert first == sent(request)
    read = asked(first)
    assert [t.name for t in read.tools or ()] == [t["name"] for t in first.get("tools", ())]
    assert len(read.messages) == len(first["messages"])
