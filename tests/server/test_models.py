"""What frontends learn of the models: names that people can read, the context length, and abilities."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import orjson
import pytest

from tests.server.harness import ask, fake_backend, serving

OPENROUTER = {
    "id": "vendor/big",
    "name": "Vendor: Big",
    "created": 5,
    "context_length": 131072,
    "architecture": {"modality": "text+image->text", "input_modalities": ["text", "image"]},
    "supported_parameters": ["tools", "temperature", "reasoning"],
}
MISTRAL = {
    "id": "small",
    "object": "model",
    "name": "Small 3",
    "max_context_length": 32768,
    "capabilities": {"completion_chat": True, "function_calling": True, "vision": False},
}
VLLM = {"id": "local", "object": "model", "owned_by": "vllm", "max_model_len": 4096}
PLAIN = {"id": "plain", "object": "model", "name": "", "context_length": -1, "capabilities": 7, "architecture": []}
LISTED = [OPENROUTER, MISTRAL, VLLM, PLAIN]


def config(url: str, **backend: Any) -> dict[str, Any]:
    return {
        "backends": {"it": {"dialect": "openai-chat", "url": url, **backend}},
        "routes": [
            {"dialect": "openai-chat", "path": "/chat", "backend": "it"},
            {"dialect": "anthropic-messages", "path": "/claude/v1", "backend": "it"},
            {"dialect": "openai-chat", "path": "/named", "models": {"friday": "it", "local": "it"}},
        ],
    }


async def test_what_backends_of_several_kinds_tell() -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.answers(200, orjson.dumps({"object": "list", "data": LISTED}))
        big, small, local, plain = (await ask("GET", f"{base}/chat/models")).json["data"]
        assert big == {
            "id": "vendor/big", "object": "model", "created": 5, "owned_by": "unknown", "name": "Vendor: Big",
            "context_length": 131072, "architecture": {"input_modalities": ["text", "image"]},
            "supported_parameters": ["reasoning", "tools"],
        }  # fmt: skip
        assert (small["name"], small["context_length"]) == ("Small 3", 32768)
        assert (small["architecture"]["input_modalities"], small["supported_parameters"]) == (["text"], ["tools"])
        assert local == {"id": "local", "object": "model", "created": 0, "owned_by": "vllm", "context_length": 4096}
        assert plain == {"id": "plain", "object": "model", "created": 0, "owned_by": "unknown"}
        assert (await ask("GET", f"{base}/chat/models/vendor/big/")).json == big
        async with openai.AsyncOpenAI(base_url=f"{base}/chat", api_key="x") as sdk:
            assert (await sdk.models.retrieve("vendor/big")).model_extra["name"] == "Vendor: Big"  # type: ignore[index]


async def test_messages_clients_see_names_and_lengths() -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.answers(200, orjson.dumps({"object": "list", "data": LISTED}))
        async with anthropic.AsyncAnthropic(base_url=f"{base}/claude", api_key="x") as sdk:
            listed = [m async for m in sdk.models.list()]
        seen = [(m.id, m.display_name, m.max_input_tokens) for m in listed]
        assert seen[0] == ("vendor/big", "Vendor: Big", 131072)
        assert seen[2:] == [("local", "local", 4096), ("plain", "plain", None)]


async def test_a_configured_name_is_told_what_its_model_is() -> None:
    async with fake_backend() as backend, serving(config(backend.url, model_map={"friday": "vendor/big"})) as base:
        backend.answers(200, orjson.dumps({"object": "list", "data": LISTED}))
        friday, local = (await ask("GET", f"{base}/named/models")).json["data"]
        assert (friday["id"], friday["name"], friday["context_length"]) == ("friday", "Vendor: Big", 131072)
        assert (local["id"], local["context_length"]) == ("local", 4096)


async def test_an_empty_list_is_empty_and_a_backend_without_a_list_is_a_model() -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.answers(200, b'{"object": "list", "data": []}')
        assert (await ask("GET", f"{base}/chat/models")).json["data"] == []
        for status in (404, 405, 501):
            backend.answers(status, b"{}")
            assert [m["id"] for m in (await ask("GET", f"{base}/chat/models")).json["data"]] == ["it"]
        backend.answers(500, b"{}")
        assert (await ask("GET", f"{base}/chat/models")).status == 502


@pytest.mark.parametrize("status", [404, 500])
async def test_configured_names_are_listed_without_the_backend(status: int) -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.answers(status, b"{}")
        reply = await ask("GET", f"{base}/named/models")
        assert [m["id"] for m in reply.json["data"]] == ["friday", "local"]
