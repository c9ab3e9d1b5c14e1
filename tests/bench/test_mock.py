"""The mock backend speaks every wire, and the load client sees what is wrong with a reply."""

from __future__ import annotations

import json
from typing import Any

import mock_replies
import mock_wires
import pytest
from mock_replies import REPEAT_HOLE, STAMP_HOLE, Settings, token
from wires import DIALECTS, parse_events

TEXT = "".join(token(n) for n in range(5))


def settings(**changes: Any) -> Settings:
    out = Settings()
    out.update({"tokens": 5, **changes})
    return out


def body(plan: mock_replies.Plan) -> bytes:
    """A plan's writes without the HTTP chunks round each event."""
    out, rest = b"", b"".join(plan.writes)
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        out, rest = out + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return out


def stream(dialect: str, s: Settings) -> bytes:
    known = {
        "openai-chat": lambda: mock_replies.chat_stream(s, False),
        "agentscope": lambda: mock_replies.agentscope_stream(s),
    }
    return body(known[dialect]() if dialect in known else mock_wires.stream(dialect, s))


WIRES = ("openai-chat", "agentscope", *mock_wires.WIRES)


@pytest.mark.parametrize("dialect", WIRES)
def test_a_stream_passes_the_checks_of_the_client(dialect: str) -> None:
    known = DIALECTS[dialect]
    assert known.text is not None
    sent = stream(dialect, settings())
    events = list(parse_events(sent))
    assert "".join(t for t in map(known.text, events) if t) == TEXT
    assert known.fault(events) == ""
    assert len(known.delta.findall(sent)) == 5
    assert known.terminal.search(sent)


@pytest.mark.parametrize("dialect", WIRES)
def test_a_stream_without_its_end_does_not_pass(dialect: str) -> None:
    events = list(parse_events(stream(dialect, settings())))
    assert DIALECTS[dialect].fault(events[:-1]) != ""


@pytest.mark.parametrize("dialect", WIRES)
def test_only_deltas_carry_the_time_of_their_sending(dialect: str) -> None:
    sent = stream(dialect, settings(stamp=1))
    assert sent.count(STAMP_HOLE) == 5
    assert sent.count(REPEAT_HOLE) % 5 == 0
    assert (sent.count(REPEAT_HOLE) > 0) == (stream(dialect, settings()).count(TEXT.encode()) > 0)


@pytest.mark.parametrize("dialect", mock_wires.PLAIN)
def test_a_reply_in_one_piece_has_the_text(dialect: str) -> None:
    head, _, sent = mock_wires.plain(dialect, settings()).partition(b"\r\n\r\n")
    assert f"content-length: {len(sent)}".encode() in head
    assert TEXT in json.dumps(json.loads(sent))


def test_only_the_run_api_has_holes_for_ids() -> None:
    named = [d for d in mock_wires.WIRES if mock_wires.stream(d, settings()).named]
    assert named == ["agent-runs"]
    assert mock_wires.OWN_ID in stream("agent-runs", settings())
