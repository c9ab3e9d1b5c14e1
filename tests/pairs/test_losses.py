"""Only what is lost is named as lost, no empty model is sent, and a refusal has one status for every client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import registry
from bridge.engine.config import parse
from bridge.engine.config.advice import warnings
from bridge.translation.library import Translator
from tests.pairs.clients import routes
from tests.pairs.test_conversations import chat_stream
from tests.server.harness import fake_backend, post, serving

TOOL = {"name": "set-color", "description": "d", "parameters": '{"type":"object","properties":{}}'}
FIRST = {"conversationId": "c1", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
SCOPE = {"input": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
BACKS = ["openai-chat", "openai-responses", "anthropic-messages", "aip", "ag-ui"]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def translated(back: str, front: str, body: dict[str, Any], **more: Any) -> tuple[Any, list[str]]:
    translator = Translator(back, front, **more)
    out = translator.request(json.dumps(body).encode(), client=front)
    return out, translator.lost


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize("body", [FIRST, {"messages": FIRST["messages"]}], ids=["named", "made up"])
def test_how_a_request_of_ag_kit_came_is_no_field(back: str, body: dict[str, Any]) -> None:
    assert "extras" not in translated(back, "ag-kit", body, model="m")[1]
    assert "extras" in translated(back, "ag-kit", {**body, "botId": "b"}, model="m")[1]
    second = {"threadId": "t", "runId": "r", "messages": []}
    if back != "ag-ui":
        assert "extras" not in translated(back, "ag-kit", second, model="m")[1]


@pytest.mark.parametrize("back", ["openai-chat", "openai-responses", "anthropic-messages"])
@pytest.mark.parametrize(("front", "body"), [("ag-kit", FIRST), ("agentscope", SCOPE)])
def test_an_unknown_model_is_not_sent(back: str, front: str, body: dict[str, Any]) -> None:
    assert "model" not in json.loads(translated(back, front, body)[0])
    assert json.loads(translated(back, front, body, model="m")[0])["model"] == "m"


def test_a_model_that_is_dropped_is_named() -> None:
    assert "model" in translated("ag-kit", "openai-chat", CHAT)[1]
    assert "model" not in translated("ag-kit", "agentscope", SCOPE)[1]


@pytest.mark.parametrize("front", ["/kit/send-message", "/scope/process"])
async def test_a_conversation_that_the_store_keeps_is_not_lost(front: str, tmp_path: Path) -> None:
    async with fake_backend() as backend:
        config = routes("openai-chat", f"{backend.url}/v1")
        config["routes"] = [*config["routes"], {**config["routes"][0], "dialect": "ag-kit", "path": "/kit"}]
        body = FIRST if "kit" in front else {**SCOPE, "session_id": "s"}
        backend.streams(*chat_stream({"content": "Hello"}))
        for store, lost in (("off", True), (f"sqlite:///{tmp_path}/talks.db", False)):
            async with serving({**config, "stores": {"history": store}}) as base:
                reply = await post(f"{base}{front}", body)
                assert reply.status == 200
                assert ("thread_id" in reply.headers.get("x-bridge-lost", "").split(",")) == lost


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("back", ["agentscope", "ag-kit", "openai-chat", "anthropic-messages", "openai-responses"])
async def test_a_refusal_has_one_status_for_every_client(back: str, status: int) -> None:
    fronts = {
        "openai-chat": ("/chat/completions", CHAT), "ag-kit": ("/send-message", FIRST),
        "anthropic-messages": ("/messages", {**CHAT, "max_tokens": 5}),
        "openai-responses": ("/responses", {"model": "m", "input": "hi"}),
    }  # fmt: skip
    seen = {}
    async with fake_backend() as backend:
        backend.answers(status, b'{"detail":"no such colour"}')
        table = [{"dialect": name, "path": f"/{name}", "backend": "it"} for name in fronts]
        config = {"backends": {"it": {"dialect": back, "url": backend.url, "model": "m"}}, "routes": table}
        async with serving(config) as base:
            for name, (path, body) in fronts.items():
                seen[name] = (await post(f"{base}/{name}{path}", body)).status
    assert seen == dict.fromkeys(fronts, status)


def config_of(front: str, **backend: Any) -> list[str]:
    data = {
        "backends": {"it": {"dialect": "openai-chat", "url": "http://127.0.0.1:1", **backend}},
        "routes": [{"dialect": front, "path": "/r", "backend": "it"}],
    }
    return warnings(parse(data))


def about_models(front: str, **backend: Any) -> list[str]:
    """The places of the warnings, but those about routes whose tasks a restart loses."""
    places = [warning.partition(":")[0] for warning in config_of(front, **backend)]
    return [place for place in places if not place.endswith(".durable")]


@pytest.mark.parametrize("front", [name for name in registry.called() if registry.get(name).served])
def test_a_route_without_a_model_anywhere_is_warned_of(front: str) -> None:
    if registry.get(front).over_grpc or front == "agent-runs":
        return
    named = registry.get(front).requires_model
    assert about_models(front) == ([] if named else ["routes[0]"])
    assert about_models(front, model="m") == []


def test_fields_that_say_nothing_are_no_loss() -> None:
    body = {"conversationId": "c", "messages": [{"role": "user", "content": "x"}], "tools": [], "context": []}
    assert "extras" not in translated("openai-chat", "ag-kit", body, model="m")[1]
    assert "extras" in translated("openai-chat", "ag-kit", {**body, "context": [1]}, model="m")[1]
    beside = {"logprobs": {"content": [], "refusal": None}, "finish_reason": "stop"}
    empty = {"choices": [{"index": 0, "delta": {}, **beside}]}
    translator = Translator("openai-chat", "ag-kit")
    translator.feed(b"data: %b\n\n" % json.dumps(empty).encode())
    assert "raw" not in translator.lost
