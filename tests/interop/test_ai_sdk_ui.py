"""Six builds of the AI SDK as frontends, three as route handlers behind the bridge, and Pydantic AI's own server of it.

The builds that end in `strict` are the last of each version that refuse a chunk with an unknown field.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings

from bridge.contract import Feature
from bridge.model import Builder, Event, FinishReason, Interrupted, PartKind, Text, ToolCall, fold
from bridge.testing.strategies import answers
from bridge.testing.witnesses import ANSWERS, answer_of
from bridge.translation.framing.sse import join
from tests.dialects.ai_sdk_ui.helpers import FrontOptions, asked, context, dialect
from tests.docs.helpers import server
from tests.interop.client import Driver
from tests.interop.test_pydantic_ai import PYTHON, SCRIPT
from tests.pairs.test_signatures import LATER, PARALLEL, marks, signing
from tests.server.harness import ask, fake_backend, post, serving

pytestmark = pytest.mark.interop

FOLDER = Path(__file__).parent / "ai-sdk-ui"
BUILDS = ("ai-5-strict", "ai-5", "ai-6-strict", "ai-6", "ai-7-strict", "ai-7")
SERVERS = ("ai-5", "ai-6", "ai-7")
WEATHER = {"get_weather": {"temp": 21}}
builds = pytest.mark.parametrize("build", BUILDS)
generated = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def read(chats: Driver, build: str, events: list[Event], **more: Any) -> dict[str, Any]:
    """What a chat makes of the stream of these events."""
    encoder = dialect.encoder(context(FrontOptions(ui_version=int(build[3]))))
    body = join(encoder.encode(events))
    command = {"build": build, "url": "http://127.0.0.1/api/chat", "say": "hi", "body": base64.b64encode(body).decode()}
    seen = chats.play_now({**command, **more})
    assert "broke" not in seen, seen
    return seen


def parts(seen: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    message = seen["messages"][-1]
    return [p for p in message["parts"] if p["type"].startswith(kind)] if message["role"] == "assistant" else []


def text(seen: dict[str, Any]) -> str:
    return "".join(p["text"] for p in parts(seen, "text"))


# ---------------------------------------------------------------------- what the bridge writes


@builds
@pytest.mark.parametrize("feature", list(ANSWERS))
def test_a_chat_reads_every_feature(chats: Driver, build: str, feature: Feature) -> None:
    seen = read(chats, build, answer_of(feature))
    assert (seen["status"], seen.get("error")) == ("ready", None)
    assert len(seen["requests"]) == 1, "the chat sent by itself what nobody had to send"


@builds
def test_a_chat_reads_every_answer(chats: Driver, build: str) -> None:
    @generated
    @given(events=answers())
    def check(events: list[Event]) -> None:
        answer = fold(events)
        # A call with arguments that are no JSON, and its error, are sent back for the model to read.
        seen = read(chats, build, events, auto=False)
        failed = answer.failure is not None
        assert (seen["status"], seen.get("error") is not None) == ("error" if failed else "ready", failed), seen
        assert len([m for m in seen["messages"] if m["role"] == "assistant"]) <= 1
        if not failed and answer.reason is not FinishReason.CANCELED:
            words = [p.text for m in answer.messages if answer.choice_of(m) == 0 for p in m.parts if hasattr(p, "text")]
            assert len(text(seen)) <= len("".join(words))

    check()


@builds
def test_results_of_the_server_are_not_sent_back(chats: Driver, build: str) -> None:
    builder = context().builder()
    builder.add(0, ToolCall("c1", "get_time", "{}"))
    builder.result("c1", [Text('{"time": "12:34"}')])
    builder.flow(0, PartKind.TEXT, "half past twelve")
    builder.finish()
    builder.end()
    seen = read(chats, build, builder.take())
    assert (len(seen["requests"]), text(seen)) == (1, "half past twelve")
    (call,) = parts(seen, "tool-")
    assert (call["state"], call["output"]) == ("output-available", {"time": "12:34"})


@builds
async def test_the_signatures_of_geminis_calls_come_back(chats: Driver, build: str) -> None:
    async with signing("ai-sdk-ui") as (base, backend):
        command = {"build": build, "url": f"{base}/v1", "say": "Hi", "outputs": {"f": "ok"}}
        seen = await chats.play(command)
        assert (seen["status"], text(seen), len(backend.seen)) == ("ready", "It is done.", 3), seen
        assert marks(backend) == [[PARALLEL, None], [LATER]]


@builds
def test_half_a_call_is_run_by_nobody(chats: Driver, build: str) -> None:
    for end in ("fail", "cancel"):
        builder = context().builder()
        builder.open_part("c", 0, PartKind.TOOL_CALL, call_id="c1", name="get_weather")
        builder.delta("c", '{"city": "P')
        if end == "cancel":
            builder.finish(FinishReason.CANCELED)
        builder.end()
        seen = read(chats, build, builder.take(), outputs=WEATHER)
        assert (seen["handled"], len(seen["requests"])) == ([], 1)
        assert seen["status"] == ("error" if end == "fail" else "ready")


# ---------------------------------------------------------------------- chats with the bridge


def config(backend: dict[str, Any], **route: Any) -> dict[str, Any]:
    front = {"dialect": "ai-sdk-ui", "path": "/api/chat", "backend": "it", **route}
    return {
        "backends": {"it": backend},
        "routes": [front, {"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
    }


@builds
async def test_a_chat_with_the_bridge(chats: Driver, build: str) -> None:
    async with serving(config({"dialect": "demo"}, options={"ui_version": int(build[3])})) as base:
        url = f"{base}/api/chat"

        async def say(words: str, **more: Any) -> dict[str, Any]:
            return await chats.play({"build": build, "url": url, "say": words, **more})

        seen = await say("reasoning")
        assert (seen["status"], text(seen)) == ("ready", "The answer is 42.")
        assert "".join(p["text"] for p in parts(seen, "reasoning")).startswith("The user wants")
        assert seen["messages"][-1]["metadata"]["usage"]["outputTokens"] == 34
        seen = await say("tool", outputs=WEATHER)
        assert (seen["status"], seen["handled"], len(seen["requests"])) == ("ready", ["get_weather"], 2), seen
        assert [m["role"] for m in seen["messages"]] == ["user", "assistant"], "the answer goes on in the message"
        assert "21" in text(seen)
        seen = await say("tools", outputs=WEATHER)
        assert (len(seen["requests"]), [p["state"] for p in parts(seen, "tool-")]) == (2, ["output-available"] * 2)
        seen = await say("server tool")
        assert (len(seen["requests"]), text(seen)) == (1, "It is sunny in Paris, 21 C.")
        seen = await say("image")
        assert next(p["mediaType"] for p in parts(seen, "file")) == "image/png"
        seen = await say("error late")
        assert (seen["status"], text(seen)) == ("error", "Half an ans")
        seen = await say("error")
        assert seen["status"] == "error"
        assert seen["requests"][0]["method"] == "POST"
        seen = await say("slow", stopAt=2)
        assert (seen["status"], seen["isAbort"]) == ("ready", True)


@pytest.mark.parametrize("build", [b for b in BUILDS if "5" not in b])
async def test_a_chat_approves_a_call(chats: Driver, build: str) -> None:
    """The question of one run, answered by the next request, in the message of the first."""
    async with (
        running(build.removesuffix("-strict")) as url,
        serving(config({"dialect": "ai-sdk-ui", "url": url})) as base,
    ):
        for approve in (True, False):
            command = {"build": build, "url": f"{base}/api/chat", "say": "delete", "approve": approve}
            seen = await chats.play(command)
            assert (seen["status"], len(seen["requests"])) == ("ready", 2), seen
            (call,) = parts(seen, "tool-")
            assert call["state"] == ("output-available" if approve else "output-denied")
            assert [m["role"] for m in seen["messages"]] == ["user", "assistant"]
            assert text(seen).startswith("it is ")


@builds
async def test_the_next_words_of_a_chat_answer_a_question(chats: Driver, build: str) -> None:
    async with fake_backend("ag-ui") as agent:
        agent.turns([Interrupted("q", "input_required", "Which?")], [Text("Well.")], [Text("Bye.")])
        async with serving(config({"dialect": "ag-ui", "url": agent.url})) as base:
            command = {"build": build, "url": f"{base}/api/chat", "id": "chat-1"}
            seen: dict[str, Any] = {"messages": []}
            for words in ("hi", "red", "bye"):
                seen = await chats.play({**command, "say": words, "messages": seen["messages"]})
                assert (seen["status"], seen.get("error"), len(seen["requests"])) == ("ready", None, 1), seen
            assert text(seen) == "Bye."
        answers = [request.json.get("resume") for request in agent.seen]
        assert answers == [None, [{"interruptId": "q", "status": "resolved", "payload": "red"}], None]


@builds
async def test_a_chat_comes_back_to_a_run(chats: Driver, build: str) -> None:
    async with serving(config({"dialect": "demo"}, durable=True)) as base:
        url = f"{base}/api/chat"
        command = {"build": build, "url": url, "id": "chat-1"}
        nothing = await chats.play({**command, "resume": True})
        assert (nothing["status"], nothing["requests"][0]["url"]) == ("ready", f"{url}/chat-1/stream")
        left = await chats.play({**command, "say": "slow", "stopAt": 2})
        assert left["status"] == "ready"
        seen = await chats.play({**command, "resume": True})
        assert seen["status"] == "ready"
        assert text(seen).startswith(text(left))
        assert len(text(seen)) > len(text(left)), "the run went on"
        assert seen["messages"][-1]["id"] == left["messages"][-1]["id"]


# ---------------------------------------------------------------------- servers behind the bridge


class running:
    """A route handler of this build; its address."""

    def __init__(self, build: str) -> None:
        command = ["node", "server.mjs", build]
        self._process = subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.PIPE, text=True)

    async def __aenter__(self) -> str:
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        assert port, "the server of the AI SDK did not start"
        return f"http://127.0.0.1:{port}/"

    async def __aexit__(self, *gone: object) -> None:
        self._process.kill()
        self._process.communicate()


def chat(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)}


def user(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


@pytest.mark.parametrize("build", SERVERS)
async def test_a_client_of_another_dialect_talks_to_a_route_handler(chats: Driver, build: str) -> None:
    async with running(build) as url, serving(config({"dialect": "ai-sdk-ui", "url": url})) as base:
        completions = f"{base}/v1/chat/completions"
        whole = (await post(completions, chat({"role": "system", "content": "Be brief."}, user("hi")))).json
        assert whole["choices"][0]["message"]["content"] == "hello"
        assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (12, 34)
        prompt = (await ask("GET", f"{url}prompt")).json
        assert [m["role"] for m in prompt] == ["user"]
        assert prompt[0]["content"][0]["text"].startswith("Be brief.")
        offers = {
            "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
        }
        refused = await post(completions, chat(user("weather")))
        assert refused.json["error"]["code"] == "backend_protocol", "nobody runs this call"
        asked_for = (await post(completions, {**chat(user("weather")), **offers})).json["choices"][0]
        assert asked_for["finish_reason"] == "tool_calls"
        (call,) = asked_for["message"]["tool_calls"]
        assert orjson.loads(call["function"]["arguments"]) == {"city": "Paris"}
        result = {"role": "tool", "tool_call_id": call["id"], "content": '{"temp": 21}'}
        answered = (await post(completions, chat(user("weather"), asked_for["message"], result))).json
        assert "21" in answered["choices"][0]["message"]["content"]
        ran = (await post(completions, chat(user("time")))).json["choices"][0]["message"]
        assert ("12:34" in ran["content"], ran.get("tool_calls")) == (True, None)
        thought = (await post(completions, chat(user("think")))).json["choices"][0]["message"]
        assert (thought["content"], thought["reasoning_content"]) == ("42", "weigh it")
        failed = await post(completions, chat(user("fail")))
        assert failed.status == 502
        assert "overloaded" in failed.json["error"]["message"]


@pytest.mark.parametrize("build", SERVERS)
async def test_a_chat_with_a_route_handler_through_the_bridge(chats: Driver, build: str) -> None:
    async with running(build) as url, serving(config({"dialect": "ai-sdk-ui", "url": url})) as base:
        command = {"build": build, "url": f"{base}/api/chat"}
        seen = await chats.play({**command, "say": "think"})
        (thought,) = parts(seen, "reasoning")
        assert thought["providerMetadata"] == {"anthropic": {"signature": "c2ln"}}
        seen = await chats.play({**command, "say": "hi", "messages": seen["messages"]})
        prompt = (await ask("GET", f"{url}prompt")).json
        (kept,) = [p for m in prompt for p in m["content"] if p["type"] == "reasoning"]
        assert kept["providerOptions"] == {"anthropic": {"signature": "c2ln"}}, "it came back where it came from"
        seen = await chats.play({**command, "say": "weather", "outputs": WEATHER})
        assert (len(seen["requests"]), [m["role"] for m in seen["messages"]]) == (2, ["user", "assistant"]), seen
        seen = await chats.play({**command, "say": "time"})
        assert (len(seen["requests"]), "12:34" in text(seen)) == (1, True)
        seen = await chats.play({**command, "say": "fail"})
        assert (seen["status"], seen["error"], text(seen)) == ("error", "overloaded", "half")


@pytest.fixture(scope="module")
def pydantic_ai(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert PYTHON.exists(), "Pydantic AI is not installed: make interop"
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("agent")
        running = stack.enter_context(server(folder, str(PYTHON), str(SCRIPT), "{port}", ready="/health"))
        yield running.url


@pytest.mark.parametrize("build", ["ai-6", "ai-7"])
async def test_pydantic_ai_behind_the_bridge(chats: Driver, pydantic_ai: str, build: str) -> None:
    backend = {"dialect": "ai-sdk-ui", "url": f"{pydantic_ai}/chat"}
    async with serving(config(backend)) as base:
        hello = {"role": "user", "content": "hello"}
        whole = (
            await post(f"{base}/v1/chat/completions", chat({"role": "system", "content": "Be brief."}, hello))
        ).json
        assert whole["choices"][0]["message"]["content"], whole
        seen = await chats.play({"build": build, "url": f"{base}/api/chat", "say": "hello"})
        assert (seen["status"], bool(text(seen))) == ("ready", True), seen
        again = await chats.play(
            {"build": build, "url": f"{base}/api/chat", "say": "more", "messages": seen["messages"]}
        )
        assert again["status"] == "ready", again


def test_the_message_that_goes_on_is_named(chats: Driver) -> None:
    body = {"id": "c", "messages": [{"id": "m1", "role": "assistant", "parts": []}]}
    request = asked(body)
    encoder = dialect.encoder(context(FrontOptions(), request))
    builder: Builder = context().builder()
    builder.start()
    assert b'"messageId":"m1"' in encoder.encode(builder.take())[0]
