"""Agents that stream one JSON object a line, as the documents of AgentScope show it."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import KEEPALIVE, Frame, Framing, registry
from bridge.engine.bridge import Bridge
from bridge.errors import BackendError, ConfigError, ErrorCode
from bridge.model import Answer, TextDelta, fold, verify
from bridge.testing.wires import context
from bridge.translation import AnswerDecoder
from bridge.translation.framing import lines
from bridge.translation.library import Translator, decode, translate
from tests.server.harness import Exchange, fake_backend, post, serving

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from dialect_toy import Toy

# As the two documents have it: no session, no numbers, a role where the type stands, contents without their message.
PYTHON = """\
{"id":"response_123","object":"response","status":"created"}
{"id":"msg_abc","object":"message","type":"assistant","status":"created"}
{"status":"in_progress","type":"text","index":0,"delta":true,"text":"two ","object":"content","msg_id":"msg_abc"}
{"status":"in_progress","type":"text","index":0,"delta":true,"text":"words","object":"content","msg_id":"msg_abc"}
{"status":"completed","type":"text","index":0,"delta":false,"text":"two words","object":"content","msg_id":"msg_abc"}
{"id":"msg_abc","status":"completed","object":"message"}
{"id":"response_123","status":"completed","object":"response"}
"""
JAVA = PYTHON.replace("msg_id", "msgId").replace('"type":"assistant"', '"type":"MESSAGE","role":"assistant"')
TYPES = ["application/x-ndjson", "application/jsonl", "application/json-lines; charset=utf-8", "Application/X-NDJSON"]
OTHERS = ["application/json", "text/plain", "text/event-stream", "application/octet-stream", ""]
FORMS = pytest.mark.parametrize("wire", [PYTHON, JAVA], ids=["python", "java"])


def read(reads: list[bytes], content_type: str | None = None, dialect: str = "agentscope", **more: Any) -> Answer:
    headers = None if content_type is None else {"content-type": content_type}
    made = registry.get(dialect)
    decoder = AnswerDecoder(made, context(made.back_options()), headers, **more)
    return fold(verify([e for data in reads for e in decoder.receive(data)] + decoder.close()))


@FORMS
@pytest.mark.parametrize("dialect", ["agentscope", "agentscope-java"])
@pytest.mark.parametrize("content_type", [*TYPES, *OTHERS, None])
def test_json_lines_are_a_stream(content_type: str | None, dialect: str, wire: str) -> None:
    answer = read([wire.encode()], content_type, dialect)
    assert (answer.text, answer.failure) == ("two words", None)


@FORMS
@pytest.mark.parametrize("content_type", [TYPES[0], OTHERS[0]])
@pytest.mark.parametrize("way", ["bytes", "\r\n", "blank lines", "mark", "no end", *range(5)])
def test_reads_end_anywhere(way: str | int, content_type: str, wire: str) -> None:
    data = wire.encode()
    reads = [data]
    match way:
        case "bytes":
            reads = [data[n : n + 1] for n in range(len(data))]
        case "\r\n":
            reads = [data.replace(b"\n", b"\r\n")]
        case "blank lines":
            reads = [b"\n \n" + data.replace(b"\n", b"\n\n \n")]
        case "mark":
            reads = [b"\xef\xbb\xbf", data]
        case "no end":
            reads = [data.rstrip()]
        case int():
            cuts = sorted(random.Random(way).sample(range(len(data)), 9))
            reads = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    answer = read(reads, content_type)
    assert (answer.text, answer.failure) == ("two words", None)


def test_lines_are_passed_on_as_they_come() -> None:
    translator = Translator("agentscope", "openai-chat", run_id="run1")
    first, second, third, *_ = PYTHON.encode().splitlines(keepends=True)
    assert translator.feed(first) == b"", "it may still be a body in one piece"
    translator.feed(second)
    assert b"two " in translator.feed(third)


@pytest.mark.parametrize("content_type", ["application/json", TYPES[0]])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_body_in_one_piece_stays_one(content_type: str, indent: int | None) -> None:
    message = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "whole"}]}
    body = {"object": "response", "status": "completed", "output": [message]}
    if indent and content_type == TYPES[0]:
        return  # a body of several lines is none of JSON lines
    data = json.dumps(body, indent=indent).encode() + b"\n"
    for reads in ([data], [data[n : n + 1] for n in range(len(data))]):
        assert read(reads, content_type).text == "whole"


def test_other_dialects_know_no_json_lines() -> None:
    assert read([PYTHON.encode()], "application/x-ndjson", "openai-chat").failure is not None


def test_a_stream_that_breaks_off_has_failed() -> None:
    failure = read([PYTHON.encode()[:400]], TYPES[0]).failure
    assert failure is not None
    assert failure.code in (ErrorCode.TRUNCATED_STREAM, ErrorCode.BACKEND_PROTOCOL)


def test_a_line_has_a_limit() -> None:
    splitter = lines.Splitter(10)
    assert splitter.feed(b"{}\n[1]\n") == [b"{}", b"[1]"]
    with pytest.raises(BackendError, match="10 bytes"):
        splitter.feed(b"x" * 11)
    failure = read([PYTHON.encode()], TYPES[0], max_event=80).failure
    assert failure is not None
    assert "80 bytes" in failure.message


def test_lines_before_one_that_is_too_long_are_read() -> None:
    splitter = lines.Splitter(10)
    assert splitter.feed(b"{}\n[1]\n" + b"x" * 11 + b"\n{}\n") == [b"{}", b"[1]"]
    for read_on in (splitter.feed, lambda _: splitter.close()):
        with pytest.raises(BackendError, match="10 bytes"):
            read_on(b"")


def test_the_last_line_has_a_limit() -> None:
    splitter = lines.Splitter(10)
    assert splitter.feed(b"{}\n" + b"x" * 11) == [b"{}"]
    with pytest.raises(BackendError, match="10 bytes"):
        splitter.close()


def test_recordings() -> None:
    assert fold(decode(PYTHON.encode(), "agentscope")).text == "two words"
    assert b"two " in translate(JAVA.encode(), "agentscope-java", "ag-kit")


@pytest.mark.parametrize("content_type", [TYPES[0], "application/jsonl", "application/json-lines", "application/json"])
async def test_an_agent_that_streams_json_lines(content_type: str) -> None:
    async with fake_backend() as backend:

        async def answer(exchange: Exchange) -> None:
            await exchange.head(200, content_type)
            for line in PYTHON.encode().splitlines(keepends=True):
                await exchange.send(line)
            await exchange.end()

        backend.script = answer
        route = {"dialect": "ag-kit", "path": "/", "backend": "it"}
        config = {"backends": {"it": {"dialect": "agentscope", "url": backend.url}}, "routes": [route]}
        async with serving(config) as base:
            body = {"conversationId": "c", "messages": [{"role": "user", "content": "hi"}]}
            reply = await post(f"{base}/send-message", body)
    assert (reply.status, reply.body.count(b'"type":"text"')) == (200, 2)


class Lines(Toy):
    framing = Framing.JSON_LINES


LINES = Lines()
LINE = b'{"say":"Hello"}\n'
END = b'{"end":"stop"}\n'


def test_a_dialect_of_json_lines() -> None:
    assert translate(LINE + END, LINES, LINES) == LINE + END
    assert translate(b'{"say":"Hello","end":"stop"}', LINES, LINES) == LINE + END
    assert Translator(LINES, "openai-chat").feed(LINE) == b"", "it may still be a body in one piece"
    declared = AnswerDecoder(LINES, context(None), {"content-type": lines.CONTENT_TYPE})
    events = declared.receive(LINE)
    assert TextDelta("msg_run1-0", "Hello") in events, "declared lines need no second one"
    assert fold(verify([*events, *declared.receive(END), *declared.close()])).failure is None


@pytest.mark.parametrize("wire", [b"", LINE, LINE + b'{"end":'])
@pytest.mark.parametrize("content_type", [lines.CONTENT_TYPE, "application/json"])
def test_a_dialect_of_json_lines_that_breaks_off(content_type: str, wire: bytes) -> None:
    decoder = AnswerDecoder(LINES, context(None), {"content-type": content_type})
    assert fold(verify([*decoder.receive(wire), *decoder.close()])).failure is not None


def test_json_lines_have_no_comments() -> None:
    assert lines.join([LINE[:-1], KEEPALIVE, Frame(END[:-1], "end")]) == LINE + END


async def test_a_route_of_json_lines() -> None:
    registry.register(LINES, "lines")
    try:
        config: dict[str, Any] = {
            "backends": {"it": {"dialect": "demo"}},
            "routes": [{"dialect": "lines", "path": "/", "backend": "it"}],
        }
        async with serving(config) as base:
            reply = await post(f"{base}/ask", {"ask": "hi"})
        assert reply.headers["content-type"] == lines.CONTENT_TYPE
        assert reply.body.splitlines(keepends=True)[-1] == END
        config["routes"][0]["durable"] = True
        with pytest.raises(ConfigError, match="cannot be resumed"):
            Bridge.from_config(config)
    finally:
        registry.unregister("lines")
