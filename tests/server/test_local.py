"""Agents in this process: a Python generator served in every dialect, and the demo agent's fixed scenes."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge import (
    Answer,
    ArgsDelta,
    BackendError,
    Bridge,
    BridgeError,
    ConfigError,
    ContentAdded,
    Custom,
    ErrorCode,
    FinishReason,
    Interrupted,
    Media,
    MediaKind,
    Message,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    Reasoning,
    ReasoningDelta,
    Request,
    RunFinished,
    RunStarted,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Url,
    UsageReported,
)
from bridge.model import verify
from bridge.run.backends.demo_backend import SCENES
from tests.server.harness import post, serving

Agent = Callable[[Request], Any]
PICTURE = Media(MediaKind.IMAGE, Url("https://p.example/a.png"))


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    """A module that a configuration can name."""
    made = types.ModuleType("an_agent_for_tests")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def config(target: str = "an_agent_for_tests:run") -> dict[str, Any]:
    return {
        "backends": {"mine": {"dialect": "python", "target": target}},
        "routes": [
            {"dialect": "openai-chat", "path": "/v1", "backend": "mine"},
            {"dialect": "agentscope", "path": "/scope", "backend": "mine"},
        ],
    }


async def answer(module: types.ModuleType, agent: Agent, text: str = "hi") -> Answer:
    module.run = agent  # type: ignore[attr-defined]
    async with Bridge.from_config(config()) as bridge:
        request = Request([Message("user", [Text(text)])])
        verify([e async for e in bridge.stream(request)])
        return await bridge.complete(request)


async def test_strings_are_the_answer(module: types.ModuleType) -> None:
    async def run(request: Request) -> AsyncIterator[str]:
        yield "You said "
        yield ""
        yield request.messages[-1].parts[0].text  # type: ignore[union-attr]

    got = await answer(module, run)
    assert (got.text, got.reason, got.model) == ("You said hi", FinishReason.STOP, "mine")


async def test_parts_come_whole(module: types.ModuleType) -> None:
    async def run(request: Request) -> AsyncIterator[Any]:
        yield Reasoning("hm", signature="s")
        yield "a"
        yield ToolCall("c1", "f", "{}")
        yield ToolResult("c1", [Text("r")])
        yield PICTURE
        yield "b"

    got = await answer(module, run)
    parts = [p for m in got.messages for p in m.parts]
    assert [type(p).__name__ for p in parts if not isinstance(p, ToolResult)] == [
        "Reasoning",
        "Text",
        "ToolCall",
        "Media",
        "Text",
    ]
    assert got.results[0].call_id == "c1"
    assert got.reason is FinishReason.STOP


async def test_events_may_be_incomplete(module: types.ModuleType) -> None:
    async def run(request: Request) -> AsyncIterator[Any]:
        yield RunStarted("ignored", model="m-7")
        yield ReasoningDelta("", "think")
        yield TextDelta("", "say")
        yield Custom("x", 1)
        yield UsageReported(1, 2)

    got = await answer(module, run)
    assert (got.reasoning, got.text, got.model) == ("think", "say", "m-7")
    assert got.usage == UsageReported(1, 2)
    assert got.events == [Custom("x", 1)]


async def test_events_may_be_complete(module: types.ModuleType) -> None:
    async def run(request: Request) -> AsyncIterator[Any]:
        yield MessageStarted("m1")
        yield PartStarted("p1", "m1", PartKind.TOOL_CALL, "c1", "f")
        yield ArgsDelta("p1", '{"a":')
        yield ArgsDelta("p1", "1}")
        yield PartEnded("p1")
        yield ContentAdded("m1", PICTURE)
        yield MessageEnded("m1")
        yield MessageStarted("m2")
        yield PartStarted("p2", "m2", PartKind.TEXT)
        yield TextDelta("p2", "left open")

    got = await answer(module, run)
    assert [m.id for m in got.messages] == ["m1", "m2"]
    assert (got.calls[0].arguments, got.media, got.text) == ('{"a":1}', [PICTURE], "left open")
    assert got.reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (RunFinished(FinishReason.LENGTH), FinishReason.LENGTH),
        (Interrupted("i1", "confirm"), FinishReason.INTERRUPTED),
    ],
)
async def test_an_agent_may_say_how_it_ends(module: types.ModuleType, event: Any, reason: FinishReason) -> None:
    async def run(request: Request) -> AsyncIterator[Any]:
        yield "x"
        yield event

    assert (await answer(module, run)).reason is reason


async def failure(module: types.ModuleType, agent: Agent) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        await answer(module, agent)
    return caught.value


async def test_what_an_agent_raises_is_logged_and_not_told(
    module: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(request: Request) -> AsyncIterator[str]:
        yield "half"
        raise ValueError("the city is missing; the key was sk-abcdefghijklmnop")

    with caplog.at_level(logging.INFO):
        error = await failure(module, run)
    assert (error.code, error.message) == (ErrorCode.BACKEND_ERROR, "The agent failed (ValueError).")
    assert "the agent failed: ValueError: the city is missing; the key was ***" in caplog.text
    assert 'test_local.py", line ' in caplog.text
    assert "in run\n    raise ValueError(" in caplog.text
    assert "sk-abcdefghijklmnop" not in caplog.text
    assert "transports/local.py" not in caplog.text


async def test_an_agent_may_fail_with_a_code(module: types.ModuleType) -> None:
    async def run(request: Request) -> AsyncIterator[str]:
        raise BackendError("too much", code=ErrorCode.RATE_LIMITED)
        yield ""

    error = await failure(module, run)
    assert (error.code, error.message) == (ErrorCode.RATE_LIMITED, "too much")


@pytest.mark.parametrize("item", [7, ArgsDelta("unknown", "{}"), {"text": "x"}])
async def test_what_is_no_event_fails_the_run(
    module: types.ModuleType, item: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(request: Request) -> AsyncIterator[Any]:
        yield item

    assert (await failure(module, run)).message == "The agent failed (TypeError)."
    assert re.search(r"TypeError: (an agent yields strings|an ArgsDelta needs)", caplog.text)


async def test_what_is_no_generator_is_explained(module: types.ModuleType) -> None:
    async def run(request: Request) -> str:
        return "x"

    assert "async generator" in (await failure(module, run)).message


def test_a_target_stands_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, elsewhere = tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    elsewhere.mkdir()
    text = "async def run(request):\n    yield '{}'\n"
    (folder / "agent_beside_the_file.py").write_text(text.format("beside"))
    (elsewhere / "agent_beside_the_file.py").write_text(text.format("elsewhere"))
    routes = "routes: [{dialect: openai-chat, path: /v1, backend: mine}]\nstores: {history: off}\n"
    for name, target in (("c", "agent_beside_the_file:run"), ("d", "agent_nowhere:run")):
        (folder / f"{name}.yaml").write_text(f"backends: {{mine: {{dialect: python, target: '{target}'}}}}\n{routes}")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Bridge.from_config(folder / "c.yaml")
    assert sys.modules["agent_beside_the_file"].__file__ == str(folder / "agent_beside_the_file.py")
    with pytest.raises(ConfigError) as caught:
        Bridge.from_config(folder / "d.yaml")
    assert f"(looked for in {folder} and {elsewhere})" in caught.value.message


@pytest.mark.parametrize("target", ["an_agent_for_tests:nix", "no_such_module_here:run", "an_agent_for_tests:"])
def test_a_target_that_is_not_there_is_a_configuration_error(module: types.ModuleType, target: str) -> None:
    with pytest.raises(BridgeError) as caught:
        Bridge.from_config(config(target))
    assert "target" in caught.value.message


async def test_an_agent_is_closed_when_its_client_leaves(module: types.ModuleType) -> None:
    began, closed = asyncio.Event(), asyncio.Event()

    async def run(request: Request) -> AsyncIterator[str]:
        try:
            yield "x"
            began.set()
            await asyncio.sleep(60)
        finally:
            closed.set()

    module.run = run  # type: ignore[attr-defined]
    async with serving(config()) as base:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        client = asyncio.create_task(post(f"{base}/v1/chat/completions", body))
        await began.wait()
        client.cancel()
        await asyncio.wait_for(closed.wait(), 1)


async def test_an_agent_speaks_every_dialect(module: types.ModuleType) -> None:
    async def run(request: Request) -> AsyncIterator[str]:
        yield "bon"
        yield "jour"

    module.run = run  # type: ignore[attr-defined]
    async with serving(config()) as base:
        whole = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        chat = await post(f"{base}/v1/chat/completions", whole)
        assert chat.json["choices"][0]["message"]["content"] == "bonjour"
        turn = {"input": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
        scope = await post(f"{base}/scope/process", turn)
        assert b'"text":"bonjour"' in scope.body


# ---------------------------------------------------------------------- the demo agent


async def demo(text: str) -> Answer:
    setup = {
        "backends": {"d": {"dialect": "demo"}},
        "routes": [{"dialect": "agentscope", "path": "/s", "backend": "d"}],
    }
    async with Bridge.from_config(setup) as bridge:
        return await bridge.complete(Request([Message("user", [Text(text)])]))


async def test_help_lists_every_scene() -> None:
    text = (await demo(" Help ")).text
    assert all(f"- {name}: " in text for name in SCENES)


@pytest.mark.parametrize("scene", [s for s in SCENES if s not in ("error", "error late", "limited", "slow")])
async def test_a_scene_shows_what_it_says_and_is_always_the_same(scene: str) -> None:
    first, second = await demo(scene), await demo(scene)
    assert [p for m in first.messages for p in m.parts] == [p for m in second.messages for p in m.parts]
    shown = {
        "text": "\u2028" in first.text,
        "reasoning": bool(first.reasoning),
        "tool": len(first.calls) == 1 and first.reason is FinishReason.TOOL_CALLS,
        "tools": len(first.calls) == 2,
        "server tool": len(first.results) == 1 and first.reason is FinishReason.STOP,
        "image": len(first.media) == 2,
        "audio": first.media[:1] and first.media[0].kind is MediaKind.AUDIO,
        "video": first.media[:1] and first.media[0].kind is MediaKind.VIDEO,
        "file": first.media[:1] and first.media[0].kind is MediaKind.FILE,
        "data": any(type(p).__name__ == "Data" for p in first.parts()),
        "refusal": bool(first.refusal),
        "length": first.reason is FinishReason.LENGTH,
        "filter": first.reason is FinishReason.CONTENT_FILTER,
        "steps": len(first.events) == 5,
        "interrupt": len(first.interrupts) == 1,
    }
    assert shown[scene]


@pytest.mark.parametrize(
    ("scene", "code"),
    [
        ("error", ErrorCode.BACKEND_ERROR),
        ("error late", ErrorCode.BACKEND_ERROR),
        ("limited", ErrorCode.RATE_LIMITED),
    ],
)
async def test_a_scene_fails_as_asked(scene: str, code: ErrorCode) -> None:
    with pytest.raises(BridgeError) as caught:
        await demo(scene)
    assert caught.value.code is code
