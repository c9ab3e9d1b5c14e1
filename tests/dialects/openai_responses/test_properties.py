"""Generated runs: the SDK's types accept every stream, it comes back as the card says, and no wire value raises."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.contract import WireResponse
from bridge.dialects.openai_responses import dialect
from bridge.errors import BridgeError, RequestError
from bridge.model import Event, RunFailed, fold, verify
from bridge.model.surrogates import repair
from bridge.testing.outline import Outline, outline, project
from tests.strategies import answers, json_values, requests, texts

from .helpers import assembled, back, decode, decode_events, emitted, encode, frames, front, parse, request, sent

usual = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def comparable(out: Outline) -> tuple[Any, ...]:
    return out.items, out.usage, out.reason, out.error is not None


@usual
@given(answers())
def test_the_types_of_the_sdk_accept_every_stream(events: list[Event]) -> None:
    emitted(events)


@usual
@given(answers(raw=False, choices=False))
def test_a_run_comes_back_as_its_projection(events: list[Event]) -> None:
    again = fold(decode([encode(events)]))
    assert comparable(outline(again)) == comparable(project(fold(events), dialect.capabilities))


@usual
@given(answers())
def test_one_piece_is_the_last_event_of_the_stream(events: list[Event]) -> None:
    last = emitted(events)[-1]["response"]
    if isinstance(events[-1], RunFailed) or last["status"] == "failed":
        assert dialect.assemble(events, front()).status >= 400
        return
    assert assembled(events) == last
    assert comparable(outline(fold(parse(last)))) == comparable(outline(fold(decode([encode(events)]))))


@usual
@given(answers(raw=False, choices=False))
def test_going_through_twice_changes_nothing_more(events: list[Event]) -> None:
    once = decode([encode(events)])
    again = [e for e in emitted(once) if not e["type"].startswith("response.output_text.annotation")]
    assert [steady(e) for e in again] == [steady(e) for e in emitted(decode([encode(once)]))]


def steady(event: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in event.items() if k != "response"}


# ---------------------------------------------------------------------- anything at all


WORDS = st.sampled_from(["msg_1", "rs_1", "fc_1", "call_1", "", "completed", "incomplete", "in_progress"])
RAGGED = st.sampled_from(["\ud83d", "\ude00", "a\ud800b"])
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["output_text", "refusal", "summary_text", "reasoning_text", "odd"])},
    optional={"text": texts() | RAGGED, "refusal": texts(), "annotations": json_values(), "logprobs": json_values()},
)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "web_search_call", "image_generation_call"])},
    optional={
        "id": WORDS,
        "role": st.sampled_from(["assistant", "user"]),
        "status": WORDS,
        "content": st.lists(PARTS, max_size=2) | json_values(),
        "summary": st.lists(PARTS, max_size=2) | json_values(),
        "encrypted_content": WORDS,
        "call_id": WORDS,
        "name": WORDS,
        "arguments": texts() | RAGGED,
        "result": texts(),
        "odd": json_values(),
    },
)
RESPONSES = st.fixed_dictionaries(
    {},
    optional={
        "id": WORDS,
        "status": WORDS,
        "model": WORDS | json_values(),
        "created_at": json_values(),
        "output": st.lists(ITEMS, max_size=3) | json_values(),
        "usage": st.fixed_dictionaries({"input_tokens": json_values()}) | json_values(),
        "error": json_values(),
        "incomplete_details": json_values(),
    },
)
KINDS = [
    "created", "completed", "incomplete", "failed", "output_item.added", "output_item.done", "content_part.added",
    "content_part.done", "output_text.delta", "output_text.done", "refusal.delta", "refusal.done",
    "output_text.annotation.added", "function_call_arguments.delta", "function_call_arguments.done",
    "reasoning_text.delta", "reasoning_text.done", "reasoning_summary_text.delta", "reasoning_summary_text.done",
    "web_search_call.searching",
]  # fmt: skip
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from([f"response.{kind}" for kind in KINDS] + ["error", "odd"])},
    optional={
        "item": ITEMS | json_values(),
        "item_id": WORDS | json_values(),
        "output_index": st.integers(0, 2) | json_values(),
        "content_index": st.integers(0, 2) | json_values(),
        "summary_index": st.integers(0, 2) | json_values(),
        "part": PARTS | json_values(),
        "delta": texts() | RAGGED | json_values(),
        "text": texts() | json_values(),
        "annotation": json_values(),
        "logprobs": json_values(),
        "response": RESPONSES | json_values(),
        "message": json_values(),
    },
)


@given(st.lists(EVENTS, max_size=8))
def test_no_events_make_the_decoder_raise(events: list[dict[str, Any]]) -> None:
    got = decode_events(*events)
    frames(got)
    dialect.assemble(got, front())


@usual
@given(RESPONSES | json_values(), st.sampled_from([200, 400, 401, 404, 429, 500, 503]))
def test_no_body_makes_the_readers_raise(value: Any, status: int) -> None:
    verify(parse(value))
    wire = WireResponse(status, {"content-type": "application/json"}, json.dumps(value).encode())
    json.loads(dialect.encode_error(dialect.decode_error(wire)).body)
    with suppress(BridgeError):
        dialect.decode_models(wire)


@usual
@given(
    st.fixed_dictionaries(
        {"input": texts() | st.lists(ITEMS | json_values(), max_size=3)},
        optional={
            name: json_values()
            for name in ("model", "tools", "tool_choice", "text", "reasoning", "metadata", "instructions", "store")
        },
    )
)
def test_a_request_is_read_or_refused(body: dict[str, Any]) -> None:
    with suppress(RequestError):
        sent(request(body))


@usual
@given(requests())
def test_what_is_sent_is_read_again_as_the_same_talk(wanted: Any) -> None:
    """Texts, calls and results arrive in order, whatever they were in."""
    try:
        body = sent(
            wanted, {"unsupported_media": "text"}, back({"unsupported_media": "text"}, request=wanted, model="m")
        )
    except RequestError:
        return
    again = request(body)
    assert said(again.messages) == said(wanted.messages)


def said(messages: list[Any]) -> list[Any]:
    out: list[Any] = []
    for part in (p for m in messages for p in m.parts):
        match type(part).__name__:
            case "ToolCall":
                out.append((part.call_id, part.name, part.arguments))
            case "ToolResult":
                out.append(part.call_id)
    return out


def test_surrogates_are_generated_at_all() -> None:
    """The strategy must be able to make them, or the properties above would prove less than they say."""
    assert repair("\ud83d") == "\ufffd"
    got = fold(decode_events(*({"type": "response.output_text.delta", "delta": d} for d in ("\ud83d", "\ude00"))))
    assert got.text == "\U0001f600"
