"""Clients of Ollama over sockets: runs, errors, and answers that need no backend."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from bridge import ErrorCode, Failure, Reasoning, ToolCall
from bridge.dialects.ollama import dialect
from bridge.model import FinishReason, PartKind, RunFinished, UsageReported
from bridge.testing import Exchange, fake_backend
from tests.server.harness import ask, post, serving

from .helpers import HI, PNG, TOOL, front, lines, ollama

SAID = (Reasoning("Hmm."), "It is ", "sunny.", ToolCall("call_a", "look", '{"at": "sky"}'), UsageReported(3, 4))
CALL = {"id": "call_a", "function": {"index": 0, "name": "look", "arguments": {"at": "sky"}}}
TIMES = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


async def test_a_chat_streams_one_object_a_line() -> None:
    async with ollama() as (base, backend):
        backend.says(*SAID)
        read = lines(await post(f"{base}/api/chat", HI))
    assert all(each["model"] == "m" for each in read)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", each["created_at"]) for each in read)
    said = [each["message"] for each in read]
    assert {m["role"] for m in said} == {"assistant"}
    assert all(isinstance(m["content"], str) for m in said)
    assert [m["thinking"] for m in said if "thinking" in m] == ["Hmm."]
    assert said[0] == {"role": "assistant", "content": "", "thinking": "Hmm."}
    assert "".join(m["content"] for m in said) == "It is sunny."
    assert [m["tool_calls"] for m in said if "tool_calls" in m] == [[CALL]]
    assert [each["done"] for each in read] == [False] * (len(read) - 1) + [True]
    last = read[-1]
    assert last["message"] == {"role": "assistant", "content": ""}
    assert (last["done_reason"], last["prompt_eval_count"], last["eval_count"]) == ("stop", 3, 4)
    assert all(isinstance(last[name], int) for name in TIMES)
    assert last["total_duration"] >= last["eval_duration"] > 0
    assert not {"done_reason", *TIMES, "eval_count"} & read[0].keys()


@pytest.mark.parametrize("kind", [PartKind.TEXT, PartKind.REASONING])
def test_no_object_of_a_stream_has_a_character_that_ends_a_line_for_the_official_client(kind: PartKind) -> None:
    context = front()
    builder = context.builder()
    builder.flow(0, kind, "a\u2028b\x85c")
    builder.finish(FinishReason.STOP)
    builder.end()
    frames = [frame for frame in dialect.encoder(context).encode(builder.take()) if isinstance(frame, bytes)]
    assert all(len(frame.decode().splitlines()) == 1 for frame in frames)
    said = [json.loads(frame)["message"] for frame in frames]
    assert "".join(each["content"] or each.get("thinking", "") for each in said) == "a\u2028b\x85c"


async def test_a_whole_answer_is_the_fold_of_the_stream() -> None:
    async with ollama() as (base, backend):
        backend.says(*SAID)
        reply = await post(f"{base}/api/chat", {**HI, "stream": False})
    assert reply.headers["content-type"].startswith("application/json")
    assert reply.json["message"] == {
        "role": "assistant", "content": "It is sunny.", "thinking": "Hmm.", "tool_calls": [CALL],
    }  # fmt: skip
    assert (reply.json["done"], reply.json["done_reason"], reply.json["eval_count"]) == (True, "stop", 4)
    assert all(isinstance(reply.json[name], int) for name in TIMES)
    assert b"null" not in reply.body


@pytest.mark.parametrize("stream", [True, False])
async def test_generate_has_the_text_in_response(stream: bool) -> None:
    async with ollama() as (base, backend):
        backend.says(Reasoning("Hmm."), "Hel", "lo", UsageReported(3, 0))
        asked = {"model": "m", "prompt": "hi", "system": "Be brief.", "images": [PNG], "stream": stream}
        reply = await post(f"{base}/api/generate", asked)
        read = lines(reply) if stream else [reply.json]
        request = backend.requests[0]
    assert "".join(each["response"] for each in read) == "Hello"
    assert "".join(each.get("thinking", "") for each in read) == "Hmm."
    assert not any("message" in each for each in read)
    last = read[-1]
    assert (last["done"], last["done_reason"], last["context"]) == (True, "stop", [])
    assert last["prompt_eval_count"] == 3
    assert "eval_count" not in last, "a count of zero is left out"
    assert [message.role for message in request.messages] == ["system", "user"]
    assert len(request.messages[1].parts) == 2


@pytest.mark.parametrize("raw", [True, False])
async def test_raw_has_no_context(raw: bool) -> None:
    async with ollama() as (base, backend):
        backend.says("Hello")
        reply = await post(f"{base}/api/generate", {"model": "m", "prompt": "hi", "stream": False, "raw": raw})
    assert ("context" in reply.json) != raw


async def test_counts_that_nobody_reports_are_left_out() -> None:
    async with ollama() as (base, backend):
        backend.says("Hello")
        last = lines(await post(f"{base}/api/chat", HI))[-1]
    assert not {"prompt_eval_count", "eval_count"} & last.keys()


@pytest.mark.parametrize(
    ("path", "body", "said", "reason"),
    [
        ("chat", {"messages": []}, {"message": {"role": "assistant", "content": ""}}, "load"),
        ("chat", {}, {"message": {"role": "assistant", "content": ""}}, "load"),
        ("chat", {"messages": [], "keep_alive": 0}, {"message": {"role": "assistant", "content": ""}}, "unload"),
        ("chat", {"messages": [], "keep_alive": "0h0m"}, {"message": {"role": "assistant", "content": ""}}, "unload"),
        ("chat", {"messages": [], "keep_alive": "0m5s"}, {"message": {"role": "assistant", "content": ""}}, "load"),
        ("generate", {}, {"response": ""}, "load"),
        ("generate", {"prompt": "", "stream": True}, {"response": ""}, "load"),
        ("generate", {"keep_alive": "0s"}, {"response": ""}, "unload"),
        ("generate", {"keep_alive": -1}, {"response": ""}, "load"),
    ],
)
async def test_nothing_to_answer_loads_the_model(
    path: str, body: dict[str, Any], said: dict[str, Any], reason: str
) -> None:
    async with ollama() as (base, backend):
        reply = await post(f"{base}/api/{path}", {"model": "x:latest", **body})
        assert backend.seen == [], "no run"
    at = reply.json["created_at"]
    assert reply.headers["content-type"].startswith("application/json")
    assert reply.json == {"model": "x:latest", "created_at": at, **said, "done": True, "done_reason": reason}


async def test_think_false_shows_no_thinking() -> None:
    async with ollama() as (base, backend):
        backend.says(*SAID)
        reply = await post(f"{base}/api/chat", {**HI, "think": False})
        assert backend.requests[0].reasoning_effort == "none"
    assert b"thinking" not in reply.body
    assert "reasoning" in reply.headers.get("x-bridge-lost", "reasoning")


@pytest.mark.parametrize("arguments", ['{"at": "s', "[1]", '"sky"'])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_without_an_object_is_not_shown(arguments: str, stream: bool) -> None:
    async with ollama() as (base, backend):
        backend.says("Wait.", ToolCall("c1", "look", arguments), RunFinished(FinishReason.TOOL_CALLS))
        reply = await post(f"{base}/api/chat", {**HI, "stream": stream})
        last = lines(reply)[-1] if stream else reply.json
    assert b"tool_calls" not in reply.body
    assert (last["done"], last["done_reason"]) == (True, "length")


async def test_the_length_limit_is_told() -> None:
    async with ollama() as (base, backend):
        backend.says("Hel", RunFinished(FinishReason.LENGTH))
        assert lines(await post(f"{base}/api/chat", HI))[-1]["done_reason"] == "length"


@pytest.mark.parametrize("stream", [True, False])
async def test_what_a_filter_stops_is_an_error(stream: bool) -> None:
    async with ollama() as (base, backend):
        backend.says("Hel", RunFinished(FinishReason.CONTENT_FILTER))
        reply = await post(f"{base}/api/chat", {**HI, "stream": stream})
    if stream:
        *first, last = lines(reply)
        assert last.keys() == {"error"}
        assert not any(each["done"] for each in first)
    else:
        assert (reply.status, reply.json.keys()) == (400, {"error"})


@pytest.mark.parametrize("path", ["chat", "generate"])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_breaks_off_is_an_error(path: str, stream: bool) -> None:
    async with ollama() as (base, backend):
        backend.breaks_off("half")
        asked = {"model": "m", "prompt": "hi", "messages": HI["messages"], "stream": stream}
        reply = await post(f"{base}/api/{path}", asked)
    if stream:
        *first, last = lines(reply)
        assert last.keys() == {"error"}, "nothing else is in the last line, and there is none with done"
        assert not any(each["done"] for each in first)
    else:
        assert (reply.status, reply.json.keys()) == (502, {"error"})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.INVALID_REQUEST, 400),
        (ErrorCode.NOT_FOUND, 404),
        (ErrorCode.TOO_LARGE, 413),
        (ErrorCode.RATE_LIMITED, 429),
        (ErrorCode.OVERLOADED, 503),
        (ErrorCode.BACKEND_ERROR, 502),
    ],
)
async def test_failures_before_the_first_piece(code: ErrorCode, status: int, stream: bool) -> None:
    async with ollama() as (base, backend):
        backend.fails(Failure(code, "slow down", headers={"retry-after": "7"}))
        reply = await post(f"{base}/api/chat", {**HI, "stream": stream})
    assert (reply.status, reply.json.keys()) == (status, {"error"})
    assert "slow down" in reply.json["error"]
    assert reply.headers["retry-after"] == "7"


async def test_line_breaks_of_unicode_are_escaped() -> None:
    async with ollama() as (base, backend):
        backend.says("a\x85b\u2028c\u2029d", ToolCall("c1", "look", json.dumps({"a": "\x85"})))
        reply = await post(f"{base}/api/chat", HI)
    assert len(reply.body.decode().splitlines()) == reply.body.count(b"\n")
    assert "".join(each["message"]["content"] for each in lines(reply)) == "a\x85b\u2028c\u2029d"


async def test_a_silent_stream_gets_objects_and_no_blank_line() -> None:
    async with fake_backend() as backend:

        async def slow(exchange: Exchange) -> None:
            await asyncio.sleep(0.5)
            await exchange.stream(b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n')

        backend.plays(slow)
        config = {
            "server": {"keepalive": "100ms"},
            "backends": {"it": {"dialect": "openai-chat", "url": backend.url}},
            "routes": [{"dialect": "ollama", "path": "/", "backend": "it"}],
        }
        async with serving(config) as base:
            read = lines(await post(f"{base}/api/chat", HI))
    assert len(read) > 2
    assert read[0] == {**read[0], "message": {"role": "assistant", "content": ""}, "done": False}


async def test_the_name_is_the_one_that_was_sent() -> None:
    async with ollama() as (base, backend):
        backend.says("Hello")
        read = lines(await post(f"{base}/api/chat", {**HI, "model": "alpha:latest"}))
        assert backend.requests[0].model == "alpha"
    assert {each["model"] for each in read} == {"alpha:latest"}


@pytest.mark.parametrize("name", ["alpha", "alpha:latest", "ALPHA:Latest"])
@pytest.mark.parametrize("listed", ["alpha", "alpha:latest"])
async def test_a_name_with_or_without_its_tag(name: str, listed: str) -> None:
    async with ollama({"models": {listed: "it", "beta": "it"}}) as (base, backend):
        backend.says("Hello")
        assert lines(await post(f"{base}/api/chat", {**HI, "model": name}))[-1]["done"] is True
        shown = await post(f"{base}/api/show", {"model": name})
        assert shown.status == 200
        unknown = await post(f"{base}/api/chat", {**HI, "model": "nope"})
    assert unknown.status == 404
    assert unknown.json["error"].startswith("model 'nope' not found")


MODELS = {
    "data": [
        {"id": "alpha", "created": 1_700_000_000, "context_length": 100_000, "supported_parameters": ["tools"],
         "architecture": {"input_modalities": ["text", "image"]}},
        {"id": "vendor/beta", "supported_parameters": ["reasoning"]},
        {"id": "gamma:7b"},
    ]
}  # fmt: skip
DETAILS = {"parent_model", "format", "family", "families", "parameter_size", "quantization_level", "context_length"}


async def test_the_list_of_models() -> None:
    async with ollama() as (base, backend):
        backend.answers(200, json.dumps(MODELS).encode())
        reply = await ask("GET", f"{base}/api/tags")
        head = await ask("HEAD", f"{base}/api/tags")
    listed = reply.json["models"]
    assert head.status == 200
    assert [m["name"] for m in listed] == [m["model"] for m in listed] == ["alpha:latest", "vendor/beta", "gamma:7b"]
    for each in listed:
        assert isinstance(each["size"], int)
        assert re.fullmatch("[0-9a-f]{64}", each["digest"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", each["modified_at"])
        assert each["details"].keys() == DETAILS
        assert isinstance(each["details"]["families"], list)
    assert listed[0]["modified_at"] == "2023-11-14T22:13:20Z"
    assert [m["capabilities"] for m in listed] == [
        ["completion", "vision", "tools"], ["completion", "thinking"], ["completion", "vision", "tools"],
    ]  # fmt: skip


async def test_an_empty_list_and_one_that_fails() -> None:
    async with ollama({"models": {"alpha*": "it"}}) as (base, backend):
        backend.answers(200, b'{"data": []}')
        assert (await ask("GET", f"{base}/api/tags")).json == {"models": []}
        assert (await post(f"{base}/api/show", {"model": "alpha"})).status == 404
        backend.answers(500, b'{"error": {"message": "broken"}}')
        reply = await ask("GET", f"{base}/api/tags")
    assert (reply.status, reply.json.keys()) == (502, {"error"})


async def test_one_model() -> None:
    options = {"models": {"gamma:*": {"context": 5, "capabilities": ["thinking", "insert"]}}, "context_length": 9000}
    async with ollama({"backend": "it", "options": options}) as (base, backend):
        backend.answers(200, json.dumps(MODELS).encode())
        shown = {
            name: (await post(f"{base}/api/show", {key: name})).json
            for key, name in (("model", "alpha"), ("name", "vendor/beta"), ("model", "gamma:7b"))
        }
        copilot = await post(f"{base}/api/show", {"model": "alpha:latest"}, user_agent="GitHubCopilotChat/0.30")
        verbose = await post(f"{base}/api/show", {"model": "alpha", "verbose": True})
        missing = await post(f"{base}/api/show", {"model": "nope"})
        nothing = await post(f"{base}/api/show", {})
        unnamed = await post(f"{base}/api/show", {"model": "", "name": ""})
    for name, each in shown.items():
        assert each.keys() >= {"modelfile", "parameters", "template", "details", "model_info", "capabilities"}
        assert isinstance(each["capabilities"], list), name
    lengths = {n: each["model_info"][f"{each['model_info']['general.architecture']}.context_length"]
               for n, each in shown.items()}  # fmt: skip
    assert lengths == {"alpha": 100_000, "vendor/beta": 9000, "gamma:7b": 5}
    assert set(shown["alpha"]["capabilities"]) == {"completion", "tools", "vision"}
    assert shown["vendor/beta"]["capabilities"] == ["completion", "thinking"]
    assert shown["gamma:7b"]["capabilities"] == ["completion", "thinking", "insert"]
    assert shown["alpha"]["model_info"]["general.basename"] == "alpha"
    assert copilot.json["model_info"]["general.basename"] == "alpha:latest"
    assert verbose.status == 200
    assert (missing.status, missing.json) == (404, {"error": "model 'nope:latest' not found"})
    assert (nothing.status, nothing.json) == (400, {"error": "model: required, expected the name of a model."})
    assert (unnamed.status, unnamed.json) == (400, {"error": "model: expected the name of a model, got ''."})


async def test_a_key_sees_the_models_that_it_may_name() -> None:
    key = {"name": "ann", "key": "k" * 32, "models": ["alpha"]}
    async with ollama({"models": {"alpha": "it", "beta": "it"}}, auth={"keys": [key]}) as (base, backend):
        backend.answers(404, b"{}")
        sent = {"authorization": "Bearer " + "k" * 32}
        listed = await ask("GET", f"{base}/api/tags", headers=sent)
        shown = await post(f"{base}/api/show", {"model": "beta"}, **sent)
        loaded = await post(f"{base}/api/generate", {"model": "beta"}, **sent)
    assert [m["name"] for m in listed.json["models"]] == ["alpha:latest"]
    assert shown.status == 404
    assert loaded.status == 403


async def test_the_backend_of_a_model_tells_what_it_can_do() -> None:
    """A backend that carries no tools does not offer them; of others it is assumed."""
    async with fake_backend("openai-chat") as chat, fake_backend("ag-kit") as agent:
        for each in (chat, agent):
            each.answers(404, b"{}")
        config = {
            "backends": {
                "chat": {"dialect": "openai-chat", "url": chat.url},
                "agent": {"dialect": "agentscope-service", "url": agent.url, "options": {"agent_id": "a"}},
            },
            "routes": [{"dialect": "ollama", "path": "/", "models": {"one": "chat", "two": "agent"}}],
        }
        async with serving(config) as base:
            one = await post(f"{base}/api/show", {"model": "one"})
            two = await post(f"{base}/api/show", {"model": "two"})
    assert set(one.json["capabilities"]) == {"completion", "tools", "vision"}
    assert "tools" not in two.json["capabilities"]


async def test_answers_without_a_backend() -> None:
    async with ollama({"backend": "it", "options": {"version": "0.40.1"}}) as (base, backend):
        assert (await ask("GET", f"{base}/api/version")).json == {"version": "0.40.1"}
        assert (await ask("HEAD", f"{base}/api/version")).status == 200
        assert (await ask("GET", f"{base}/api/ps")).json == {"models": []}
        assert backend.seen == []
    async with ollama() as (base, _):
        version = (await ask("GET", f"{base}/api/version")).json["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4), "below, VS Code refuses it"


@pytest.mark.parametrize("path", ["/", "/local"])
async def test_the_root_says_that_it_runs(path: str) -> None:
    async with ollama(path=path) as (base, _):
        for method, accept in (("GET", "*/*"), ("HEAD", "*/*"), ("GET", "application/json")):
            reply = await ask(method, base or "/", headers={"accept": accept})
            assert reply.status == 200
            assert reply.headers["content-type"] == "text/plain; charset=utf-8"
            assert reply.body == (b"Ollama is running" if method == "GET" else b"")
        page = await ask("GET", base, headers={"accept": "text/html,application/xhtml+xml"})
    assert page.headers["content-type"].startswith("text/html" if path == "/" else "text/plain")


async def test_paths_below_the_route() -> None:
    async with ollama(path="/local") as (base, backend):
        backend.says("Hello")
        assert lines(await post(f"{base}/api/chat", HI))[-1]["done"] is True
        assert (await ask("GET", f"{base}/api/version")).status == 200
        assert (await post(f"{base}/api/generate", {"model": "m"})).json["done_reason"] == "load"
        assert (await post(f"{base}/api/push", {"model": "m"})).status == 501


async def test_unknown_addresses_and_methods_are_told_in_plain_text() -> None:
    async with ollama() as (base, _):
        missing = await ask("GET", f"{base}/api/nope")
        wrong = await ask("GET", f"{base}/api/chat")
    assert (missing.status, missing.headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert missing.body.startswith(b"404 page not found")
    assert (wrong.status, wrong.headers["content-type"]) == (405, "text/plain; charset=utf-8")
    assert wrong.body.startswith(b"405 method not allowed")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "push"), ("POST", "create"), ("POST", "copy"), ("DELETE", "delete"), ("POST", "blobs/sha256:00"),
    ],
)  # fmt: skip
async def test_the_management_of_models_is_refused(method: str, path: str) -> None:
    async with ollama() as (base, backend):
        reply = await ask(method, f"{base}/api/{path}", b'{"model": "m"}', {"content-type": "application/json"})
        assert backend.seen == []
    assert (reply.status, reply.json.keys()) == (501, {"error"})
    assert "does not manage models" in reply.json["error"]


async def test_a_blob_is_not_there() -> None:
    async with ollama() as (base, _):
        reply = await ask("HEAD", f"{base}/api/blobs/sha256:00")
    assert (reply.status, reply.body) == (404, b"")


async def test_a_model_that_is_served_needs_no_download() -> None:
    async with ollama({"models": {"alpha": "it"}}) as (base, backend):
        backend.answers(404, b"{}")
        streamed = await post(f"{base}/api/pull", {"model": "alpha:latest"})
        whole = await post(f"{base}/api/pull", {"name": "alpha", "stream": False})
        missing = await post(f"{base}/api/pull", {"model": "nope"})
    assert lines(streamed) == [{"status": "success"}]
    assert (whole.headers["content-type"], whole.json) == ("application/json", {"status": "success"})
    assert (missing.status, missing.json) == (404, {"error": "model 'nope:latest' not found"})


VECTORS = {
    "data": [{"index": 1, "embedding": [3, 4.5]}, {"index": 0, "embedding": [1, 2]}],
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}


async def test_embeddings_of_an_openai_backend() -> None:
    async with ollama() as (base, backend):
        backend.answers(200, json.dumps(VECTORS).encode())
        asked = {"model": "embed:latest", "input": ["a", "b"], "dimensions": 2, "truncate": True}
        reply = await post(f"{base}/api/embed", asked)
        few = await post(f"{base}/api/embed", {"model": "embed", "input": ["a", "b", "c"]})
        backend.answers(200, b'{"data": [{"index": 0, "embedding": [1, 2]}]}')
        one = await post(f"{base}/api/embeddings", {"model": "embed", "prompt": "a"})
        assert [(seen.path, seen.json["model"]) for seen in backend.seen] == [("/embeddings", "embed")] * 3
        assert backend.seen[0].json == {"model": "embed", "input": ["a", "b"], "dimensions": 2}
        assert backend.seen[2].json["input"] == ["a"]
        single = await post(f"{base}/api/embed", {"model": "embed", "input": "a"})
        wrong = await post(f"{base}/api/embed", {"model": "embed", "input": 5})
        backend.answers(400, b'{"error": {"message": "too long"}}')
        failed = await post(f"{base}/api/embed", asked)
        backend.answers(200, b'{"data": "none"}')
        broken = await post(f"{base}/api/embed", asked)
    assert reply.json["model"] == "embed:latest"
    assert reply.json["embeddings"] == [[1, 2], [3, 4.5]]
    assert reply.json["prompt_eval_count"] == 5
    assert reply.json["total_duration"] > 0
    assert isinstance(reply.json["load_duration"], int)
    assert one.json == {"embedding": [1, 2]}
    assert single.status == 200
    assert (few.status, few.json) == (502, {"error": "The backend's answer has 2 vectors for 3 texts."})
    assert (wrong.status, wrong.json.keys()) == (400, {"error"})
    assert (failed.status, failed.json) == (400, {"error": "too long"})
    assert (broken.status, broken.json.keys()) == (502, {"error"})


async def test_embeddings_of_an_ollama_backend() -> None:
    async with ollama(backend="ollama") as (base, backend):
        backend.answers(200, b'{"model":"e","embeddings":[[0.6,0.8]],"prompt_eval_count":3}')
        reply = await post(f"{base}/api/embed", {"model": "e", "input": "a"})
        assert (backend.seen[0].path, backend.seen[0].json) == ("/api/embed", {"model": "e", "input": ["a"]})
    assert (reply.json["embeddings"], reply.json["prompt_eval_count"]) == ([[0.6, 0.8]], 3)


async def test_a_backend_without_embeddings() -> None:
    async with ollama(backend="anthropic-messages") as (base, backend):
        reply = await post(f"{base}/api/embed", {"model": "m", "input": "a"})
        assert backend.seen == []
    assert (reply.status, reply.json) == (501, {"error": "No backend of this route has embeddings."})


async def test_bodies_as_curl_sends_them() -> None:
    async with ollama() as (base, backend):
        backend.says("Hello")
        reply = await ask(
            "POST", f"{base}/api/chat", json.dumps(HI).encode(), {"content-type": "application/x-www-form-urlencoded"}
        )
        assert lines(reply)[-1]["done"] is True
    async with ollama({"models": {"m": "it"}}) as (base, backend):
        backend.answers(404, b"{}")
        shown = await ask("POST", f"{base}/api/show", b'{"model": "nope"}', {"content-type": "text/plain"})
    assert (shown.status, shown.json.keys()) == (404, {"error"})


@pytest.mark.parametrize("body", [b"", b"{bad", b"[]", b'{"messages": []}', b'{"model": ""}', b'{"model": 5}'])
@pytest.mark.parametrize("path", ["chat", "generate"])
async def test_bad_bodies(path: str, body: bytes) -> None:
    async with ollama() as (base, backend):
        reply = await post(f"{base}/api/{path}", body)
        assert backend.seen == []
    assert (reply.status, reply.json.keys()) == (400, {"error"})


async def test_a_route_with_keys() -> None:
    async with ollama(auth={"keys": [{"name": "me", "key": "k" * 32}]}) as (base, backend):
        backend.says("Hello")
        refused = await post(f"{base}/api/chat", HI)
        taken = await post(f"{base}/api/chat", HI, authorization=f"Bearer {'k' * 32}")
    assert (refused.status, refused.json.keys()) == (401, {"error"})
    assert lines(taken)[-1]["done"] is True


async def test_pages_of_other_origins() -> None:
    async with ollama(cors={"origins": ["app://obsidian.md"]}) as (base, backend):
        reply = await ask("GET", f"{base}/api/tags", headers={"origin": "https://evil.example"})
        assert backend.seen == []
        allowed = await ask("GET", f"{base}/api/version", headers={"origin": "app://obsidian.md"})
    assert (reply.status, reply.json.keys()) == (403, {"error"})
    assert allowed.headers["access-control-allow-origin"] == "app://obsidian.md"


async def test_beside_a_route_of_chat_completions() -> None:
    """VS Code asks for tags and show, and then talks to the other API below the same base."""
    async with fake_backend("openai-chat") as backend:
        backend.says("Hello")
        config = {
            "backends": {"it": {"dialect": "openai-chat", "url": backend.url}},
            "routes": [
                {"dialect": "ollama", "path": "/", "models": {"m": "it"}},
                {"dialect": "openai-chat", "path": "/v1", "backend": "it"},
            ],
        }
        async with serving(config) as base:
            assert (await post(f"{base}/api/show", {"model": "m"})).json["capabilities"]
            said = await post(f"{base}/v1/chat/completions", HI)
            missing = await ask("GET", f"{base}/v1/nope")
    assert said.json["choices"][0]["message"]["content"] == "Hello"
    assert missing.json["error"]["code"] == "unknown_url"


async def test_a_client_that_leaves_ends_the_run() -> None:
    import aiohttp

    async with fake_backend() as backend:
        left = asyncio.Event()

        async def endless(exchange: Exchange) -> None:
            await exchange.head()
            await exchange.send(b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
            await exchange.left()
            left.set()

        backend.plays(endless)
        config = {
            "backends": {"it": {"dialect": "openai-chat", "url": backend.url}},
            "routes": [{"dialect": "ollama", "path": "/", "backend": "it"}],
        }
        async with serving(config) as base:
            async with aiohttp.ClientSession() as session, session.post(f"{base}/api/chat", json=HI) as response:
                assert json.loads(await response.content.readline())["message"]["content"] == "x"
            async with asyncio.timeout(10):
                await left.wait()


async def test_tools_and_an_agents_question() -> None:
    async with ollama() as (base, backend):
        backend.says(ToolCall("c1", "look", ""), ToolCall("c2", "look", '{"a": 1}'))
        read = lines(await post(f"{base}/api/chat", {**HI, "tools": [TOOL]}))
        assert [tool.name for tool in backend.requests[0].tools or ()] == ["look"]
    calls = [call for each in read for call in each["message"].get("tool_calls", ())]
    assert [(c["id"], c["function"]["index"], c["function"]["arguments"]) for c in calls] == [
        ("c1", 0, {}), ("c2", 1, {"a": 1}),
    ]  # fmt: skip
    assert read[-1]["done_reason"] == "stop"
