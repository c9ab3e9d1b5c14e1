"""Conversations over frontends and backends that disagree on who remembers the talk (`stores.history`)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from bridge.engine.config import parse
from bridge.errors import BridgeError, ErrorCode
from bridge.run.conversation.turns import ConversationTurns
from bridge.stores import open_conversations
from tests.pairs.agents import AGENTS, Ask, Say, Step
from tests.pairs.clients import TOOL, agentscope_client, openai_client, routes
from tests.pairs.people import PEOPLE
from tests.pairs.people import routes as agent_routes
from tests.pairs.test_conversations import chat_calls, chat_stream, scope_call, scope_stream, scope_text
from tests.server.harness import Exchange, FakeBackend, fake_backend, post, serving


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def setup(dialect: str, backend: FakeBackend, tmp_path: Path, **more: Any) -> dict[str, Any]:
    url = f"{backend.url}/v1" if dialect == "openai-chat" else backend.url
    return {**routes(dialect, url), "stores": {"history": f"sqlite:///{tmp_path}/talks.db"}, **more}


def chat_sent(backend: FakeBackend, number: int = -1) -> list[tuple[str, Any]]:
    return [(m["role"], m.get("content")) for m in backend.seen[number].json["messages"]]


def scope_sent(backend: FakeBackend, number: int = -1) -> list[tuple[str, str]]:
    return [(m["role"], m["content"][0].get("text", "")) for m in backend.seen[number].json["input"]]


# ---------------------------------------------------------------------- increments over a backend that forgets


async def test_an_increment_becomes_the_whole_talk(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        config = setup("openai-chat", backend, tmp_path)
        async with serving(dict(config)) as base:
            for number, answer in enumerate(["Hello Ann", "You are Ann"]):
                backend.streams(*chat_stream({"content": answer}))
                await agentscope_client(base, [user(["I am Ann", "Who am I?"][number])])
        assert chat_sent(backend) == [("user", "I am Ann"), ("assistant", "Hello Ann"), ("user", "Who am I?")]
        # Over a restart, too.
        async with serving(dict(config)) as base:
            await agentscope_client(base, [user("Sure?")])
        assert [text for _, text in chat_sent(backend)] == [
            "I am Ann",
            "Hello Ann",
            "Who am I?",
            "You are Ann",
            "Sure?",
        ]


async def test_a_client_that_sends_everything_is_not_doubled(tmp_path: Path) -> None:
    async with fake_backend() as backend, serving(setup("openai-chat", backend, tmp_path)) as base:
        backend.streams(*chat_stream({"content": "two"}))
        await agentscope_client(base, [user("one")])
        await agentscope_client(base, [user("one"), said("two"), user("three")])
        assert [text for _, text in chat_sent(backend)] == ["one", "two", "three"]


async def test_a_tool_round_trip_by_increments(tmp_path: Path) -> None:
    async with fake_backend() as backend, serving(setup("openai-chat", backend, tmp_path)) as base:
        backend.streams(*chat_calls("Paris", "Rome"))
        await agentscope_client(base, [user("Weather?")], tools=[TOOL])
        backend.streams(*chat_stream({"content": "Sunny."}))
        results = [{"role": "tool", "tool_call_id": f"call_{c}", "content": "sunny"} for c in ("Paris", "Rome")]
        await agentscope_client(base, results)
        sent = backend.seen[-1].json
        assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "tool", "tool"]
        assert [c["id"] for c in sent["messages"][1]["tool_calls"]] == ["call_Paris", "call_Rome"]
        # The client did not offer its tools again; they are still its tools.
        assert sent["tools"][0]["function"]["name"] == "get_weather"


async def test_a_call_that_nobody_answered_does_not_block_the_talk(tmp_path: Path) -> None:
    async with fake_backend() as backend, serving(setup("openai-chat", backend, tmp_path)) as base:
        backend.streams(*chat_calls("Paris"))
        await agentscope_client(base, [user("Weather?")], tools=[TOOL])
        backend.streams(*chat_stream({"content": "Never mind."}))
        await agentscope_client(base, [user("Forget it")])
        assert chat_sent(backend)[2:] == [("tool", "No result was provided."), ("user", "Forget it")]


async def test_a_result_of_an_unknown_call_is_refused(tmp_path: Path) -> None:
    async with fake_backend() as backend, serving(setup("openai-chat", backend, tmp_path)) as base:
        seen = await agentscope_client(base, [{"role": "tool", "tool_call_id": "nix", "content": "x"}])
        assert seen.status == 422
        assert "no open tool call 'nix'" in (seen.error or "")
        assert backend.seen == []


async def test_a_failed_run_keeps_the_question_and_not_the_broken_answer(tmp_path: Path) -> None:
    async with fake_backend() as backend, serving(setup("openai-chat", backend, tmp_path)) as base:
        backend.streams(*chat_stream({"content": "half an ans"})[:1])
        assert (await agentscope_client(base, [user("one")])).error
        backend.streams(*chat_stream({"content": "ok"}))
        await agentscope_client(base, [user("again")])
        assert chat_sent(backend) == [("user", "one"), ("user", "again")]


async def test_a_cancelled_run_keeps_half_the_answer(tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(chat_stream({"content": "half an ans"})[0])
        reached.set()
        await exchange.left()

    async with fake_backend() as backend, serving(setup("openai-chat", backend, tmp_path)) as base:
        backend.plays(script)
        client = asyncio.create_task(agentscope_client(base, [user("one")]))
        await reached.wait()
        await asyncio.sleep(0.05)
        client.cancel()
        await backend.seen[0].gone.wait()
        backend.streams(*chat_stream({"content": "ok"}))
        await agentscope_client(base, [user("again")])
        assert chat_sent(backend) == [("user", "one"), ("assistant", "half an ans"), ("user", "again")]


async def test_requests_of_one_talk_wait_and_others_do_not(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if b"slow" in exchange.seen.body:
            await release.wait()
        await exchange.stream(*chat_stream({"content": "ok"}))

    async def turn(base: str, text: str, session: str) -> None:
        message = {"role": "user", "content": text}
        await post(f"{base}/kit/send-message", {"messages": [message], "conversationId": session})

    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(fake_backend())
        config = setup("openai-chat", backend, tmp_path)
        config["routes"].append({"dialect": "ag-kit", "path": "/kit", "backend": "it"})
        base = await stack.enter_async_context(serving(config))
        backend.plays(script)
        first = asyncio.create_task(turn(base, "slow", "a"))
        while not backend.seen:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(turn(base, "next", "a"))
        await turn(base, "other", "b")
        assert len(backend.seen) == 2
        release.set()
        await asyncio.gather(first, second)
        assert [text for _, text in chat_sent(backend)] == ["slow", "ok", "next"]


async def test_talks_belong_to_their_owner(tmp_path: Path) -> None:
    keys = [{"name": "ann", "key": "key-ann"}, {"name": "bob", "key": "key-bob"}]
    async with fake_backend() as backend:
        config = setup("openai-chat", backend, tmp_path, server={"auth": {"keys": keys}})
        async with serving(config) as base:
            backend.streams(*chat_stream({"content": "ok"}))
            for key in ("key-ann", "key-bob"):
                part = {"type": "text", "text": key}
                body = {"input": [{"role": "user", "content": [part]}], "session_id": "same"}
                await post(f"{base}/scope/process", body, x_api_key=key)
            assert chat_sent(backend) == [("user", "key-bob")]


async def test_without_a_store_nothing_is_kept(tmp_path: Path) -> None:
    async with fake_backend() as backend, serving(routes("openai-chat", f"{backend.url}/v1")) as base:
        backend.streams(*chat_stream({"content": "ok"}))
        for text in ("one", "two"):
            await agentscope_client(base, [user(text)])
        assert chat_sent(backend) == [("user", "two")]


# ---------------------------------------------------------------------- whole talks over a backend that remembers


@pytest.mark.parametrize("named", [True, False], ids=["with an id", "found by its content"])
async def test_a_whole_talk_becomes_an_increment(tmp_path: Path, named: bool) -> None:
    more: dict[str, Any] = {"metadata": {"session_id": "talk-1"}} if named else {}
    async with fake_backend() as backend, serving(setup("agentscope", backend, tmp_path)) as base:
        backend.streams(*scope_stream(scope_text("Hello Ann")))
        await openai_client(base, [user("I am Ann")], **more)
        conversation = [user("I am Ann"), said("Hello Ann"), user("Who am I?")]
        await openai_client(base, conversation, **more)
        assert scope_sent(backend) == [("user", "Who am I?")]
        sessions = [s.json["session_id"] for s in backend.seen]
        assert sessions[0] == sessions[1]
        assert (sessions[0] == "talk-1") is named
        await openai_client(base, [*conversation, said("Hello Ann"), user("Sure?")], **more)
        assert scope_sent(backend) == [("user", "Sure?")]


async def test_an_edited_talk_begins_anew_at_the_backend(tmp_path: Path) -> None:
    more = {"metadata": {"session_id": "talk-1"}}
    async with fake_backend() as backend, serving(setup("agentscope", backend, tmp_path)) as base:
        backend.streams(*scope_stream(scope_text("Hello")))
        await openai_client(base, [user("I am Ann")], **more)
        edited = [user("I am Bob"), said("Hello"), user("Who am I?")]
        await openai_client(base, edited, **more)
        assert [text for _, text in scope_sent(backend)] == ["I am Bob", "Hello", "Who am I?"]
        assert backend.seen[0].json["session_id"] != backend.seen[1].json["session_id"]
        await openai_client(base, [*edited, said("Hello"), user("Sure?")], **more)
        assert scope_sent(backend) == [("user", "Sure?")]
        assert backend.seen[2].json["session_id"] == backend.seen[1].json["session_id"]


async def test_a_regenerated_answer_begins_anew_too(tmp_path: Path) -> None:
    more = {"metadata": {"session_id": "talk-1"}}
    async with fake_backend() as backend, serving(setup("agentscope", backend, tmp_path)) as base:
        backend.streams(*scope_stream(scope_text("Hello")))
        for _ in range(2):
            await openai_client(base, [user("I am Ann")], **more)
        assert [len(s.json["input"]) for s in backend.seen] == [1, 1]
        assert backend.seen[0].json["session_id"] != backend.seen[1].json["session_id"]


async def test_results_go_to_the_talk_that_asked(tmp_path: Path) -> None:
    async with fake_backend() as backend, serving(setup("agentscope", backend, tmp_path)) as base:
        backend.streams(*scope_stream(scope_call("Paris")))
        first = await openai_client(base, [user("Weather?")], tools=[TOOL])
        call = first.calls[0]
        function = {"name": call.name, "arguments": call.arguments}
        conversation = [
            user("Weather?"),
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call.id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
        ]
        backend.streams(*scope_stream(scope_text("Sunny.")))
        await openai_client(base, conversation, tools=[TOOL])
        sent = orjson.loads(backend.seen[1].body)
        assert [m["type"] for m in sent["input"]] == ["plugin_call_output"]
        assert sent["session_id"] == backend.seen[0].json["session_id"]


async def test_after_a_failure_the_backend_is_told_everything_again(tmp_path: Path) -> None:
    more = {"metadata": {"session_id": "talk-1"}}
    async with fake_backend() as backend, serving(setup("agentscope", backend, tmp_path)) as base:
        backend.streams(*scope_stream(scope_text("Hello")))
        await openai_client(base, [user("one")], **more)
        conversation = [user("one"), said("Hello"), user("two")]
        backend.streams(*scope_stream(scope_text("Hello"))[:3])
        assert (await openai_client(base, conversation, **more)).error
        backend.streams(*scope_stream(scope_text("Hello")))
        await openai_client(base, conversation, **more)
        assert [text for _, text in scope_sent(backend)] == ["one", "Hello", "two"]
        assert backend.seen[2].json["session_id"] not in {s.json["session_id"] for s in backend.seen[:2]}


async def test_fifty_talks_at_once_stay_apart(tmp_path: Path) -> None:
    async def script(exchange: Exchange) -> None:
        number = exchange.seen.json["messages"][0]["content"].split()[-1]
        await exchange.stream(*chat_stream({"content": f"hello {number}"}))

    async def conversation(base: str, number: int) -> None:
        for text in (f"I am {number}", "And now?"):
            part = {"type": "text", "text": text}
            body = {"input": [{"role": "user", "content": [part]}], "session_id": f"s{number}"}
            reply = await post(f"{base}/scope/process", body)
            assert f"hello {number}".encode() in reply.body

    async with fake_backend() as backend, serving(setup("openai-chat", backend, tmp_path)) as base:
        backend.plays(script)
        await asyncio.gather(*(conversation(base, n) for n in range(50)))
        conversations = [
            [m["content"] for m in s.json["messages"]] for s in backend.seen if len(s.json["messages"]) == 3
        ]
        assert sorted(conversations) == sorted([f"I am {n}", f"hello {n}", "And now?"] for n in range(50))


# ---------------------------------------------------------------------- the default, and what costs nothing


async def test_conversations_are_kept_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    default = {"stores": {"history": "sqlite:///data/bridge.db"}}
    assert parse(routes("openai-chat", "http://127.0.0.1:1/v1")).stores.history == default["stores"]["history"]
    async with fake_backend() as backend:
        for _ in range(2):
            backend.streams(*chat_stream({"content": "ok"}))
            async with serving({**routes("openai-chat", f"{backend.url}/v1"), **default}) as base:
                await agentscope_client(base, [user("hello")])
        assert chat_sent(backend) == [("user", "hello"), ("assistant", "ok"), ("user", "hello")]
    assert (tmp_path / "data/bridge.db").exists()


async def test_two_sides_that_agree_keep_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with fake_backend() as backend:
        backend.streams(*chat_stream({"content": "ok"}))
        config = {**routes("openai-chat", f"{backend.url}/v1"), "stores": {"history": "sqlite:///data/bridge.db"}}
        async with serving(config) as base:
            await openai_client(base, [user("hello")])
    # The file is there, as a server tries at its start whether it can write to its stores.
    with closing(sqlite3.connect(tmp_path / "data/bridge.db")) as db:
        for table in ("history_conversations", "history_messages"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


@pytest.mark.parametrize(("front", "first"), [("openai-chat", 1), ("openai-chat named", 0)])
async def test_only_names_and_questions_are_written_where_only_they_must_be_remembered(
    front: str, first: int, tmp_path: Path
) -> None:
    """A talk without a thread of its client's is written once it is answered, so that the agent's is found again."""
    async with fake_backend() as backend:
        agent = AGENTS["ag-ui"](backend)
        answers: list[list[Step]] = [[Say("Hi")], [Say("Well. "), Ask("int-1", {"message": "Go on?"})], [Say("Done")]]
        agent.brain = lambda heard: answers[len(agent.heard) - 1]
        path = tmp_path / "talks.db"

        def kept() -> tuple[int, int]:
            with closing(sqlite3.connect(path)) as db:
                tables = ("history_conversations", "history_messages")
                conversations, messages = (db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables)
                return conversations, messages

        async with serving(agent_routes(agent, history=f"sqlite:///{path}")) as base:
            person = PEOPLE[front](base, "t")
            await person.say("Hello")
            assert kept() == (first, 0)
            await person.say("Do it")
            assert kept() == (1, 0)
            assert (await person.resume("yes")).text == "Done"
            assert agent.heard[-1].resume == "yes"


async def test_an_edited_talk_answers_no_question(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        agent = AGENTS["ag-ui"](backend)
        answers: list[list[Step]] = [[Ask("int-1", {"message": "Go on?"})], [Say("Another matter")]]
        agent.brain = lambda heard: answers[len(agent.heard) - 1]
        async with serving(agent_routes(agent, history=f"sqlite:///{tmp_path}/talks.db")) as base:
            person = PEOPLE["openai-chat named"](base, "t")
            await person.say("Do it")
            person.messages = [user("Do something else"), said("Why?")]  # type: ignore[attr-defined]
            assert (await person.say("yes")).text == "Another matter"
            assert agent.heard[-1].resume is None
            assert agent.heard[-1].last == ("user", "yes")


async def test_old_conversations_are_forgotten_soon_after_a_start_and_each_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = open_conversations(f"sqlite:///{tmp_path}/talks.db")
    pruned, pauses = asyncio.Queue[float](), list[float]()
    sleep = asyncio.sleep

    async def prune(older_than: float) -> int:
        pruned.put_nowait(older_than)
        if pruned.qsize() == 1:
            raise BridgeError("not now", code=ErrorCode.STORE_UNAVAILABLE)
        return 0

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(history, "prune", prune)
    monkeypatch.setattr("bridge.run.conversation.turns.asyncio.sleep", noted)
    memory = ConversationTurns(history)
    memory.start(600.0)
    assert [await pruned.get() for _ in range(3)] == [600.0] * 3
    await memory.close()
    assert pauses[:3] == [3.0, 3600.0, 3600.0]


# ---------------------------------------------------------------------- context of AG-UI clients


async def test_an_agent_that_remembers_is_told_the_context_when_it_changed(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        config = {
            "backends": {"it": {"dialect": "agentscope", "url": backend.url}},
            "routes": [{"dialect": "ag-ui", "path": "/ag-ui", "backend": "it"}],
            "stores": {"history": f"sqlite:///{tmp_path}/talks.db"},
        }
        paris, rome = ({"description": "city", "value": name} for name in ("Paris", "Rome"))
        talk: list[dict[str, Any]] = []
        sent = []
        async with serving(config) as base:
            for number, context in enumerate([[paris], [paris], [rome], [rome], []]):
                talk.append({"id": f"u{number}", "role": "user", "content": f"q{number}"})
                backend.streams(*scope_stream(scope_text("ok")))
                body = {
                    "threadId": "t", "runId": f"r{number}", "state": {}, "messages": talk, "tools": [],
                    "context": context, "forwardedProps": {},
                }  # fmt: skip
                assert b"RUN_FINISHED" in (await post(f"{base}/ag-ui", body)).body
                sent.append([text for _, text in scope_sent(backend)])
                talk.append({"id": f"a{number}", "role": "assistant", "content": "ok"})
        assert sent == [["city: Paris", "q0"], ["q1"], ["city: Rome", "q2"], ["q3"], ["q4"]]


PHOTO = "data:image/jpeg;base64," + "A" * 4_800_000
"""A photo of 3.6 MB, as phones make them."""


async def test_a_talk_with_several_photos_is_kept_whole(tmp_path: Path) -> None:
    message = {"type": "message", "role": "user", "content": [{"type": "image", "image_url": PHOTO}]}
    async with fake_backend() as backend, serving(setup("openai-chat", backend, tmp_path)) as base:
        backend.streams(*chat_stream({"content": "Seen."}))
        for turn in range(1, 6):
            reply = await post(f"{base}/scope/process", {"input": [message], "session_id": "s-1"})
            assert (reply.status, b'"failed"' in reply.body) == (200, False)
            photos = [m for m in backend.seen[-1].json["messages"] if m["role"] == "user"]
            assert len(photos) == turn


async def test_turns_that_were_deleted_are_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with fake_backend() as backend:
        config = setup("openai-chat", backend, tmp_path)
        config["stores"]["max_messages"] = 2
        async with serving(config) as base:
            backend.streams(*chat_stream({"content": "Yes."}))
            for text in ("one", "two"):
                await agentscope_client(base, [user(text)])
                assert "deleted" not in caplog.text
            await agentscope_client(base, [user("three")])
    assert [text for _, text in chat_sent(backend)] == ["two", "Yes.", "three"]
    assert "the backend does not get the oldest 2 messages" in caplog.text
