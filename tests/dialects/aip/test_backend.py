"""The bridge as a caller of agents, over real sockets; the agents are built from the protocol's own stubs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any, cast

import pytest

from bridge import Bridge, BridgeError, Inline, Media, MediaKind, Message, Request, Text
from bridge.engine.route import RunCaller
from bridge.errors import ErrorCode
from bridge.model import fold
from bridge.testing import free_port

from . import schema
from .peers import agent, reply

pytestmark = pytest.mark.interop

STOP, START, HOLD = 3, 0, 1


def config(address: str, timeouts: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    options = {"agent": "chat_agent", "direct": True, "cancel_grace": 5, **options}
    backend = {"dialect": "aip", "url": address, "options": options, "timeouts": timeouts or {}}
    return {
        "backends": {"it": backend},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
        "stores": {"history": "off"},
    }


def ask(*texts: str, thread: str | None = None) -> Request:
    roles = ["user", "assistant"] * len(texts)
    return Request([Message(r, [Text(t)]) for r, t in zip(roles, texts, strict=False)], thread_id=thread)


async def test_a_request_is_a_session_of_its_own() -> None:
    async with agent() as node, Bridge.from_config(config(node.address)) as bridge:
        answer = await bridge.complete(ask("Hello"))
        assert (answer.text, answer.reason) == ("Response to: Hello", "stop")
        await node.ended.wait()
    assert node.told == [(START, "Hello"), (STOP, "bye")]
    first = node.heard[0]
    assert (first.sender_id, first.receiver_id) == ("bridge", "chat_agent")
    assert first.session_id
    assert first.session_id == node.heard[1].session_id


async def test_earlier_messages_are_lines_before_the_last_one() -> None:
    async with agent() as node, Bridge.from_config(config(node.address)) as bridge:
        request = ask("Hi", "Hello", "And now?")
        request.messages.insert(0, Message("system", [Text("Be kind.")]))
        picture = Media(MediaKind.IMAGE, Inline("iVBORw0KGgo="), "image/png")
        request.messages[-1].parts.append(picture)
        await bridge.complete(request)
    assert node.told[0][1] == "[system] Be kind.\n[user] Hi\n[assistant] Hello\n[user] And now?"
    assert [item.WhichOneof("data") for item in node.heard[0].content] == ["text", "image"]


async def test_a_picture_stands_behind_a_text() -> None:
    """Common agents read the first item's text; one that has none ends them."""
    picture = Media(MediaKind.IMAGE, Inline("iVBORw0KGgo="), "image/png")
    async with agent() as node, Bridge.from_config(config(node.address)) as bridge:
        await bridge.complete(Request([Message("user", [picture])]))
        await bridge.complete(Request([Message("user", [picture, Text("What is it?")])]))
    told = [[item.WhichOneof("data") for item in m.content] for m in node.heard if m.session_status == START]
    assert told == [["text", "image"]] * 2
    assert [text for status, text in node.told if status == START][1] == "What is it?"


async def test_everything_until_the_end_is_the_answer() -> None:
    def script(asked: Any) -> list[Any]:
        if asked.session_status == STOP:
            return [reply(asked, "three"), reply(asked, "bye", status="STOP_RESPONSE")]
        items = [schema.message("ContentItem", text="two "), schema.message("ContentItem", image=b"\x89PNG\r\n\x1a\n")]
        return [reply(asked, "one "), reply(asked, content=items)]

    async with agent(script) as node, Bridge.from_config(config(node.address)) as bridge:
        answer = await bridge.complete(ask("Hello"))
    assert answer.text == "one two three"
    assert [m.mime for m in answer.media] == ["image/png"]


@pytest.mark.parametrize(
    ("status", "task", "said", "expected"),
    [
        ("STOP_RESPONSE", "CREATE", "The answer.", "The answer."),
        ("STOP_RESPONSE", "CREATE", "Error: no model", ErrorCode.BACKEND_ERROR),
        ("HOLD_RESPONSE", "BREAK", "It broke.", ErrorCode.BACKEND_ERROR),
    ],
)
async def test_an_agent_may_end_by_itself(status: str, task: str, said: str, expected: object) -> None:
    def script(asked: Any) -> list[Any]:
        return [reply(asked, said, status=status, task=task)]

    async with agent(script) as node, Bridge.from_config(config(node.address)) as bridge:
        answer = fold([event async for event in bridge.stream(ask("Hello"))])
    assert (answer.failure.code if answer.failure else answer.text) == expected


async def test_a_call_that_ends_without_a_stop_is_no_success() -> None:
    async with agent(lambda asked: [None]) as node, Bridge.from_config(config(node.address)) as bridge:
        with pytest.raises(BridgeError) as caught:
            await bridge.complete(ask("Hello"))
    assert caught.value.code is ErrorCode.TRUNCATED_STREAM


async def test_nobody_there_is_told_at_once() -> None:
    async with Bridge.from_config(config(f"127.0.0.1:{free_port()}")) as bridge:
        with pytest.raises(BridgeError) as caught:
            await bridge.complete(ask("Hello"))
    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert "127.0.0.1" not in caught.value.message


async def test_a_kept_session_hears_only_what_is_new() -> None:
    async with agent() as node:
        async with Bridge.from_config(config(node.address, session="keep", turn_idle="50ms")) as bridge:
            first = await bridge.complete(ask("One", thread="t"))
            second = await bridge.complete(ask("One", first.text, "Two", thread="t"))
            other = await bridge.complete(ask("Else", thread="u"))
        assert [first.text, second.text, other.text] == [f"Response to: {word}" for word in ("One", "Two", "Else")]
        mine = [m for m in node.told if m[1] != "Else"]
        # Closing the bridge ends both sessions as the protocol wants it.
        assert mine == [(START, "One"), (HOLD, "Two"), (STOP, "bye"), (STOP, "bye")]
        assert node.canceled == 0


async def test_a_kept_session_is_its_owners_alone() -> None:
    async with agent() as node:
        kept = config(node.address, session="keep", turn_idle="50ms")
        async with Bridge.from_config({**kept, "stores": {"history": "sqlite:///:memory:"}}) as bridge:
            for owner in ("ann", "bob"):
                run = await bridge.run(bridge.route(), ask(f"I am {owner}", thread="t"), caller=RunCaller(owner))
                while not run.ended:
                    await run.read()
                await run.close()
        assert [m for m in node.told if m[0] != STOP] == [(START, "I am ann"), (START, "I am bob")]


async def test_a_finished_task_ends_a_turn_without_waiting() -> None:
    def script(asked: Any) -> list[Any]:
        if asked.session_status == STOP:
            return [reply(asked, "bye", status="STOP_RESPONSE")]
        return [reply(asked, "a"), reply(asked, "b", task="FINISH")]

    async with agent(script) as node:
        kept = config(node.address, session="keep", turn_idle="1h")
        async with Bridge.from_config(kept) as bridge:
            assert (await bridge.complete(ask("One", thread="t"))).text == "ab"
        assert node.told[-1] == (STOP, "bye")


async def test_a_canceled_turn_is_stopped_and_drained_not_canceled() -> None:
    async with agent() as node:
        node.hold = asyncio.Event()
        async with Bridge.from_config(config(node.address, session="keep")) as bridge:
            run = await bridge.run(bridge.route(), ask("Hello", thread="t"))
            waiting = asyncio.create_task(run.read())
            await _until(lambda: bool(node.heard))
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await run.close()
            node.hold.set()
            await node.ended.wait()
        assert node.told == [(START, "Hello"), (STOP, "bye")]
        assert node.canceled == 0


@asynccontextmanager
async def slow(address: str) -> AsyncIterator[tuple[str, asyncio.Event, asyncio.Event]]:
    """The way to `address` for one who waits: nothing passes before `free`. `reached`: somebody has connected."""
    reached, free = asyncio.Event(), asyncio.Event()
    host, port = address.split(":")
    passed: set[asyncio.Task[Any]] = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)

    async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passed.add(cast("asyncio.Task[Any]", asyncio.current_task()))
        reached.set()
        with suppress(asyncio.CancelledError), closing(writer):
            await free.wait()
            there, back = await asyncio.open_connection(host, int(port))
            with closing(back):
                await asyncio.gather(pipe(reader, back), pipe(there, writer))

    own = free_port()
    server = await asyncio.start_server(passing, "127.0.0.1", own)
    try:
        yield f"127.0.0.1:{own}", reached, free
    finally:
        server.close()
        for each in passed:
            each.cancel()
        await asyncio.gather(*passed)


async def test_a_turn_that_is_canceled_while_it_is_written_is_stopped_not_canceled() -> None:
    async with agent() as node, slow(node.address) as (address, reached, free):
        node.hold = asyncio.Event()
        async with Bridge.from_config(config(address)) as bridge:
            run = await bridge.run(bridge.route(), ask("Hello"))
            waiting = asyncio.create_task(run.read())
            await reached.wait()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await run.close()
            free.set()
            await _until(lambda: bool(node.heard))
            node.hold.set()
            await node.ended.wait()
        assert node.told == [(START, "Hello"), (STOP, "bye")]
        assert node.canceled == 0


async def test_a_turn_that_is_never_written_is_given_up_after_its_grace() -> None:
    async with agent() as node, slow(node.address) as (address, reached, _):
        async with Bridge.from_config(config(address, {"connect": "100ms"}, cancel_grace="50ms")) as bridge:
            with pytest.raises(BridgeError) as caught:
                await bridge.complete(ask("Hello"))
            assert caught.value.code is ErrorCode.BACKEND_TIMEOUT
        assert reached.is_set()
        assert node.heard == []


async def test_an_agent_that_does_not_stop_is_canceled_after_its_grace() -> None:
    async with agent() as node:
        node.hold = asyncio.Event()
        timeouts = {"first_event": "100ms"}
        async with Bridge.from_config(config(node.address, timeouts, cancel_grace="50ms")) as bridge:
            with pytest.raises(BridgeError) as caught:
                await bridge.complete(ask("Hello"))
            assert caught.value.code is ErrorCode.BACKEND_TIMEOUT
        await _until(lambda: node.canceled == 1)


async def test_what_does_not_fit_is_refused_before_it_is_sent() -> None:
    async with agent() as node, Bridge.from_config(config(node.address, max_message="1KiB")) as bridge:
        with pytest.raises(BridgeError, match="more than the limit of 1024") as caught:
            await bridge.complete(ask("x" * 2000))
        assert caught.value.code is ErrorCode.TOO_LARGE
        assert node.heard == []


async def _until(true: Any) -> None:
    async with asyncio.timeout(40):
        while not true():
            await asyncio.sleep(0.01)
