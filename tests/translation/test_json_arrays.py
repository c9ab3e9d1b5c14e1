"""Streams that are one JSON array, as Gemini's are for clients that do not ask for server-sent events."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.contract import KEEPALIVE, Frame, registry
from bridge.errors import BackendError, ErrorCode
from bridge.model import Answer, fold, verify
from bridge.testing.wires import context
from bridge.translation import AnswerDecoder
from bridge.translation.framing import arrays
from bridge.translation.library import Translator, decode
from tests.server.harness import Exchange, fake_backend, post, serving

RECORDED = (Path(__file__).parents[1] / "captures" / "gemini" / "raw-json-array-stream.json").read_bytes()
PATH = "/v1beta/models/m:streamGenerateContent"
ASKED = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


def read(reads: list[bytes], **more: Any) -> Answer:
    gemini = registry.get("gemini")
    decoder = AnswerDecoder(gemini, context(gemini.back_options()), {"content-type": "application/json"}, **more)
    return fold(verify([e for data in reads for e in decoder.receive(data)] + decoder.close()))


def chunk(text: str, finish: str = "") -> dict[str, Any]:
    end = {"finishReason": finish} if finish else {}
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **end}]}


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize("way", ["whole", "bytes", "compact", "mark", "no bracket", *range(5)])
def test_reads_end_anywhere(way: str | int) -> None:
    data = RECORDED
    reads = [data]
    match way:
        case "bytes":
            reads = [data[n : n + 1] for n in range(len(data))]
        case "compact":
            reads = [json.dumps(json.loads(data), separators=(",", ":")).encode()]
        case "mark":
            reads = [b"\xef\xbb\xbf\r\n " + data]
        case "no bracket":
            reads = [data.rstrip()[:-1]]
        case int():
            cuts = sorted(random.Random(way).sample(range(len(data)), 9))
            reads = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    answer = read(reads)
    assert (answer.text, answer.failure) == ("hello world", None)


def test_an_element_is_read_when_it_is_complete() -> None:
    translator = Translator("gemini", "openai-chat", run_id="run1")
    assert b'"one"' in translator.feed(b"[" + json.dumps(chunk("one")).encode())
    assert b'"two"' in translator.feed(b"\n," + json.dumps(chunk("two", "STOP")).encode())
    assert b"[DONE]" in translator.feed(b"]") + translator.close()


def test_brackets_and_quotes_within_strings() -> None:
    values = [{"a": 'x]}"\\,[{'}, {"b": ["\\", {"c": "]"}], "d": "é\u2028"}, {}]
    data = json.dumps(values, ensure_ascii=False).encode()
    for reads in ([data], [data[n : n + 1] for n in range(len(data))]):
        splitter = arrays.Splitter()
        frames = [frame for each in reads for frame in splitter.feed(each)] + splitter.close()
        assert [json.loads(f) for f in frames if isinstance(f, bytes)] == values


@pytest.mark.parametrize("end", [0, 1, 20, -30])
def test_an_array_that_breaks_off_has_failed(end: int) -> None:
    failure = read([RECORDED[: end or 1]]).failure
    assert failure is not None
    assert failure.code is ErrorCode.TRUNCATED_STREAM


@pytest.mark.parametrize("wire", [b"[]", b"[1, 2]", b"[{]}]", b"[[[]]]", b'["a"]', b"[,,]", b"]"])
def test_arrays_of_no_responses_have_failed(wire: bytes) -> None:
    assert read([wire]).failure is not None


def test_an_error_in_the_array() -> None:
    error = {"error": {"code": 503, "message": "over", "status": "UNAVAILABLE"}}
    answer = read([json.dumps([chunk("a"), error]).encode()])
    assert (answer.text, answer.failure and answer.failure.code) == ("a", ErrorCode.OVERLOADED)


@pytest.mark.parametrize("more", [b"x", b"[{}]", b"{}"])
@pytest.mark.parametrize("in_one_read", [False, True])
def test_what_is_behind_the_array_is_an_error_after_the_elements(more: bytes, in_one_read: bool) -> None:
    splitter = arrays.Splitter()
    assert splitter.feed(b"[{}] \r\n" + (more if in_one_read else b"")) == [b"{}"]
    with pytest.raises(BackendError, match="after its JSON array"):
        splitter.feed(b"" if in_one_read else more)


def test_white_space_behind_the_array_is_nothing() -> None:
    splitter = arrays.Splitter()
    assert [*splitter.feed(b"[{}]"), *splitter.feed(b" \r\n"), *splitter.close()] == [b"{}"]


def test_an_element_has_a_limit() -> None:
    splitter = arrays.Splitter(10)
    assert splitter.feed(b'[{"a":1},{"b":2}') == [b'{"a":1}', b'{"b":2}']
    with pytest.raises(BackendError, match="10 bytes"):
        splitter.feed(b',{"a":"' + b"x" * 10)


def test_other_dialects_know_no_arrays() -> None:
    assert fold(decode(RECORDED, "openai-chat")).failure is not None


# ---------------------------------------------------------------------- writing


def test_pieces_of_an_array_and_its_end() -> None:
    join = arrays.Joiner()
    pieces = [join([b"1", KEEPALIVE]), join([]), join([Frame(b"2", "name"), b"3"]), join([arrays.END])]
    assert pieces == [b"[1", b"", b",\r\n2,\r\n3", b"]"]
    assert arrays.Joiner()([arrays.END]) == b"[]"


@pytest.mark.parametrize("passthrough", [False, True])
@pytest.mark.parametrize("backend_form", ["sse", "array"])
async def test_a_client_gets_the_elements_as_they_come(backend_form: str, passthrough: bool) -> None:
    seen = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        pieces = [json.dumps(chunk("one")).encode(), json.dumps(chunk("two", "STOP")).encode()]
        if backend_form == "sse":
            await exchange.head(200, "text/event-stream")
            await exchange.send(b"data: " + pieces[0] + b"\n\n")
        else:
            await exchange.head(200, "application/json")
            await exchange.send(b"[" + pieces[0])
        await seen.wait()
        await exchange.send(b"data: %b\n\n" % pieces[1] if backend_form == "sse" else b",\n" + pieces[1] + b"]")
        await exchange.end()

    async with fake_backend() as backend:
        backend.script = answer
        route = {"dialect": "gemini", "path": "/", "backend": "it", "passthrough": passthrough}
        config = {"backends": {"it": {"dialect": "gemini", "url": backend.url}}, "routes": [route]}
        async with (
            serving(config) as base,
            aiohttp.ClientSession() as session,
            session.post(base + PATH, json=ASKED) as reply,
        ):
            start = b""
            while b'"one"' not in start:
                start += await reply.content.readany()
            assert reply.headers["content-type"].startswith("application/json")
            seen.set()
            elements = json.loads(start + await reply.read())
    assert [e["candidates"][0]["content"]["parts"][0]["text"] for e in elements if e["candidates"]][:2] == [
        "one",
        "two",
    ]


@pytest.mark.parametrize("passthrough", [False, True])
@pytest.mark.parametrize("way", ["error", "cut", "nonsense"])
async def test_the_array_is_valid_json_whatever_its_end(way: str, passthrough: bool) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head(200, "text/event-stream")
        await exchange.send(b"data: " + json.dumps(chunk("one")).encode() + b"\n\n")
        if way == "error":
            await exchange.send(b'data: {"error":{"code":503,"message":"over","status":"UNAVAILABLE"}}\n\n')
        elif way == "nonsense":
            await exchange.send(b"data: {nonsense\n\n")
        if way == "cut":
            exchange.close()
        else:
            await exchange.end()

    async with fake_backend() as backend:
        backend.script = answer
        route = {"dialect": "gemini", "path": "/", "backend": "it", "passthrough": passthrough}
        config = {"backends": {"it": {"dialect": "gemini", "url": backend.url}}, "routes": [route]}
        async with serving(config) as base:
            reply = await post(base + PATH, ASKED)
    first, *_, last = reply.json
    assert first["candidates"][0]["content"]["parts"] == [{"text": "one"}]
    assert last["error"]["code"] >= 500


async def test_a_failure_before_the_first_element_is_a_status() -> None:
    async with fake_backend() as backend:

        async def answer(exchange: Exchange) -> None:
            await exchange.head(404, "application/json")
            await exchange.send(b'[{"error":{"code":404,"message":"no such model","status":"NOT_FOUND"}}]')
            await exchange.end()

        backend.script = answer
        route = {"dialect": "gemini", "path": "/", "backend": "it"}
        config = {"backends": {"it": {"dialect": "gemini", "url": backend.url}}, "routes": [route]}
        async with serving(config) as base:
            reply = await post(base + PATH, ASKED)
    assert (reply.status, reply.json["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("data", "elements"),
    [
        (b"[1,2]", [b"1", b"2"]),
        (b'["a"]', [b'"a"']),
        (b"[ null ]", [b"null"]),
        (b'[{"a":1}, true]\n', [b'{"a":1}', b"true"]),
        (b"[[1],2]", [b"[1]", b"2"]),
        (b"[]", []),
        (b"[{}]", [b"{}"]),
    ],
)
def test_a_scalar_may_be_the_last_element(data: bytes, elements: list[bytes]) -> None:
    for size in (len(data), 1):
        splitter = arrays.Splitter()
        found = [frame for at in range(0, len(data), size) for frame in splitter.feed(data[at : at + size])]
        assert [*found, *splitter.close()] == elements
