"""What the cookbook promises of each recipe, through real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from bridge.dialects.mcp import dialect as mcp
from bridge.engine.bridge import Bridge
from bridge.engine.config import load
from bridge.errors import ErrorCode, Failure
from bridge.model import Interrupted, Text, ToolCall
from bridge.server import running
from tests.dialects.acp.test_socket import connected
from tests.dialects.agentscope_service.service import Service
from tests.dialects.langgraph.service import Server as LangGraphServer
from tests.docs import cookbook
from tests.docs.helpers import COMMAND, EXAMPLES, ROOT, USUAL, run
from tests.pairs.agents import AGENTS, Say
from tests.pairs.agents.runs import Runs
from tests.server.harness import Exchange, FakeBackend, ask, fake_backend, free_port, post, serving
from tests.server.issuer import Issuer, SigningKey

pytestmark = pytest.mark.slow

KEYS = {"WEB_KEY": "key-of-web", "FRIDAY_KEY": "key-of-friday"}
CHAT = b"""\
data: {"id":"x","choices":[{"index":0,"delta":{"content":"Hel"}}],"own":1}

data: {"id":"x","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}

data: [DONE]

"""


def _conversation(text: str, model: str = "m", **more: object) -> dict:
    return {"model": model, "messages": [{"role": "user", "content": text}], "stream": False, **more}


def _input(text: str) -> dict:
    return {"input": [{"role": "user", "type": "message", "content": [{"type": "text", "text": text}]}]}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations are kept in a file of the working directory."""
    monkeypatch.chdir(tmp_path)


def _chat_in(name: str) -> str:
    """The command of this recipe that talks with the bridge."""
    text = cookbook.whole()
    return re.compile(r"^dialect-bridge chat .*$", re.MULTILINE).search(text, text.index(f"configs/{name}.yaml"))[0]


@contextlib.asynccontextmanager
async def _recipe(name: str, **variables: str) -> AsyncIterator[str]:
    path = EXAMPLES / "configs" / f"{name}.yaml"
    config = load(path, server={"host": "127.0.0.1", "port": free_port()}, env=variables)
    async with running(Bridge.of(config)) as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def _agent() -> AsyncIterator[str]:
    """Something that answers as an AgentScope agent."""
    config = {
        "backends": {"demo": {"dialect": "demo"}},
        "routes": [{"dialect": "agentscope", "path": "/", "backend": "demo"}],
    }
    async with serving(config) as url:
        yield url


def _said(reply) -> str:
    return reply.json["choices"][0]["message"]["content"]


async def test_chat_over_an_agentscope_agent() -> None:
    async with _agent() as agent, _recipe("chat-to-agentscope", AGENTSCOPE_URL=agent) as url:
        reply = await post(f"{url}/v1/chat/completions", _conversation("reasoning"))
        message = reply.json["choices"][0]["message"]
        assert message["content"] == "The answer is 42."
        assert message["reasoning_content"].startswith("The user wants")
        told = _chat_in("chat-to-agentscope").replace("http://127.0.0.1:8081", url)
        done = await asyncio.to_thread(run, "bash", "-c", told)
        assert done.stdout == b"The answer is 42.\n", done.stderr


async def test_the_conversation_id_of_a_chat_request() -> None:
    async with fake_backend() as agent, _recipe("chat-to-agentscope", AGENTSCOPE_URL=agent.url) as url:
        agent.answers(500, b"{}")
        chat = f"{url}/v1/chat/completions"
        await post(chat, _conversation("a", metadata={"session_id": "one"}))
        await post(chat, _conversation("b"), x_session_id="two")
        await post(chat, _conversation("c"))
        await post(chat, _conversation("d"))
        one, two, three, four = (seen.json["session_id"] for seen in agent.seen)
        assert (one, two) == ("one", "two")
        assert three
        assert len({one, two, three, four}) == 4


@pytest.mark.parametrize("more", [{}, {"metadata": {"session_id": "one"}}], ids=["found by its content", "named"])
async def test_an_agent_gets_what_is_new_of_a_talk(more: dict[str, Any]) -> None:
    async with fake_backend() as backend, _recipe("chat-to-agentscope", AGENTSCOPE_URL=backend.url) as url:
        agent = AGENTS["agentscope"](backend)
        conversation = _conversation("a", **more)
        answer = (await post(f"{url}/v1/chat/completions", conversation)).json["choices"][0]["message"]
        conversation["messages"] += [answer, {"role": "user", "content": "b"}]
        assert _said(await post(f"{url}/v1/chat/completions", conversation)) == "ok"
        # The agent remembers: it would have heard twice what was sent twice.
        assert agent.heard[-1].conversation == [("user", "a"), ("assistant", "ok"), ("user", "b")]


async def test_chat_and_ag_ui_over_an_agent_service() -> None:
    async with (
        Service().listening() as service,
        _recipe("agentscope-service", AGENTSCOPE_SERVICE_URL=service.url) as url,
    ):
        reply = await post(f"{url}/v1/chat/completions", _conversation("Hi"))
        assert _said(reply) == "Hello, world."
        assert service.made[0]["chat_model_config"]["type"] == "openai_credential"
        message = {"id": "u1", "role": "user", "content": "Hi"}
        whole = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
        reply = await post(f"{url}/agui", {**whole, "messages": [message]})
        assert b"TEXT_MESSAGE_CONTENT" in reply.body
        assert b"RUN_FINISHED" in reply.body
        done = await asyncio.to_thread(run, "bash", "-c", _chat_in("agentscope-service").replace(USUAL, url))
        assert done.stdout == b"Hello, world.\n", done.stderr
        done = await asyncio.to_thread(run, COMMAND, "chat", service.url, "Hi", "--dialect", "agentscope-service")
        assert done.stdout == b"Hello, world.\n", done.stderr


async def test_chat_and_ag_ui_over_a_langgraph_server() -> None:
    async with LangGraphServer().listening() as server, _recipe("langgraph", LANGGRAPH_URL=server.url) as url:
        assert _said(await post(f"{url}/v1/chat/completions", _conversation("Hi"))) == "Hello, world!"
        assert server.bodies[0]["assistant_id"] == "agent"
        message = {"id": "u1", "role": "user", "content": "Hi"}
        whole = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
        reply = await post(f"{url}/agui", {**whole, "messages": [message]})
        assert b"TEXT_MESSAGE_CONTENT" in reply.body
        assert b"RUN_FINISHED" in reply.body
        done = await asyncio.to_thread(run, "bash", "-c", _chat_in("langgraph").replace(USUAL, url))
        assert done.stdout == b"Hello, world!\n", done.stderr
        done = await asyncio.to_thread(run, COMMAND, "chat", server.url, "Hi", "--dialect", "langgraph")
        assert done.stdout == b"Hello, world!\n", done.stderr


async def test_agentscope_over_a_chat_model() -> None:
    async with fake_backend() as model:
        model.streams(CHAT)
        variables = {"OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_API_KEY": "sk-1", "OPENAI_MODEL": "big"}
        async with _recipe("agentscope-to-chat", **variables) as url:
            reply = await post(f"{url}/agentscope/process", _input("Hi"))
        assert reply.body.rstrip().rpartition(b"\n\n")[2].startswith(b"data: {")
        assert b'"text":"Hello"' in reply.body
        (seen,) = model.seen
        assert (seen.path, seen.headers["authorization"]) == ("/v1/chat/completions", "Bearer sk-1")
        assert (seen.json["model"], seen.json["messages"]) == ("big", [{"role": "user", "content": "Hi"}])


async def test_a_chat_model_sees_the_talk_of_an_agentscope_frontend() -> None:
    async with fake_backend() as model, _recipe("agentscope-to-chat", OPENAI_BASE_URL=model.url) as url:
        model.streams(CHAT)
        for text in ("one", "two"):
            await post(f"{url}/agentscope/process", {**_input(text), "session_id": "s"})
        assert [[m["content"] for m in seen.json["messages"]] for seen in model.seen] == [
            ["one"],
            ["one", "Hello", "two"],
        ]


async def test_models_choose_the_backend() -> None:
    async with _agent() as agent, fake_backend() as model:
        model.streams(CHAT)
        async with _recipe("models", AGENTSCOPE_URL=agent, OPENAI_BASE_URL=model.url) as url:
            chat = f"{url}/v1/chat/completions"
            assert _said(await post(chat, _conversation("reasoning", "friday"))) == "The answer is 42."
            assert _said(await post(chat, _conversation("reasoning", "demo-1"))) == "The answer is 42."
            for asked in ("gpt-small", "gpt-5"):
                await post(chat, _conversation("Hi", asked, stream=True))
            assert [seen.json["model"] for seen in model.seen] == ["gpt-4o-mini", "gpt-5"]
            unknown = await post(chat, _conversation("Hi", "claude"))
            assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")
            listed = await ask("GET", f"{url}/v1/models")
            assert [entry["id"] for entry in listed.json["data"]] == ["friday"]


async def test_several_backends() -> None:
    async with fake_backend("openai-chat") as llm, fake_backend("anthropic-messages") as claude:
        claude.says("from claude")
        llm.fails(Failure(ErrorCode.OVERLOADED, "not now"))
        urls = {"OPENAI_BASE_URL": llm.url, "ANTHROPIC_BASE_URL": claude.url}
        async with _recipe("several", **urls, **KEYS) as url:
            key = {"authorization": "Bearer key-of-web"}
            assert _said(await post(f"{url}/v1/chat/completions", _conversation("Hi"), **key)) == "from claude"
            assert len(llm.seen) == 2, "its own two tries came first"
            assert claude.seen[0].json["model"] == "claude-sonnet-4-5"
            assert (await post(f"{url}/agentscope/process", _input("Hi"), **key)).status == 200


async def test_a_generator_in_every_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    async with _recipe("agent") as url:
        chat = f"{url}/v1/chat/completions"
        asked = _conversation("What is the weather in Paris?")
        message = (await post(chat, asked)).json["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("They ask for weather.", "Let me look.")
        (call,) = message["tool_calls"]
        assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
        asked["messages"] += [message, result]
        assert _said(await post(chat, asked)) == "It is sunny"
        reply = await post(f"{url}/agentscope/process", _input("What is the weather in Paris?"))
        for told in (b'"They ask for weather."', b'"Let me look."', b'"get_weather"', b'"type":"plugin_call"'):
            assert told in reply.body


async def test_keys() -> None:
    async with _recipe("keys", **KEYS) as url:
        chat, scope = (f"{url}/v1/chat/completions", _conversation("Hi")), (f"{url}/agentscope/process", _input("Hi"))
        for door in (chat, scope):
            assert (await post(*door)).status == 401
            assert (await post(*door, authorization="Bearer nonsense")).status == 401
            assert (await post(*door, authorization="Bearer key-of-web")).status == 200
            assert (await post(*door, x_api_key="key-of-web")).status == 200
        assert (await post(*chat, x_api_key="key-of-friday")).status == 200
        refused = await post(*scope, x_api_key="key-of-friday")
        assert refused.status == 403
        assert "detail" in refused.json
        assert "error" in (await post(*chat)).json


async def test_users_from_a_login_service() -> None:
    async with fake_backend() as backend:
        key = SigningKey()
        variables = {**KEYS, "JWKS_URL": Issuer(backend, key).url}
        async with _recipe("identity", **variables) as url:
            chat = f"{url}/v1/chat/completions"
            good = key.sign(aud="bridge", iss="our-login")
            assert (await post(chat, _conversation("Hi"), x_api_key="key-of-web")).status == 200
            assert (await post(chat, _conversation("Hi"), authorization=f"Bearer {good}")).status == 200
            other = await post(chat, _conversation("Hi"), authorization=f"Bearer {key.sign(aud='x', iss='our-login')}")
            assert (other.status, "another audience" in other.json["error"]["message"]) == (401, True)
            assert (await post(chat, _conversation("Hi"), x_user="alice")).status == 401


async def test_passthrough_is_byte_equal_and_the_rest_is_not() -> None:
    async def told(model: FakeBackend, url: str) -> bytes:
        model.streams(CHAT)
        return (await post(f"{url}/v1/chat/completions", _conversation("Hi", stream=True))).body

    async with fake_backend() as model:
        async with _recipe("passthrough", OPENAI_BASE_URL=model.url) as url:
            assert await told(model, url) == CHAT
        config = {
            "backends": {"llm": {"dialect": "openai-chat", "url": model.url}},
            "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "llm"}],
        }
        async with serving(config) as url:
            anew = await told(model, url)
            assert anew != CHAT
            assert b'"own":1' in anew


async def test_anthropic_clients_over_any_model_and_claude_for_chat_clients() -> None:
    said = {"type": "message", "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"}
    async with fake_backend() as model, fake_backend() as claude:
        variables = {"OPENAI_BASE_URL": f"{model.url}/v1", "ANTHROPIC_BASE_URL": claude.url, "OPENAI_MODEL": "m"}
        async with _recipe("anthropic", **variables) as url:
            model.streams(CHAT)
            reply = await post(f"{url}/v1/messages", {**_conversation("Hi", "claude-x"), "max_tokens": 9})
            assert (reply.json["content"], model.seen[0].json["model"]) == (
                [{"type": "text", "text": "Hello", "citations": []}],
                "m",
            )
            claude.answers(200, orjson.dumps(said))
            assert _said(await post(f"{url}/v1/chat/completions", _conversation("Hi", "claude-x"))) == "Hello"
            assert (claude.seen[0].path, claude.seen[0].json["model"]) == ("/v1/messages", "claude-x")
            counted = await post(f"{url}/v1/messages/count_tokens", _conversation("Hi"))
            assert counted.json["estimated"] is True


async def test_gemini_clients_over_any_model_and_gemini_for_chat_clients() -> None:
    said = {"candidates": [{"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP"}]}
    asked = {"contents": [{"parts": [{"text": "Hi"}]}]}
    async with fake_backend() as model, fake_backend() as google:
        variables = {"OPENAI_BASE_URL": f"{model.url}/v1", "GEMINI_BASE_URL": google.url, "OPENAI_MODEL": "m"}
        async with _recipe("gemini", **variables) as url:
            model.streams(CHAT)
            reply = await post(f"{url}/gemini/v1beta/models/gemini-x:generateContent", asked)
            assert reply.json["candidates"][0]["content"]["parts"] == [{"text": "Hello"}]
            assert model.seen[0].json["model"] == "m"
            google.answers(200, orjson.dumps(said))
            assert _said(await post(f"{url}/v1/chat/completions", _conversation("Hi", "gemini-x"))) == "Hello"
            assert google.seen[0].path == "/v1beta/models/gemini-x:generateContent"


async def test_programs_that_speak_only_ollama_over_any_model() -> None:
    listed = {"data": [{"id": "m", "supported_parameters": ["tools"]}]}
    async with fake_backend() as model, _recipe("ollama", OPENAI_BASE_URL=f"{model.url}/v1") as url:
        model.streams(CHAT)
        reply = await post(f"{url}/api/chat", _conversation("Hi", "m"))
        assert b'"content":"Hello"' in reply.body
        model.answers(200, orjson.dumps(listed))
        shown = (await post(f"{url}/api/show", {"model": "m"})).json
        assert shown["capabilities"] == ["completion", "tools"]
        assert shown["model_info"]["bridge.context_length"] == 128000


async def test_a2a_agents_and_clients() -> None:
    said = {
        "jsonrpc": "2.0",
        "id": "1",
        "result": {"message": {"messageId": "1", "role": "ROLE_AGENT", "parts": [{"text": "Hello"}]}},
    }
    asked = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}}
    async with fake_backend() as model, fake_backend() as agent:
        variables = {"OPENAI_BASE_URL": f"{model.url}/v1", "A2A_URL": agent.url, "OPENAI_MODEL": "m"}
        async with _recipe("a2a", **variables) as url:
            card = (await ask("GET", f"{url}/a2a/.well-known/agent-card.json")).json
            assert (card["name"], card["supportedInterfaces"][0]["url"]) == ("Helper", f"{url}/a2a")
            model.streams(CHAT)
            task = (await post(f"{url}/a2a/message:send", asked, a2a_version="1.0")).json["task"]
            assert task["artifacts"][0]["parts"] == [{"text": "Hello"}]
            found = await ask("GET", f"{url}/a2a/tasks/{task['id']}", headers={"a2a-version": "1.0"})
            assert found.json == task

            async def answer(exchange: Exchange) -> None:
                interface = {"url": agent.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
                is_card = exchange.seen.path == "/.well-known/agent-card.json"
                await exchange.answer(200, orjson.dumps({"supportedInterfaces": [interface]} if is_card else said))

            agent.plays(answer)
            assert _said(await post(f"{url}/v1/chat/completions", _conversation("Hi"))) == "Hello"


async def test_an_agentscope_agent_in_claude_code_as_a_tool() -> None:
    async with _agent() as agent, _recipe("mcp", AGENTSCOPE_URL=agent) as url:
        wire = mcp.example_call("ask_agent", "hello", stream=False)
        reply = await ask("POST", f"{url}/mcp", wire.body, dict(wire.headers))
        assert reply.json["result"]["content"][0]["text"].startswith("You said: hello")


async def test_the_result_of_a_call_for_a_client_of_a2a() -> None:
    page = cookbook.whole()
    (example,) = re.findall(r"```json\n(\{\n  \"messageId\".*?)```", page, re.DOTALL)
    answer = orjson.loads(example)
    call = ToolCall("call_1", "get_weather", "{}")
    asked = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "How is the weather?"}]}
    async with fake_backend("openai-chat") as model:
        model.turns([call], [Text("21 degrees.")])
        async with _recipe("a2a", OPENAI_BASE_URL=model.url) as url:
            task = (await post(f"{url}/a2a/message:send", {"message": asked}, a2a_version="1.0")).json["task"]
            assert task["status"]["message"]["metadata"]["interrupts"][0]["callId"] == "call_1"
            body = {"message": {**answer, "taskId": task["id"]}}
            task = (await post(f"{url}/a2a/message:send", body, a2a_version="1.0")).json["task"]
        assert task["artifacts"][-1]["parts"] == [{"text": "21 degrees."}]
        assert model.seen[-1].json["messages"][-1] == {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": '{"temperature":21}',
        }


@pytest.fixture
def npx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted agent in place of each package of npm."""
    script = tmp_path / "bin" / "npx"
    script.parent.mkdir()
    agent = ROOT / "tests" / "dialects" / "acp" / "scripted_agent.py"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{agent}"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("npx")
async def test_a_coding_agent_in_a_chat(tmp_path: Path) -> None:
    variables = {
        "BRIDGE_KEY": "key-of-team-123456",
        "WORK": str(tmp_path / "folder"),
        "ANTHROPIC_API_KEY": "sk-ant-1234567",
    }
    headers = {"authorization": "Bearer key-of-team-123456"}
    async with _recipe("claude-in-chat", **variables) as url:
        chat = f"{url}/v1/chat/completions"
        assert (await post(chat, _conversation("env"))).status == 401
        assert "ANTHROPIC_API_KEY" in _said(await post(chat, _conversation("env"), **headers))
        assert f"{tmp_path}/folder/team " in _said(await post(chat, _conversation("where"), **headers))
        talk = _conversation("ask")
        asked = _said(await post(chat, talk, **headers))
        assert "rm -r build" in asked
        talk["messages"] += [{"role": "assistant", "content": asked}, {"role": "user", "content": "yes"}]
        assert _said(await post(chat, talk, **headers)) == "Chosen: id-allow_once"


@pytest.mark.usefixtures("npx")
async def test_a_coding_agent_for_a2a(tmp_path: Path) -> None:
    variables = {"BRIDGE_KEY": "key-of-planner-123456", "WORK": str(tmp_path / "folder"), "CODEX_API_KEY": "sk-1234567"}
    headers = {"authorization": "Bearer key-of-planner-123456"}

    async def send(url: str, text: str, **more: Any) -> dict[str, Any]:
        message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}], **more}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        return (await post(f"{url}/codex", body, **headers, a2a_version="1.0")).json["result"]["task"]

    async with _recipe("codex-a2a", **variables) as url:
        task = await send(url, "ask")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        done = await send(url, "yes", taskId=task["id"], contextId=task["contextId"])
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        assert "Chosen: id-allow_once" in str(done)


async def test_a_page_with_use_chat() -> None:
    go_on = asyncio.Event()

    async def play(exchange: Exchange) -> None:
        first, rest = CHAT.split(b"\n\n", 1)
        await exchange.head()
        await exchange.send(first + b"\n\n")
        await go_on.wait()
        await exchange.send(rest)
        await exchange.end()

    async with fake_backend() as model, _recipe("ai-sdk-ui", OPENAI_BASE_URL=model.url) as url:
        model.plays(play)
        message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
        chat = {"id": "c1", "trigger": "submit-message", "messages": [message]}
        asking = asyncio.create_task(post(f"{url}/api/chat", chat))
        while not model.seen:
            await asyncio.sleep(0.01)
        async with aiohttp.ClientSession() as http, http.get(f"{url}/api/chat/c1/stream") as reading:
            begun = await reading.content.readline()
            go_on.set()
            resumed = begun + await reading.content.read()
        reply = await asking
        assert b'"delta":"lo"' in reply.body
        assert resumed == reply.body
        assert (await ask("GET", f"{url}/api/chat/c1/stream")).status == 204


async def test_an_agent_in_an_editor() -> None:
    async with fake_backend("agentscope") as agent, _recipe("acp", AGENTSCOPE_URL=agent.url) as url:
        agent.turns([Interrupted("q1", "approval", {"message": "Write?"}, "q1")], ["Written."])
        async with connected(url) as editor:
            assert (await editor.prompt(await editor.new(), "Write it."))["stopReason"] == "end_turn"
            assert [method for method, _ in editor.asked] == ["session/request_permission"]
            assert editor.said() == "Written."
            assert len((await editor.call("session/list"))["sessions"]) == 1


async def test_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    async with _recipe("stage") as url:
        assert _said(await post(f"{url}/v1/chat/completions", _conversation("Hello"))).startswith("YOU SAID: HELLO")


async def test_headers_that_readme_names() -> None:
    async with _agent() as agent, _recipe("chat-to-agentscope", AGENTSCOPE_URL=agent) as url:
        reply = await post(f"{url}/v1/chat/completions", _conversation("server tool"), x_request_id="mine-1")
        assert reply.headers["x-bridge-lost"] == "tool_result"
        assert reply.headers["x-request-id"] == "mine-1"
        assert (await ask("GET", f"{url}/healthz")).status == 200
        assert (await ask("GET", f"{url}/readyz")).status == 200


async def test_a_run_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    body = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Hi"}], "tools": [],
            "context": [], "state": {}, "forwardedProps": {}}  # fmt: skip
    async with fake_backend() as model, _recipe("durable", OPENAI_BASE_URL=model.url) as url:
        model.streams(CHAT)
        whole = (await post(f"{url}/ag-ui", body)).body
        first, rest = whole.split(b"\n\n", 1)
        last = first.split(b"\n")[0].removeprefix(b"id: ").decode()
        assert (await post(f"{url}/ag-ui", body, last_event_id=last)).body == rest
        assert (await post(f"{url}/ag-ui", {**body, "state": 1})).status == 409
        assert len(model.seen) == 1


async def test_runs_to_chat() -> None:
    async with fake_backend() as backend:
        agent = Runs(backend)
        agent.brain = lambda heard: [Say("Sunny")]
        async with _recipe("runs-to-chat", AGENT_URL=backend.url, AGENT_KEY="backend-key") as base:
            reply = await post(f"{base}/v1/chat/completions", _conversation("Weather?"))
        assert reply.json["choices"][0]["message"]["content"] == "Sunny"
        assert agent.heard[0].conversation == [("user", "Weather?")]
