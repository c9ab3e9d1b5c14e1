"""Recordings of real servers and clients, read as the official client read them."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.model import Answer, FinishReason, ToolCall, fold, result_text

from .helpers import CAPTURES, INDEX, REQUESTS, STREAMS, asked, read, request_body, sent, types, written

REASONS = {"stop": FinishReason.STOP, "tool-calls": FinishReason.TOOL_CALLS}


def answer_of(name: str) -> Answer:
    request = asked(request_body(name)) if name in REQUESTS else None
    return fold(read((CAPTURES / INDEX[name]["file"]).read_bytes(), request))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_means_what_the_client_made_of_it(name: str) -> None:
    expect, answer = INDEX[name]["expect"], answer_of(name)
    # The client's message holds the turns before, too.
    assert expect["text"].endswith(answer.text)
    assert expect["reasoning"].endswith(answer.reasoning)
    known = {c["id"]: c for c in expect["tool_calls"]}
    for call in answer.calls:
        assert (known[call.call_id]["name"], known[call.call_id]["dynamic"]) == (call.name, _dynamic(call))
    results = {p.call_id: p for m in answer.messages for p in m.parts if hasattr(p, "is_error")}
    for call_id, result in results.items():
        state = known[call_id]["state"]
        assert result.is_error == (state != "output-available")
    if expect["outcome"] == "error":
        assert answer.failure is not None
        assert answer.failure.message == expect["error"]
    elif expect["outcome"] == "aborted":
        assert answer.failure is not None, "the recording ends where the client hung up"
    else:
        assert answer.failure is None
        wanted = REASONS.get(expect["finish_reason"])
        assert wanted is None or answer.interrupts or answer.reason is wanted


def _dynamic(call: ToolCall) -> bool:
    return bool(((call.extras or {}).get("ai-sdk-ui") or {}).get("dynamic"))


def test_what_the_stream_says_besides() -> None:
    answer = answer_of("data")
    assert [getattr(e, "name", None) for e in answer.events] == ["status", "weather", "weather"]
    assert answer.model == "mock-1"
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output) == (3, 2)
    usage = answer_of("text-v5").usage
    assert usage is not None
    assert (usage.input, usage.output, usage.total, usage.cached, usage.reasoning) == (21, 13, 34, 8, 5)
    answer = answer_of("approval-granted-turn1")
    assert [(i.call_id, i.reason) for i in answer.interrupts] == [("call_a1", "tool_call")]
    assert answer.reason is FinishReason.INTERRUPTED
    assert [c.name for c in answer_of("pyd-approval-turn2").calls] == [], "the call is one of the first answer"
    (result,) = [p for m in answer_of("dynamic").messages for p in m.parts if hasattr(p, "is_error")]
    assert result_text(result.parts), "the last output counts"
    (source,) = [p.source for p in answer_of("file-out").parts() if hasattr(p, "mime")]
    assert source.base64.startswith("iVBOR")
    custom = [e.value["type"] for e in answer_of("provider-tool").events]
    assert custom == ["source-url", "source-document"]


@pytest.mark.parametrize("name", STREAMS)
def test_a_route_of_this_dialect_on_both_sides_says_the_same(name: str) -> None:
    """What a client gets, read again, is what the server said."""
    request = asked(request_body(name)) if name in REQUESTS else None
    events = read((CAPTURES / INDEX[name]["file"]).read_bytes(), request)
    chunks = written(events, request, ui_version=7)
    assert types(chunks)[0] == "start"
    again = fold(events)
    text = "".join(c["delta"] for c in chunks if c["type"] == "text-delta")
    assert text == again.text
    signatures = [c["providerMetadata"] for c in chunks if c["type"] == "reasoning-end"]
    server = (CAPTURES / INDEX[name]["file"]).read_text()
    if "signature" in server and "reasoning-end" in server:
        assert signatures
        assert "dialect_bridge" not in signatures[0]
    assert ("error" in types(chunks)) == (again.failure is not None)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_goes_on_to_a_server_of_this_dialect(name: str) -> None:
    body = request_body(name)
    came = sent(asked(body), system="message")
    assert (came["id"], came["trigger"]) == (body["id"], body["trigger"])
    assert came.get("messageId") == body.get("messageId")
    assert [(m["id"], m["role"]) for m in came["messages"]] == [(m["id"], m["role"]) for m in body["messages"]]
    for ours, theirs in zip(came["messages"], body["messages"], strict=True):
        wanted = [
            _essence(p) for p in theirs["parts"] if p["type"] not in ("step-start", "source-url", "source-document")
        ]
        wanted = [p for p in wanted if p["type"] != "data-weather"]
        assert [_essence(p) for p in ours["parts"] if p["type"] != "step-start"] == wanted


def _essence(part: dict[str, Any]) -> dict[str, Any]:
    """Without the client's own notes, such as whether a text still streams."""
    return {k: v for k, v in part.items() if k not in ("state", "id") or part["type"].startswith(("tool-", "dynamic"))}
