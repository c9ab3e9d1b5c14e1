"""Recorded sessions: what agents answered becomes what it means, cut anywhere; what callers sent is understood."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Context, WireRequest, WireResponse
from bridge.dialects.aip import dialect
from bridge.errors import RequestError
from bridge.model import (
    Answer,
    Builder,
    FinishReason,
    Media,
    MediaKind,
    PartKind,
    RunFinished,
    Text,
    UsageReported,
    fold,
    verify,
)
from bridge.testing.wires import decode
from bridge.translation.framing import messages

CAPTURES = Path(__file__).parents[2] / "captures" / "aip"


def frames(name: str, direction: str, leg: int = 0) -> list[bytes]:
    """The messages of one direction of a recorded session."""
    rpc = json.loads((CAPTURES / f"{name}.json").read_text())["rpcs"][leg]
    return [base64.b64decode(e["raw_b64"]) for e in rpc["events"] if e["dir"] == direction and "raw_b64" in e]


def answer_of(pieces: list[bytes]) -> Answer:
    whole = messages.join(pieces)
    answer = fold(verify(decode(dialect, [whole])))
    assert fold(verify(decode(dialect, [whole[n : n + 1] for n in range(len(whole))]))) == answer
    return answer


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("session_single_turn", "Response to: Hello"),
        ("session_pipelined_stop", None),
        ("content_all_kinds", "Response to: mixed"),
        ("session_closed_by_agent", None),
    ],
)
def test_an_answer_that_was_recorded(name: str, text: str | None) -> None:
    said = frames(name, "s2c")
    answer = answer_of(said)
    assert answer.failure is None
    held = [m for m in map(_message, said) if m.get("session_status") == "HOLD_RESPONSE"] or [_message(said[-1])]
    expected = "".join(item.get("text", "") for m in held for item in m["content"])
    assert answer.text == (expected if text is None else text)


@pytest.mark.parametrize("name", ["session_single_turn", "session_pipelined_stop", "session_closed_by_agent"])
def test_the_last_message_of_a_session_ends_the_run(name: str) -> None:
    """Nobody waits for the peer to close its side: that may take as long as it likes."""
    decoder = dialect.decoder(Context("r", options=dialect.back_options()))
    assert isinstance(decoder.feed(frames(name, "s2c"))[-1], RunFinished)
    assert decoder.close() == []


def test_what_the_wire_has_no_field_for_comes_from_a_peer_of_ours() -> None:
    builder = Builder("r", "t", 0.0, lambda prefix: f"{prefix}-1")
    builder.flow(0, PartKind.TEXT, "Hello")
    builder.usage(UsageReported(12, 34, cached=5))
    builder.finish(FinishReason.STOP)
    builder.end()
    encoder = dialect.encoder(Context("r", options=dialect.front_options(extras="embedded")))
    answer = answer_of(encoder.encode(builder.take()))
    assert answer.text == "Hello"
    assert answer.usage == UsageReported(12, 34, cached=5)


@pytest.mark.parametrize("said", ["application/grpc+proto", "application/grpc", "text/html", ""])
def test_an_answer_in_one_piece_is_one_message(said: str) -> None:
    (whole,) = frames("session_closed_by_agent", "s2c")
    wire = WireResponse(200, {"content-type": said}, whole)
    answer = fold(verify(dialect.parse_response(wire, Context("r", options=dialect.back_options()))))
    told = "".join(item["text"] for item in _message(whole)["content"])
    assert (answer.failure is None, answer.text) == ((True, told) if "grpc" in said else (False, ""))


def _message(raw: bytes) -> dict[str, Any]:
    from google.protobuf import json_format

    from . import schema

    message = schema.tool().AgentMessage.FromString(raw)
    return dict(json_format.MessageToDict(message, preserving_proto_field_name=True))


def test_every_kind_of_content_is_understood() -> None:
    body = frames("content_all_kinds", "c2s")[0]
    context = Context("r", options=dialect.front_options())
    request = dialect.decode_request(WireRequest(body=body), context)
    text, image, audio, file = request.messages[0].parts
    assert text == Text("mixed")
    kinds = [(m.kind, m.mime) for m in (image, audio, file) if isinstance(m, Media)]
    assert kinds == [(MediaKind.IMAGE, "image/png"), (MediaKind.AUDIO, "audio/wav"), (MediaKind.FILE, None)]
    assert (request.thread_id, request.user_id) == ("s-bin", "tester")


def sessions() -> list[tuple[str, int]]:
    """Each recorded call of an agent: the capture, and which of its calls."""
    found = []
    for path in sorted(CAPTURES.glob("*.json")):
        rpcs = json.loads(path.read_text()).get("rpcs", [])
        found += [
            (path.stem, n) for n, rpc in enumerate(rpcs) if rpc["method"].endswith(("CallAgent", "RouteAgentCalling"))
        ]
    return found


@pytest.mark.parametrize(("name", "leg"), sessions())
def test_every_recorded_session_is_read_from_both_sides(name: str, leg: int) -> None:
    """Faults among it: answers are a well-formed run, inquiries are requests, and what asks nothing is refused."""
    answer_of(frames(name, "s2c", leg))
    for body in frames(name, "c2s", leg):
        said, context = _message(body), Context("r", options=dialect.front_options())
        if said.get("session_status", "START_QUEST") not in ("START_QUEST", "HOLD_QUEST"):
            with pytest.raises(RequestError, match="session_status: expected START_QUEST or HOLD_QUEST"):
                dialect.decode_request(WireRequest(body=body), context)
            continue
        request = dialect.decode_request(WireRequest(body=body), context)
        texts = [item["text"] for item in said.get("content", []) if item.get("text")]
        assert [part.text for part in request.messages[0].parts if isinstance(part, Text)][: len(texts)] == texts
        assert request.thread_id == (said.get("session_id") or None)
