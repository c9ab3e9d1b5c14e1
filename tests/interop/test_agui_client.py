"""The official AG-UI client, today's and the last of 0.x, in front of a backend of every dialect."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.run.backends.demo_backend import PICTURE
from tests.interop.backends import AGENTS, QUESTION, Agent, reasoning, run, text
from tests.interop.conftest import MakeFrontend
from tests.server.harness import Exchange, fake_backend, serving

pytestmark = pytest.mark.interop

TOOL = {
    "name": "get_weather",
    "description": "Current weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TALK = [("I am Ann", "Hello Ann"), ("Who am I?", "You are Ann"), ("Sure?", "Yes: 你好 \u2028 😀")]
PICTURE_PART = {"type": "image", "source": {"type": "data", "value": PICTURE, "mimeType": "image/png"}}


def agents(able: str | None = None) -> pytest.MarkDecorator:
    """Every backend, or those that have this ability."""
    chosen = {name: agent for name, agent in AGENTS.items() if able is None or getattr(agent, able)}
    return pytest.mark.parametrize("agent", chosen.values(), ids=chosen)


@agents()
async def test_a_talk_over_one_thread(frontend: MakeFrontend, agent: Agent, tmp_path: Path) -> None:
    """The client sends its own list back; who remembers is sent what is new, who forgets the whole talk."""
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui")
        conversation: list[tuple[str, str]] = []
        for asked, answered in [
            ("I am Ann", "Hello Ann"),
            ("Who am I?", "You are Ann"),
            ("Sure?", "Yes: 你好 \u2028 😀"),
        ]:
            backend.streams(*agent.say(answered))
            view = await client.say(asked)
            assert view.text == answered
            conversation.append(("user", asked))
            sent = agent.said(backend.seen[-1].json)
            assert sent == (conversation[-1:] if agent.remembers else conversation)
            conversation.append(("assistant", answered))
        assert [(m["role"], m["content"]) for m in view.messages] == conversation
        assert len({m["id"] for m in view.messages}) == len(conversation)
        assert len({agent.thread(seen.json) for seen in backend.seen}) == 1


@agents()
@pytest.mark.parametrize("cities", [("Paris",), ("Paris", "Rome")], ids=["one call", "two calls"])
async def test_a_client_tool_round_trip(
    frontend: MakeFrontend, agent: Agent, cities: tuple[str, ...], tmp_path: Path
) -> None:
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui")
        backend.streams(*agent.call(*cities))
        first = await client.say("Weather?", tools=[TOOL])
        assert first.calls == [(f"call_{c}", "get_weather", {"city": c}) for c in cities]
        # One turn is one message to the user.
        assert [m["role"] for m in first.fresh] == ["assistant"]
        pending = [f"call_{c}" for c in cities]
        assert first.finished is not None
        assert first.finished["outcome"] == "success"
        if client.new:
            assert first.finished["pendingToolCallIds"] == pending
            assert first.last["outcome"] == {"type": "success", "pendingToolCallIds": pending}
        else:
            assert "outcome" not in first.last
        backend.streams(*agent.say("It is sunny."))
        second = await client.answer({f"call_{c}": f"sunny in {c}" for c in cities}, tools=[TOOL])
        assert second.text == "It is sunny."
        body = backend.seen[1].json
        assert agent.results(body) == [(f"call_{c}", f"sunny in {c}") for c in cities]
        if agent.remembers:
            assert all(role == "tool" for role, _ in agent.said(body))
            assert agent.thread(body) == agent.thread(backend.seen[0].json)
        else:
            assert [role for role, _ in agent.said(body)] == ["user", "assistant", *["tool"] * len(cities)]


@agents("server_tool")
async def test_a_tool_that_the_backend_runs(frontend: MakeFrontend, agent: Agent, tmp_path: Path) -> None:
    """It is shown with its result, and it is nothing for the client to answer."""
    assert agent.server_tool is not None
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui")
        backend.streams(*agent.server_tool("Paris", "sunny", "It is sunny."))
        view = await client.say("Weather?")
        assert view.calls == [("call_Paris", "get_weather", {"city": "Paris"})]
        assert view.results == [("call_Paris", "sunny")]
        assert view.text == "It is sunny."
        assert [m["role"] for m in view.fresh] == ["assistant", "tool", "assistant"]
        assert view.finished is not None
        assert view.finished.get("pendingToolCallIds", []) == []
        backend.streams(*agent.say("Gladly."))
        assert (await client.say("Thanks")).text == "Gladly."
        if agent.remembers:
            # The client brings the call and its result along; the backend has them already.
            assert agent.said(backend.seen[1].json) == [("user", "Thanks")]


@agents("think")
async def test_reasoning(frontend: MakeFrontend, agent: Agent, tmp_path: Path) -> None:
    assert agent.think is not None
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui")
        backend.streams(*agent.think("Hm, hm.", "Sunny."))
        first = await client.say("Weather?")
        assert (first.reasoning, first.text) == ("Hm, hm.", "Sunny.")
        assert [m["role"] for m in first.messages] == ["user", "reasoning", "assistant"]
        # The client sends its reasoning back, and nobody stumbles over it.
        second = await client.say("And tomorrow?")
        assert (second.reasoning, second.text) == ("Hm, hm.", "Sunny.")
        if agent.remembers:
            assert agent.said(backend.seen[1].json) == [("user", "And tomorrow?")]


async def test_encrypted_reasoning_goes_back(frontend: MakeFrontend, tmp_path: Path) -> None:
    agent = AGENTS["ag-ui"]
    secret = {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "th", "encryptedValue": "s3cret"}
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui")
        backend.streams(*run(*reasoning("Hm."), secret, *text("Sunny.")))
        await client.say("Weather?")
        await client.say("And tomorrow?")
        (thought,) = (m for m in backend.seen[1].json["messages"] if m["role"] == "reasoning")
        assert thought["encryptedValue"] == "s3cret"


async def test_what_a_client_gives_along(frontend: MakeFrontend, tmp_path: Path) -> None:
    """State, context and forwardedProps reach an agent of the same dialect, and the agent's state the client."""
    agent = AGENTS["ag-ui"]
    context = [{"description": "place", "value": "Rome"}]
    patch = {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 2}]}
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui", state={"n": 1})
        backend.streams(*run(patch, *text("Two.")))
        view = await client.say("Count", context=context, forwardedProps={"pace": "slow"})
        sent = backend.seen[0].json
        assert (sent["state"], sent["context"], sent["forwardedProps"]) == ({"n": 1}, context, {"pace": "slow"})
        assert view.state == {"n": 2}
        await client.say("And on")
        assert backend.seen[1].json["state"] == {"n": 2}


@agents("image")
async def test_a_picture_goes_in(frontend: MakeFrontend, agent: Agent, tmp_path: Path) -> None:
    assert agent.image is not None
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        backend.streams(*agent.say("A square."))
        client = frontend(f"{base}/ag-ui")
        view = await client.say([{"type": "text", "text": "What is this?"}, PICTURE_PART])
        assert view.text == "A square."
        assert agent.image(backend.seen[0].json) == f"data:image/png;base64,{PICTURE}"


async def test_a_picture_that_the_backend_cannot_take_is_refused(frontend: MakeFrontend, tmp_path: Path) -> None:
    agent = AGENTS["ag-kit 1"]
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        backend.streams(*agent.say("Never."))
        client = frontend(f"{base}/ag-ui")
        view = await client.say([{"type": "text", "text": "What is this?"}, PICTURE_PART], quiet=False)
        assert view.rejected is not None
        assert "HTTP 422" in view.rejected["message"]
        assert "accepts no image" in view.rejected["message"]
        assert backend.seen == []


async def test_a_refusal_before_the_stream(frontend: MakeFrontend, tmp_path: Path) -> None:
    agent = AGENTS["openai-chat"]
    async with fake_backend() as backend:
        config = {**agent.config(backend, tmp_path), "server": {"auth": {"keys": [{"name": "ann", "key": "key-ann"}]}}}
        async with serving(config) as base:
            backend.streams(*agent.say("Hello"))
            denied = await frontend(f"{base}/ag-ui", headers={"authorization": "Bearer no"}).say("Hi", quiet=False)
            assert denied.rejected is not None
            assert "HTTP 401" in denied.rejected["message"]
            assert denied.events == []
            let_in = await frontend(f"{base}/ag-ui", headers={"authorization": "Bearer key-ann"}).say("Hi")
            assert let_in.text == "Hello"


@agents()
async def test_a_backend_that_refuses(frontend: MakeFrontend, agent: Agent, tmp_path: Path) -> None:
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path, retry={"attempts": 1})) as base:
        backend.answers(503, b'{"error":{"message":"too busy"},"detail":"too busy"}')
        view = await frontend(f"{base}/ag-ui").say("Hi", quiet=False)
        assert view.types == ["RUN_STARTED", "RUN_ERROR"]
        assert view.last["code"] == "UPSTREAM_HTTP_503"
        assert view.rejected is None


@agents()
@pytest.mark.parametrize("how", ["said", "reset", "closed"])
async def test_a_failure_in_the_stream(frontend: MakeFrontend, agent: Agent, how: str, tmp_path: Path) -> None:
    """The client keeps what was said, sees the error, and can go on; an application is not ended by it."""

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for piece in _begun(agent.say("Half an answer")):
            await exchange.send(piece)
        if how == "said":
            await exchange.send(agent.error)
        if how == "reset":
            exchange.reset()
        elif how == "closed":
            exchange.close()
        else:
            await exchange.end()

    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui")
        backend.plays(script)
        view = await client.say("Hi", quiet=False)
        assert view.text == "Half an answer"
        assert view.error
        assert view.rejected is None
        if how == "said":
            assert view.error == "the model fell over"
        backend.streams(*agent.say("Well again."))
        assert (await client.say("And now?")).text == "Well again."
        # Who remembers has lost the thread, and hears of everything again.
        assert agent.said(backend.seen[-1].json)[0] == ("user", "Hi")


def _begun(stream: list[bytes]) -> list[bytes]:
    """A stream up to the last piece of its text."""
    last = max(place for place, frame in enumerate(stream) if b"answer" in frame and b"completed" not in frame)
    return stream[: last + 1]


@agents()
async def test_a_client_that_aborts_stops_the_backend(frontend: MakeFrontend, agent: Agent, tmp_path: Path) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for piece in _begun(agent.say("Half an answer")):
            await exchange.send(piece)
        await exchange.left()

    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui")
        backend.plays(script)
        view = await client.say("Hi", abort_at="TEXT_MESSAGE_CONTENT", quiet=False)
        assert (view.text, view.last["code"]) == ("Half an answer", "abort")
        async with asyncio.timeout(40):
            await backend.seen[0].gone.wait()
        backend.streams(*agent.say("Here I am."))
        assert (await client.say("Still there?")).text == "Here I am."


@agents("interrupt")
async def test_an_interrupt(frontend: MakeFrontend, agent: Agent, tmp_path: Path) -> None:
    assert agent.interrupt is not None
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui")
        backend.streams(*agent.interrupt())
        view = await client.say("Delete a.txt")
        assert view.finished is not None
        assert view.finished["outcome"] == "interrupt"
        (asked,) = view.interrupts
        assert asked["id"]
        if agent.section["dialect"] == "ag-kit":
            assert asked["metadata"]["dialect-bridge"]["payload"] == QUESTION
        # The client itself refuses to go on without an answer.
        without = await client.say("Well?", quiet=False)
        assert without.rejected is not None
        assert len(backend.seen) == 1


@agents("resumed")
async def test_an_interrupt_and_its_answer(frontend: MakeFrontend, agent: Agent, tmp_path: Path) -> None:
    assert agent.interrupt is not None
    assert agent.resumed is not None
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui")
        backend.streams(*agent.interrupt())
        (asked,) = (await client.say("Delete a.txt")).interrupts
        backend.streams(*agent.say("It is gone."))
        answer = {"interruptId": asked["id"], "status": "resolved", "payload": "yes"}
        view = await client.run(resume=[answer])
        assert (view.text, view.interrupts) == ("It is gone.", [])
        first, second = (seen.json for seen in backend.seen)
        assert agent.thread(second) == agent.thread(first)
        assert agent.resumed(second) == agent.consent
        if agent.remembers:
            assert ("user", "Delete a.txt") not in agent.said(second)
        backend.streams(*agent.say("Gladly."))
        assert (await client.say("Thanks")).text == "Gladly."


@agents("usage")
async def test_usage(frontend: MakeFrontend, agent: Agent, tmp_path: Path) -> None:
    async with fake_backend() as backend, serving(agent.config(backend, tmp_path)) as base:
        client = frontend(f"{base}/ag-ui")
        backend.streams(*agent.say("Hello"))
        view = await client.say("Hi")
        started, finished = view.events[0], view.last
        (usage,) = finished["usage"]
        assert (usage["inputTokens"], usage["outputTokens"], usage["totalTokens"]) == (9, 4, 13)
        if client.new:
            assert (started["protocolVersion"], finished["outcome"]) == ("1.0", {"type": "success"})
        else:
            assert {"protocolVersion", "outcome"}.isdisjoint({*started, *finished})
