"""What backends send, read to the meaning that the captures' index gives, and told again to clients of this dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Context, WireResponse
from bridge.dialects.anthropic_messages import dialect
from bridge.dialects.anthropic_messages.wire import own
from bridge.errors import ErrorCode, Failure
from bridge.model import Answer, Event, Raw, Reasoning, fold, verify
from bridge.model.surrogates import repaired

from .helpers import (
    BODIES,
    INDEX,
    REFUSALS,
    STREAMS,
    back,
    capture,
    decode,
    encode,
    frames_of,
    front,
    judge,
    names,
    sdk,
)

USER: Any = [{"role": "user", "content": "Hello"}]
GOOD = [c for c in STREAMS if c["expect"]["outcome"] == "completed"]


def parsed(entry: dict[str, Any], context: Context | None = None) -> list[Event]:
    data = capture(entry["name"])
    if entry["file"].endswith(".sse"):
        return decode([data], context=context)
    wire = WireResponse(200, {"content-type": entry["content_type"]}, data)
    return verify(dialect.parse_response(wire, context or back()))


def raw_kinds(answer: Answer) -> list[str]:
    values = [e.value for e in answer.events if isinstance(e, Raw)]
    return [(v.get("block") or v["event"])["type"] for v in values]


def same_arguments(got: str, expected: str) -> bool:
    try:
        return bool(json.loads(got or "{}") == json.loads(expected))
    except ValueError:
        return got == expected


@pytest.mark.parametrize("entry", STREAMS + BODIES, ids=names(STREAMS + BODIES))
def test_what_a_backend_sends_means_what_the_index_says(entry: dict[str, Any]) -> None:
    expect = entry["expect"]
    answer = fold(parsed(entry))
    assert (answer.text, answer.reasoning) == (expect["text"], expect["reasoning"])
    reasoning = [p for p in answer.parts() if isinstance(p, Reasoning)]
    assert [p.signature for p in reasoning if p.signature] == expect["signatures"]
    assert [p.redacted for p in reasoning if p.redacted] == expect.get("redacted", [])
    assert [(c.call_id, c.name) for c in answer.calls] == [(c["id"], c["name"]) for c in expect["tool_calls"]]
    for call, wanted in zip(answer.calls, expect["tool_calls"], strict=True):
        assert same_arguments(call.arguments, wanted["arguments"])
    usage = answer.usage
    assert usage is not None
    cached = usage.cached or 0
    assert (usage.input, usage.output, cached) == tuple(expect["usage"][k] for k in ("input", "output", "cached"))
    assert raw_kinds(answer) == expect["raw"]
    assert sum(len(own(p.extras).get("citations", ())) for p in answer.parts()) == expect.get("citations", 0)
    assert (str(answer.reason) if answer.reason else None) == expect["finish_reason"]
    if expect["outcome"] == "error":
        assert answer.failure is not None
        assert str(answer.failure.code) == expect["error"]["code"]
        assert expect["error"].get("message") in (None, answer.failure.message)


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_the_pieces_in_which_it_comes_change_nothing(entry: dict[str, Any]) -> None:
    data = capture(entry["name"])
    whole = decode([data])
    for size in (1, 7, 64):
        assert decode([data[i : i + size] for i in range(0, len(data), size)]) == whole


@pytest.mark.parametrize("entry", STREAMS, ids=names(STREAMS))
def test_every_cut_ends_in_one_terminal_event(entry: dict[str, Any]) -> None:
    data = capture(entry["name"])
    lines = [at for at in range(len(data)) if data[at : at + 1] == b"\n"]
    for place in lines[:: max(1, len(lines) // 20)]:
        decode([data[:place]])
        decode([data[:place]], failure=Failure(ErrorCode.TRUNCATED_STREAM, "cut"))


@pytest.mark.parametrize("entry", GOOD, ids=names(GOOD))
def test_a_client_of_the_same_dialect_gets_it_all_again(entry: dict[str, Any]) -> None:
    """Unknown blocks, events and fields, citations, signatures, the backend's id and its own stop reason included."""
    expect, data = entry["expect"], capture(entry["name"])
    again = encode(decode([data]))
    judge(again, foreign=True)
    with sdk(again).messages.stream(model="m", max_tokens=10, messages=USER) as stream:
        for _ in stream:
            pass
        message = stream.get_final_message()
    with sdk(named(data)).messages.stream(model="m", max_tokens=10, messages=USER) as stream:
        for _ in stream:
            pass
        direct = stream.get_final_message()
    assert message.id == "msg_01"
    assert (message.stop_reason, message.stop_sequence) == (expect["stop_reason"], expect.get("stop_sequence"))
    assert message.stop_details == direct.stop_details
    # Beside the SDK's own reading of the backend's bytes; a whole input in a block's start is one it reads as well.
    assert [said(b.to_dict()) for b in message.content] == [joined(said(b.to_dict())) for b in direct.content]
    told, meant = message.usage.to_dict(), direct.usage.to_dict()
    if told["cache_creation"] == NO_CACHE:
        del told["cache_creation"]
    assert {k: v for k, v in told.items() if v} == {k: v for k, v in meant.items() if v}


def named(data: bytes) -> bytes:
    """With the event lines that some servers forget and the SDK cannot do without, and with an end."""
    lines = []
    for name, value in frames_of(data):
        lines.append(b"event: %b\ndata: %b\n\n" % ((name or value["type"]).encode(), json.dumps(value).encode()))
    return b"".join(lines)


def joined(value: dict[str, Any]) -> dict[str, Any]:
    """With halves of characters put together, which the SDK leaves to whoever prints the text."""
    return {k: repaired(v) for k, v in value.items()}


def said(value: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that say nothing, which clients get all the same."""
    return {k: v for k, v in value.items() if v is not None and (k, v) not in (("citations", []), CALLER)}


NO_CACHE = {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0}
CALLER = ("caller", {"type": "direct"})


@pytest.mark.parametrize("entry", BODIES, ids=names(BODIES))
def test_an_answer_in_one_piece_comes_out_as_it_went_in(entry: dict[str, Any]) -> None:
    response = dialect.assemble(parsed(entry), front())
    sent, came = json.loads(capture(entry["name"])), json.loads(response.body)
    assert came.pop("usage").items() >= {k: v for k, v in sent.pop("usage").items() if v}.items()
    assert came["content"] == [full(block) for block in sent.pop("content")]
    assert came | sent | {"stop_details": None, "container": None} == came


def full(block: dict[str, Any]) -> dict[str, Any]:
    """A recorded block as clients get it."""
    return {"text": {"citations": []}, "tool_use": dict([CALLER])}.get(block["type"], {}) | block


def test_unknown_things_keep_their_place_and_fields() -> None:
    values = [v for _, v in frames_of(encode(decode([capture("unknown-things")])))]
    assert [v["type"] for v in values] == [
        "message_start", "heartbeat_v2", "content_block_start", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert values[0]["message"]["weather"] == "sunny"
    assert values[1] == {"type": "heartbeat_v2", "n": 1}
    assert values[2]["content_block"] == {"type": "hologram", "depth": 3}
    assert values[3]["delta"] == {"type": "hologram_delta", "z": [1, 2]}
    assert values[5]["content_block"]["mood"] == "calm"
    assert values[8]["delta"]["verdict"] == "fine"


@pytest.mark.parametrize("name", ["a\n\ndata: {}", "a b", "é", "x:"])
def test_a_name_that_would_break_its_line_is_not_written(name: str) -> None:
    context = front()
    data = encode(decode([capture("text").replace(b'"type":"ping"', b'"type":' + json.dumps(name).encode())]), context)
    judge(data)
    assert context.lost.names == ["raw"]


@pytest.mark.parametrize("entry", REFUSALS, ids=names(REFUSALS))
def test_refusals(entry: dict[str, Any]) -> None:
    wanted = entry["expect"]["error"]
    wire = WireResponse(entry["status"], {"content-type": "x", **entry["headers"]}, capture(entry["name"]))
    failure = dialect.decode_error(wire)
    assert str(failure.code) == wanted["code"]
    assert wanted["message"] in (None, failure.message)
    assert failure.headers == entry["headers"]
    response = dialect.encode_error(failure)
    assert response.status == wanted["status"]
    body = json.loads(response.body)
    assert body["type"] == "error"
    assert "sk-ant" not in response.body.decode()
    if wanted["message"] and wanted["status"] == entry["status"]:
        assert body["error"]["type"] == json.loads(capture(entry["name"]))["error"]["type"]


def test_the_index_names_every_file() -> None:
    from .helpers import CAPTURES

    files = {p.name for p in CAPTURES.iterdir()} - {"index.json"}
    assert files == {c["file"] for c in INDEX}
    assert all(c["origin"] and c["shows"] and c["bytes"] == (CAPTURES / c["file"]).stat().st_size for c in INDEX)
