"""Compaction: one item that stands for a conversation, made by the model of any backend, understood by all of them."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from bridge.dialects.openai_responses.compaction import INSTRUCTION, RECALLED, pack, unpack
from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason, Reasoning, RunFinished, Text, ToolCall, ToolMode
from bridge.testing import FakeBackend, fake_backend
from tests.dialects.openai_responses.test_socket import BACKS, answer, connected, said, setup
from tests.server.harness import ask, post, serving

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
TALK: list[dict[str, Any]] = [
    said("Count the files."),
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "3"},
]


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "instructions": "Be brief.", "input": TALK, "tools": [TOOL], **fields}


def texts(backend: FakeBackend) -> list[str]:
    return ["".join(p.text for p in m.parts if isinstance(p, Text)) for m in backend.requests[-1].messages]


@pytest.mark.parametrize("back", BACKS)
async def test_the_endpoint(back: str) -> None:
    async with fake_backend(back) as backend, serving(setup(backend, back)) as base:
        backend.says(Reasoning("Hm."), Text("Three files."), Text(" All counted."))
        reply = await post(f"{base}/v1/responses/compact", asked(text={"format": {"type": "json_object"}}))
        (made,) = reply.json["output"]
        sent = backend.requests[-1]
        assert texts(backend)[-1] == INSTRUCTION
        assert sent.tools is not None
        assert sent.tool_choice is not None
        assert (sent.tool_choice.mode, sent.response_format) == (ToolMode.NONE, None)
        assert reply.json["object"] == "response.compaction"
        assert reply.json.keys() == {"id", "object", "created_at", "output", "usage"}
        assert (made["type"], unpack(made["encrypted_content"])) == ("compaction", "Three files. All counted.")
        # The next request begins with it.
        backend.says("As said.")
        await post(f"{base}/v1/responses", {"model": "m", "input": [made, said("How many?")]})
        assert f"{RECALLED}Three files. All counted." in "\n".join(texts(backend))


@pytest.mark.parametrize("back", BACKS)
async def test_a_trigger_in_a_stream(back: str) -> None:
    async with fake_backend(back) as backend, serving(setup(backend, back)) as base, connected(base) as socket:
        backend.says("Three files.")
        trigger = {"type": "compaction_trigger"}
        await socket.send_json({"type": "response.create", **asked(input=[*TALK, trigger])})
        events = await answer(socket)
    kinds = [e["type"] for e in events]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[3]["item"] == events[-1]["response"]["output"][0]
    assert unpack(events[3]["item"]["encrypted_content"]) == "Three files."


async def test_the_official_client() -> None:
    async with (
        fake_backend("openai-chat") as backend,
        serving(setup(backend)) as base,
        openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0) as client,
    ):
        backend.says("Three files.")
        made = await client.responses.compact(model="m", input="Count the files.")
        assert [item.type for item in made.output] == ["compaction"]
        assert made.usage.total_tokens >= 0
        backend.says("Yes.")
        await client.responses.create(model="m", input=[made.output[0].to_dict(), said("Again?")])  # type: ignore[list-item]
        assert texts(backend) == [f"{RECALLED}Three files.", "Again?"]


@pytest.mark.parametrize(
    ("turn", "status", "words"),
    [
        ([ToolCall("c2", "f", "{}")], 502, "wrote no summary"),
        ([Text("Thr"), RunFinished(FinishReason.LENGTH)], 502, "was cut"),
        (Failure(ErrorCode.CONTEXT_LENGTH, "too long"), 400, "too long"),
    ],
)
async def test_no_summary_is_a_failure(turn: Any, status: int, words: str) -> None:
    async with fake_backend("openai-chat") as backend, serving(setup(backend)) as base:
        backend.turns(turn)
        reply = await post(f"{base}/v1/responses/compact", asked())
        assert (reply.status, words in reply.json["error"]["message"]) == (status, True), reply.json
        streamed = await post(f"{base}/v1/responses", asked(input=[*TALK, {"type": "compaction_trigger"}], stream=True))
        assert b"response.completed" not in streamed.body
        assert words.encode() in streamed.body


async def test_the_trigger_comes_last_and_once() -> None:
    trigger = {"type": "compaction_trigger"}
    async with fake_backend("openai-chat") as backend, serving(setup(backend)) as base:
        for items in ([trigger, said("Hi")], [said("Hi"), trigger, trigger]):
            reply = await post(f"{base}/v1/responses", asked(input=items))
            assert (reply.status, reply.json["error"]["param"]) == (400, "input")
        reply = await post(f"{base}/v1/responses/compact", {"model": "m"})
        assert (reply.status, reply.json["error"]["param"]) == (400, "input")
        assert backend.requests == []


# ---------------------------------------------------------------------- items of others

FOREIGN = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAopaque"}


async def test_a_backend_of_the_dialect_gets_its_own_back() -> None:
    async with fake_backend("openai-responses") as backend, serving(setup(backend, "openai-responses")) as base:
        backend.says("Yes.")
        reply = await post(f"{base}/v1/responses", {"model": "m", "input": [FOREIGN, said("Go on")]})
        assert reply.status == 200
        assert "x-bridge-lost" not in reply.headers or "reasoning" not in reply.headers["x-bridge-lost"]
        assert backend.seen[-1].json["input"][0] == FOREIGN


@pytest.mark.parametrize("back", ["openai-chat", "anthropic-messages"])
async def test_other_backends_go_without_and_the_loss_is_named(back: str) -> None:
    async with fake_backend(back) as backend, serving(setup(backend, back)) as base:
        backend.says("Yes.")
        for content in ("gAAAAAopaque", pack("x")[:-1] + "!"):
            item = {**FOREIGN, "encrypted_content": content}
            reply = await post(f"{base}/v1/responses", {"model": "m", "input": [item, said("Go on")]})
            assert "reasoning_history" in reply.headers["x-bridge-lost"]
            assert [(m.role, len(m.parts)) for m in backend.requests[-1].messages] == [("user", 1)]
            assert "gAAAAAopaque" not in json.dumps(backend.seen[-1].json)


async def test_left_to_the_backend() -> None:
    made = {"type": "compaction", "id": "cmp_7", "encrypted_content": "theirs"}
    whole = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [made]}
    async with fake_backend() as backend:
        config = setup(backend, "openai-responses", route={"options": {"compaction": "backend"}})
        async with serving(config) as base:
            backend.answers(200, json.dumps(whole).encode())
            reply = await post(f"{base}/v1/responses/compact", asked())
            assert reply.json["output"] == [made]
            assert backend.seen[-1].json["input"][-1] == {"type": "compaction_trigger"}


# ---------------------------------------------------------------------- kept


async def test_a_stored_compaction_stands_for_what_was_said() -> None:
    async with (
        fake_backend("openai-chat") as backend,
        serving(setup(backend, stores={"history": "sqlite:///:memory:"})) as base,
    ):
        backend.says("Three files.")
        first = await post(f"{base}/v1/responses", {"model": "m", "input": "Count the files."})
        trigger = {"type": "compaction_trigger"}
        body = {"model": "m", "previous_response_id": first.json["id"], "input": [trigger]}
        second = await post(f"{base}/v1/responses", body)
        (made,) = second.json["output"]
        for more in (
            {"previous_response_id": second.json["id"], "input": "How many?"},
            {"input": [{"type": "item_reference", "id": made["id"]}, said("How many?")]},
        ):
            await post(f"{base}/v1/responses", {"model": "m", **more})
            assert texts(backend) == [f"{RECALLED}Three files.", "How many?"]
        reply = await post(f"{base}/v1/responses/compact", {"model": "m", "previous_response_id": second.json["id"]})
        assert reply.status == 200
        assert (await ask("GET", f"{base}/v1/responses/{reply.json['id']}")).status == 404, "it is not kept"
