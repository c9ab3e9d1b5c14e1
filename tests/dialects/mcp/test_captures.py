"""Recordings of real clients, read by the codec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Context, Sealer, ToolSite, ToolText, WireRequest
from bridge.dialects.mcp import dialect
from bridge.dialects.mcp.read_messages import read_call
from bridge.dialects.mcp.read_request import notes_of
from bridge.errors import RequestError
from bridge.model import Resume, Text

FOLDER = Path(__file__).parents[2] / "captures" / "mcp"
INDEX = json.loads((FOLDER / "index.json").read_text())["captures"]
SEALER = Sealer(b"s" * 32)
TOOLS = {name: ToolText() for name in ("ask_model", "ask_agent", "ask_slow")}
SITE = ToolSite("model", "/mcp", TOOLS, sealer=SEALER, durable=True)


def wire_of(raw: bytes) -> WireRequest:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return WireRequest(first.split(" ")[0], "", headers, body=body)


def recorded(name: str) -> WireRequest:
    wire = wire_of((FOLDER / f"{name}.request.http").read_bytes())
    if "mcp-session-id" in wire.headers:
        # A session of this server, as the client has had one of the recorded server.
        session = SEALER.seal("session", "", {"v": "2025-11-25", "e": False})
        wire.headers = {**wire.headers, "mcp-session-id": session}
    return wire


def context() -> Context:
    return Context("run-of-a-capture", created_at=1700000000.0, options=dialect.front_options(), site=SITE)


def _is_request(entry: dict[str, Any]) -> bool:
    asks = entry["asks"]
    return bool(asks) and not asks["method"].startswith("notifications/") and "request" in entry.get("files", {})


ASKED = [e["name"] for e in INDEX if _is_request(e) and e["files"]["request"].endswith(".http")]
REFUSED = {"err-noversion-header", "err-nomethod-header", "err-version-unknown", "legacy-nosession"}


@pytest.mark.parametrize("name", ASKED)
def test_what_a_client_asks_is_read(name: str) -> None:
    (entry,) = [e for e in INDEX if e["name"] == name]
    asks, wire, known = entry["asks"], recorded(name), context()
    if name in REFUSED:
        with pytest.raises(RequestError) as caught:
            dialect.decode_message(wire, known)
        failure = caught.value.failure
        failure.details |= known.error_details
        assert dialect.encode_error(failure).status == entry["status"] == 400
        return
    call = read_call(wire, known)
    assert (call.method, call.head.stateless) == (asks["method"], asks["modern"])
    if asks["modern"]:
        assert call.elicits == asks["elicitation"]
    if asks["method"] == "initialize":
        message = dialect.decode_message(wire, known)
        assert message.answer is not None
        result = json.loads(message.answer.body)["result"]
        assert result["protocolVersion"] == asks["version"]
        session = SEALER.open("session", "", message.answer.headers["mcp-session-id"])
        assert session is not None
        assert session["e"] == asks["elicitation"]
    if asks["method"] == "tools/call":
        assert (call.params["name"], call.params["arguments"]) == (asks["tool"], asks["arguments"])
        assert call.meta.get("progressToken") == asks.get("progress_token")
        if "answers" in asks:
            assert call.params["inputResponses"] == asks["answers"]
        elif isinstance(asks["arguments"].get("prompt"), str):
            request = dialect.decode_request(wire, known)
            assert request.messages[0].parts == [Text(asks["arguments"]["prompt"])]
            notes = notes_of(request)
            assert (notes.tool, notes.token) == (asks["tool"], asks.get("progress_token"))
            assert dialect.mode_of(request) == asks["tool"]


def test_a_recorded_answer_to_a_question_resumes_what_it_belongs_to() -> None:
    wire = recorded("call-elicit-2")
    body = json.loads(wire.body)
    with pytest.raises(RequestError, match="requestState"):
        dialect.decode_request(wire, context())
    arguments = body["params"]["arguments"]
    from bridge.dialects.mcp.call import digest

    state = {"r": "/mcp", "t": "thread", "q": {"int-d526c1": 0}, "d": digest("ask_agent", arguments), "u": 2**40}
    body["params"]["requestState"] = SEALER.seal("state", "", state)
    wire.body = json.dumps(body).encode()
    request = dialect.decode_request(wire, context())
    assert (request.thread_id, request.messages) == ("thread", [])
    assert request.resume == [Resume("int-d526c1", "resolved", {"approved": True})]
    state["u"] = 1
    body["params"]["requestState"] = SEALER.seal("state", "", state)
    wire.body = json.dumps(body).encode()
    with pytest.raises(RequestError, match="expired"):
        dialect.decode_request(wire, context())


@pytest.mark.parametrize("name", ["stdio-claude", "stdio-py-modern", "stdio-py-legacy"])
def test_messages_without_http_are_carried(name: str) -> None:
    session = SEALER.seal("session", "", {"v": "2025-11-25", "e": True})
    for line in (FOLDER / f"{name}.request.jsonl").read_text().splitlines():
        message = json.loads(line) if line.strip() else {}
        if "method" not in message or "requestState" in message.get("params", {}):
            continue
        wire, known = dialect.carried(message, session), context()
        found = dialect.decode_message(wire, known)
        address = dialect.address(message)
        if message["method"] == "tools/call":
            assert address.tool == message["params"]["name"]
            assert (found.answer, found.id) == (None, message["id"])
        elif message["method"] == "notifications/cancelled":
            assert address.cancels == message["params"]["requestId"]
        else:
            assert found.answer is not None
