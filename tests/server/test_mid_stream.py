"""A backend that breaks in the middle of its text, and another one that ends the answer in the same stream."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from bridge import Bridge
from bridge.contract import registry
from bridge.errors import ConfigError
from bridge.model import ToolCall
from tests.faults.faults import Said
from tests.faults.wire import SPEAKING, Read, ask, asking, connect, raw, read
from tests.server.harness import Exchange, FakeBackend, fake_backend, serving

GO_ON = "Go on exactly where it stops"


def setup(first: str, second: str, urls: tuple[str, str], how: str, front: str = "openai-chat") -> dict[str, Any]:
    options = {"agent-runs": {"options": {"reconnect": []}}}
    backends = {
        name: {"dialect": dialect, "url": url, **options.get(dialect, {})}
        for name, dialect, url in zip(("one", "two"), (first, second), urls, strict=True)
    }
    route = {"dialect": front, "path": "/it", "backend": ["one", "two"], "mid_stream_fallback": how}
    return {"backends": backends, "routes": [route], "stores": {"history": "sqlite:///:memory:"}}


async def answered(first: FakeBackend, second: FakeBackend, how: str, front: str = "openai-chat") -> Read:
    dialects = [backend._speaking().dialect.name for backend in (first, second)]
    async with serving(setup(*dialects, (first.url, second.url), how, front)) as base:
        return read(registry.get(front), await ask(base, registry.get(front), "/it"))


@pytest.mark.parametrize("front", SPEAKING)
@pytest.mark.parametrize("how", ["repeat", "continue"])
async def test_every_client_gets_one_whole_answer(front: str, how: str) -> None:
    async with fake_backend("openai-chat") as one, fake_backend("anthropic-messages") as two:
        one.breaks_off("Once upon ")
        two.says("a time" if how == "continue" else "Once upon a time")
        seen = await answered(one, two, how, front)
        assert (seen.verdict, seen.text) == ("whole", "Once upon a time")
        told = two.requests[0].messages
        assert (len(one.requests), len(two.requests)) == (1, 1)
    assert [m.role for m in told] == (["user", "assistant", "user"] if how == "continue" else ["user"])
    if how == "continue":
        assert told[1].parts[0].text == "Once upon "
        assert GO_ON in told[2].parts[0].text


@pytest.mark.parametrize("dialect", SPEAKING)
async def test_backends_of_every_dialect_begin_and_end(dialect: str) -> None:
    async with fake_backend(dialect) as one, fake_backend("openai-chat") as two:
        one.breaks_off("Once upon ")
        two.says("Once upon a time")
        assert await answered(one, two, "repeat", "ag-ui") == Read("whole", "Once upon a time", None)
        two.breaks_off("Once upon ")
        one.says("Once upon a time")
        assert await answered(two, one, "repeat", "ag-ui") == Read("whole", "Once upon a time", None)


async def test_one_that_says_something_else_ends_the_answer_as_it_broke(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_backend("openai-chat") as one, fake_backend("anthropic-messages") as two:
        one.breaks_off("Once upon ")
        two.says("There was a king")
        seen = await answered(one, two, "repeat")
        assert (seen.verdict, seen.text) == ("error event", "Once upon ")
        assert "two sent a different text" in caplog.text
        two.says("Once")
        assert (await answered(one, two, "repeat")).verdict == "error event"


async def test_one_that_breaks_too_is_an_error_behind_all_that_came() -> None:
    async with fake_backend("openai-chat") as one, fake_backend("anthropic-messages") as two:
        one.breaks_off("Once upon ")
        two.breaks_off("Once upon a ")
        seen = await answered(one, two, "repeat")
        assert (seen.verdict, seen.text) == ("error event", "Once upon a ")
        two.answers(503, b"{}")
        seen = await answered(one, two, "repeat")
        assert (seen.verdict, seen.text) == ("error event", "Once upon ")


async def test_one_that_falls_silent_is_given_up_and_the_client_that_leaves_stops_the_other() -> None:
    asked = asyncio.Event()

    async def stalls(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(Said.of("openai-chat").first)
        await exchange.left()

    async def never_begins(exchange: Exchange) -> None:
        asked.set()
        await exchange.left()

    async with fake_backend("openai-chat") as one, fake_backend("openai-chat") as two:
        one.plays(stalls)
        two.says("Hello all")
        config = setup("openai-chat", "openai-chat", (one.url, two.url), "repeat")
        config["backends"]["one"]["timeouts"] = {"idle": "100ms"}
        front = registry.get("openai-chat")
        async with serving(config) as base:
            assert read(front, await ask(base, front, "/it")) == Read("whole", "Hello all", None)
            two.plays(never_begins)
            _, writer = await connect(base)
            writer.write(raw(asking(front), "/it"))
            await asked.wait()
            writer.close()
            await asyncio.wait_for(two.seen[-1].gone.wait(), 1)


async def test_off_is_the_default() -> None:
    async with fake_backend("openai-chat") as one, fake_backend("openai-chat") as two:
        one.breaks_off("Once upon ")
        two.says("Once upon a time")
        assert (await answered(one, two, "off")).verdict == "error event"
        assert two.requests == []


CALL = ToolCall("c1", "f", "{}")


@pytest.mark.parametrize("items", [("Let me see. ", CALL), (CALL,)], ids=["behind words", "alone"])
async def test_what_a_tool_was_called_for_is_not_asked_again(items: Any) -> None:
    async with fake_backend("openai-chat") as one, fake_backend("openai-chat") as two:
        one.breaks_off(*items)
        two.says(*items, "more")
        assert (await answered(one, two, "repeat")).verdict == "error event"
        assert two.requests == []


async def test_it_may_go_on_with_a_tool(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with fake_backend("openai-chat") as one, fake_backend("openai-chat") as two:
        one.breaks_off("Let me see. ")
        two.says(CALL)
        front = registry.get("openai-chat")
        async with serving(setup("openai-chat", "openai-chat", (one.url, two.url), "continue")) as base:
            saw = await ask(base, front, "/it")
    assert (read(front, saw).verdict, read(front, saw).text) == ("whole", "Let me see. ")
    assert b'"tool_calls"' in saw.body
    (facts,) = (record.facts for record in caplog.records if record.name == "bridge.access")
    assert (facts["tried"], facts["continued_at"], facts["back"]) == ("one,two", "12", "two")


@pytest.mark.parametrize("how", ["repeat", "continue"])
async def test_the_conversation_keeps_one_answer(how: str, tmp_path: Path) -> None:
    """AgentScope's clients send what is new: the next question shows what was kept."""
    front = registry.get("agentscope")
    async with fake_backend("openai-chat") as one, fake_backend("openai-chat") as two:
        one.breaks_off("Once upon ")
        two.says("a time" if how == "continue" else "Once upon a time")
        config = setup("openai-chat", "openai-chat", (one.url, two.url), how, "agentscope")
        async with serving({**config, "stores": {"history": f"sqlite:///{tmp_path}/talks.db"}}) as base:
            await ask(base, front, "/it", text="tell", run="r1")
            one.says("The end")
            await ask(base, front, "/it", text="and?", run="r2")
    said = [(m.role, m.parts[0].text) for m in one.requests[-1].messages]  # type: ignore[union-attr]
    assert said == [("user", "tell"), ("assistant", "Once upon a time"), ("user", "and?")]


async def test_an_agent_that_remembers_is_asked_for_all_of_it() -> None:
    async with fake_backend("openai-chat") as one, fake_backend("agentscope") as two:
        one.breaks_off("Once upon ")
        two.says("Once upon a time")
        assert (await answered(one, two, "continue")).text == "Once upon a time"
        assert GO_ON not in str(two.seen[0].body)


async def test_a_durable_route_goes_on_too(tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as one, fake_backend("openai-chat") as two:
        one.breaks_off("Once upon ")
        two.says("Once upon a time")
        config = setup("openai-chat", "openai-chat", (one.url, two.url), "repeat", "ag-ui")
        config["routes"][0]["durable"] = True
        async with serving({**config, "stores": {"runs": f"sqlite:///{tmp_path}/runs.db"}}) as base:
            seen = read(registry.get("ag-ui"), await ask(base, registry.get("ag-ui"), "/it"))
    assert (seen.verdict, seen.text) == ("whole", "Once upon a time")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"backend": "one"}, "list several"),
        ({"passthrough": True}, "cannot be combined with passthrough"),
        ({"mid_stream_fallback": "sometimes"}, "'repeat' or 'continue'"),
    ],
)
def test_what_cannot_be_configured(more: dict[str, Any], words: str) -> None:
    config = setup("openai-chat", "openai-chat", ("http://a", "http://b"), "repeat")
    config["routes"][0] |= more
    with pytest.raises(ConfigError, match=words):
        Bridge.from_config(config)
