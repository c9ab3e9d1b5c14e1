"""Every recorded wire as a backend, through real sockets to two fronts' clients, streamed and whole.

Fronts take turns: each one meets every backend. `test_recorded.py` has every wire with every front, in process.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from bridge.contract import registry
from tests.pairs.clients import CLIENTS, Seen, routes
from tests.server.harness import Exchange, fake_backend, serving

CAPTURES = Path(__file__).parents[1] / "captures"
HELLO = [{"role": "user", "content": "Hello"}]


def pieces(data: bytes, seed: int) -> list[bytes]:
    """The bytes cut anywhere, also in the middle of a character; the same cuts in every run."""
    rnd = random.Random(seed)
    out, at = [], 0
    most = 40 if len(data) < 10_000 else 40_000
    while at < len(data):
        step = rnd.randint(1, most)
        out.append(data[at : at + step])
        at += step
    return out


def replay(capture: dict[str, Any], data: bytes) -> Any:
    async def script(exchange: Exchange) -> None:
        if capture["status"] != 200 or not capture["content_type"].startswith("text/event-stream"):
            headers = {k.replace("-", "_"): v for k, v in capture["headers"].items()}
            await exchange.answer(capture["status"], data, capture["content_type"], **headers)
            return
        await exchange.head()
        for piece in pieces(data, len(data)):
            await exchange.send(piece)
        if capture.get("end") == "abort":
            exchange.reset()
        else:
            await exchange.end()

    return script


def in_turn(captures: list[dict[str, Any]]) -> list[Any]:
    """Each capture with the next two fronts."""
    fronts = itertools.cycle(CLIENTS)
    return [
        pytest.param(capture, front, id=f"{capture['name']}-{front}")
        for capture in captures
        for front in itertools.islice(fronts, 2)
    ]


def same_arguments(seen: str, expected: str) -> bool:
    return json.loads(seen or "{}") == json.loads(expected or "{}")


def check_error(seen: Seen, expect: dict[str, Any]) -> None:
    error = expect["error"]
    assert seen.error is not None, "a failure that reads as success"
    assert error.get("contains", "").lower() in seen.error.lower()
    assert seen.text == expect["text"]


# ---------------------------------------------------------------------- openai-chat as the backend

CHAT = json.loads((CAPTURES / "openai-chat/index.json").read_text())["captures"]


@pytest.mark.turns(3)
@pytest.mark.parametrize("mode", ["streamed", "whole"])
@pytest.mark.parametrize(("capture", "front"), in_turn(CHAT))
async def test_openai_chat_capture(front: str, mode: str, capture: dict[str, Any]) -> None:
    if front == "agentscope" and mode == "whole":
        mode = "streamed"  # Its clients know streams only; `stream: false` must change nothing.
        more: dict[str, Any] = {"stream": False}
    else:
        more = {"stream": mode == "streamed"}
    if "choices" in capture["expect"] and front != "anthropic-messages":  # whose clients cannot ask for two
        more |= {"n": 2}
    data = (CAPTURES / "openai-chat" / capture["file"]).read_bytes()
    async with fake_backend() as backend, serving(routes("openai-chat", f"{backend.url}/v1")) as base:
        backend.plays(replay(capture, data))
        seen = await CLIENTS[front](base, HELLO, **more)
        assert backend.seen[0].path == "/v1/chat/completions"
    expect = capture["expect"]
    for secret in capture.get("must_not_contain", []):
        assert secret not in (seen.error or "")
    if expect["outcome"] == "error":
        if mode == "whole":
            # An answer in one piece is all or nothing: the text that came is not told beside the error.
            expect = {**expect, "text": ""}
        check_error(seen, expect)
        if front != "agentscope":
            check_status(seen, capture, front, streamed=mode == "streamed")
        return
    if front == "openai-chat" and "audio" in expect:
        expect = {**expect, "text": ""}  # the words are in `audio`
    if front == "agentscope" and "choices" in expect:
        expect = {**expect, "text": "".join(c["text"] for c in expect["choices"])}
    check_completed(seen, expect, front, mode)


def check_status(seen: Seen, capture: dict[str, Any], front: str, *, streamed: bool) -> None:
    error = capture["expect"]["error"]
    if error["where"] == "any":
        return
    if error["where"] == "stream" and streamed:
        assert seen.status == 200
    elif "status" in error:
        allowed = error["status"] if isinstance(error["status"], list) else [error["status"]]
        assert seen.status in allowed
    else:
        assert seen.status >= 400
    if "retry_after" in capture:
        assert seen.headers["retry-after"] == capture["retry_after"]
    if "error_code" in capture and front != "anthropic-messages":  # its wire tells kinds of errors only
        assert seen.error_code == capture["error_code"]


def check_completed(seen: Seen, expect: dict[str, Any], front: str, mode: str) -> None:
    assert seen.error is None
    texts = [expect["text"], *expect.get("text_any", [])]
    if front == "anthropic-messages":
        # Refusals are told as text there.
        assert seen.text in [t + (expect["refusal"] or "") for t in texts]
    else:
        assert seen.text in texts
        assert seen.refusal == (expect["refusal"] or "")
    assert seen.reasoning == expect["reasoning"]
    assert len(seen.calls) == len(expect["tool_calls"])
    assert len({c.id for c in seen.calls}) == len(seen.calls)
    for call, wanted in zip(seen.calls, expect["tool_calls"], strict=True):
        assert call.id
        assert wanted["id"] in (None, call.id)
        assert call.name == wanted["name"]
        assert same_arguments(call.arguments, wanted["arguments"])
    finish = expect["finish_reason"]
    assert seen.finish in (finish if isinstance(finish, list) else [finish])
    if expect["usage"] is not None:
        assert seen.usage == (expect["usage"]["input"], expect["usage"]["output"])
    else:
        assert seen.usage is None
    if front == "openai-chat" and "choices" in expect:
        assert seen.choices == {c["index"]: c["text"] for c in expect["choices"]}


# ---------------------------------------------------------------------- openai-responses as the backend

RESPONSES = json.loads((CAPTURES / "openai-responses/index.json").read_text())["captures"]


@pytest.mark.turns(3)
@pytest.mark.parametrize("mode", ["streamed", "whole"])
@pytest.mark.parametrize(("capture", "front"), in_turn(RESPONSES))
async def test_openai_responses_capture(front: str, mode: str, capture: dict[str, Any]) -> None:
    stream = mode == "streamed"
    data = (CAPTURES / "openai-responses" / capture["file"]).read_bytes()
    async with fake_backend() as backend, serving(routes("openai-responses", f"{backend.url}/v1")) as base:
        backend.plays(replay(capture, data))
        seen = await CLIENTS[front](base, HELLO, stream=stream)
        assert backend.seen[0].path == "/v1/responses"
        assert backend.seen[0].json["store"] is False
    expect = capture["expect"]
    for secret in capture.get("must_not_contain", []):
        assert secret not in (seen.error or "")
    if expect["outcome"] == "error":
        check_error(seen, expect if stream or front == "agentscope" else {**expect, "text": ""})
        if front != "agentscope":
            check_status(seen, capture, front, streamed=stream)
        return
    if front == "openai-responses" or "media" not in expect:
        check_completed(seen, expect, front, mode)
    elif front == "agentscope":
        assert seen.media == expect["media"]
    else:
        between = registry.get(front).capabilities.separator
        assert seen.text == between.join([*(f"![image]({url})" for url in expect["media"]), expect["text"]])


# ---------------------------------------------------------------------- agentscope as the backend

_SCOPE = json.loads((CAPTURES / "agentscope/index.json").read_text())["cases"]
SCOPE = [c for c in _SCOPE if "expect" in c]


def scope_bytes(case: dict[str, Any]) -> bytes:
    data = (CAPTURES / "agentscope" / case["response"]["body_file"]).read_bytes()
    if case["response"]["body_file"].endswith(".jsonl"):
        return b"".join(b"data: " + line + b"\n\n" for line in data.splitlines())
    return data


@pytest.mark.turns(3)
@pytest.mark.parametrize("mode", ["streamed", "whole"])
@pytest.mark.parametrize(("case", "front"), in_turn(SCOPE))
async def test_agentscope_capture(front: str, mode: str, case: dict[str, Any]) -> None:
    stream = mode == "streamed"
    capture = {"status": 200, "content_type": "text/event-stream", "headers": {}}
    async with fake_backend() as backend, serving(routes("agentscope", backend.url)) as base:
        backend.plays(replay(capture, scope_bytes(case)))
        seen = await CLIENTS[front](base, HELLO, stream=stream)
        sent = orjson.loads(backend.seen[0].body)
        assert backend.seen[0].path == "/process"
        assert sent["session_id"]
    expect = case["expect"]
    if expect["status"] in ("failed", "interrupted"):
        assert seen.error is not None, "a failure that reads as success"
        if expect["error"]:
            assert expect["error"]["message"][:40] in seen.error
        if stream or front == "agentscope":
            assert seen.text == expect["text"]
        return
    assert seen.error is None
    check_scope(seen, expect, front)


def check_scope(seen: Seen, expect: dict[str, Any], front: str) -> None:
    media = [p["value"] for m in expect["messages"] for p in m["parts"] if p["type"] in ("image", "audio", "file")]
    assert seen.reasoning == expect["reasoning"]
    if front == "anthropic-messages":
        seen.text, seen.refusal = seen.text.removesuffix(expect["refusal"]), expect["refusal"]
    assert seen.refusal == expect["refusal"]
    if expect["usage"]:
        assert seen.usage == (expect["usage"]["input_tokens"], expect["usage"]["output_tokens"])
    answered = {o["call_id"] for o in expect["outputs"]}
    if front == "agentscope":
        assert seen.text == expect["text"]
        assert seen.media == media
        assert [(c.name, json.loads(c.arguments)) for c in seen.calls] == [
            (c["name"], json.loads(c["arguments"])) for c in expect["calls"]
        ]
        assert [o for _, o in seen.results] == [o["output"] for o in expect["outputs"]]
        assert {i for i, _ in seen.results} <= {c.id for c in seen.calls}
        return
    # Media become Markdown, and calls that the agent answered itself are not the client's to run.
    texts = ["".join(p["value"] for p in m["parts"] if p["type"] == "text") for m in expect["messages"]]
    texts = [text for text in texts if text and text in expect["text"]]
    assert "".join(texts) == expect["text"]
    assert seen.text.startswith(registry.get(front).capabilities.separator.join(texts))
    assert all(url in seen.text for url in media)
    open_calls = [c for c in expect["calls"] if c["call_id"] not in answered and len(expect["outputs"]) == 0]
    assert [c.name for c in seen.calls] == [c["name"] for c in open_calls]
    assert seen.finish == ("tool_calls" if open_calls else "stop")


# ---------------------------------------------------------------------- anthropic-messages as the backend

CLAUDE = json.loads((CAPTURES / "anthropic-messages/index.json").read_text())["captures"]


@pytest.mark.turns(3)
@pytest.mark.parametrize("mode", ["streamed", "whole"])
@pytest.mark.parametrize(("capture", "front"), in_turn(CLAUDE))
async def test_anthropic_messages_capture(front: str, mode: str, capture: dict[str, Any]) -> None:
    data = (CAPTURES / "anthropic-messages" / capture["file"]).read_bytes()
    async with fake_backend() as backend, serving(routes("anthropic-messages", backend.url)) as base:
        backend.plays(replay(capture, data))
        seen = await CLIENTS[front](base, HELLO, stream=mode == "streamed")
        assert backend.seen[0].path == "/v1/messages"
    expect = capture["expect"]
    if expect["outcome"] == "error":
        assert seen.error is not None, "a failure that reads as success"
        assert (expect["error"].get("message") or "") in seen.error
        if mode == "streamed":
            assert seen.text == expect.get("text", "")
        return
    assert seen.error is None
    assert (seen.text, seen.reasoning) == (expect["text"], expect["reasoning"])
    assert [(c.id, c.name) for c in seen.calls] == [(c["id"], c["name"]) for c in expect["tool_calls"]]
    for call, wanted in zip(seen.calls, expect["tool_calls"], strict=True):
        assert same_arguments(call.arguments, wanted["arguments"])
    assert seen.usage == (expect["usage"]["input"], expect["usage"]["output"])
    assert seen.finish == expect["finish_reason"]
