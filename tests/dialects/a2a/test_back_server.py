"""The bridge before an agent over real connections: who remembers which talk, and what ends when a client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bridge.engine.bridge import Bridge
from bridge.errors import ConfigError
from bridge.run import attempt
from bridge.run.backends import stepped_backend
from tests.pairs.people import PEOPLE, leave, routes
from tests.pairs.test_owners import setup
from tests.server.harness import Exchange, FakeBackend, ask, fake_backend, post, serving

from .back import CARD, artifact, error, rpc, status, task
from .front import say

pytestmark = pytest.mark.usefixtures("each_http_client")
Answers = Callable[[dict[str, Any]], list[bytes] | bytes]
CHAT = "/chat/v1/chat/completions"


def done(text: str, context: str, task_id: str = "t1") -> list[bytes]:
    """A whole stream of a task in this context."""
    events = [task("SUBMITTED")["task"], artifact(text), status("COMPLETED")]
    ids = json.dumps([{"task": events[0]}, *events[1:]]).replace('"c1"', f'"{context}"').replace('"t1"', f'"{task_id}"')
    return [rpc(each) for each in json.loads(ids)]


class Agent:
    """Plays an agent with a card: `answers` gets each message. `asked` are the messages, `others` other methods."""

    def __init__(self, backend: FakeBackend, answers: Answers) -> None:
        self.backend = backend
        self.dialect, self.url, self.options = "a2a", backend.url, dict[str, Any]()
        self.asked: list[dict[str, Any]] = []
        self.others: list[dict[str, Any]] = []
        self.cards = 0
        self._answers = answers
        backend.plays(self._play)

    async def _play(self, exchange: Exchange) -> None:
        if exchange.seen.method == "GET":
            self.cards += 1
            await exchange.answer(200, json.dumps(CARD).encode(), cache_control="max-age=60")
            return
        body = exchange.seen.json
        if body["method"] != "SendStreamingMessage":
            self.others.append(body)
            await exchange.answer(200, rpc(task("CANCELED")["task"]))
            return
        self.asked.append(body["params"]["message"])
        said = self._answers(self.asked[-1])
        if isinstance(said, bytes):
            await exchange.answer(200, said)
        else:
            await exchange.stream(*(b"data: %b\n\n" % each for each in said))

    def texts(self, index: int = -1) -> list[str]:
        return [part["text"] for part in self.asked[index]["parts"]]


async def test_a_question_that_the_bridge_repeats_is_still_answered_where_it_was_asked(tmp_path: Path) -> None:
    """An approval is not given by words: it is asked again, without a call of the agent."""

    def answers(message: dict[str, Any]) -> list[bytes]:
        if message.get("taskId") == "t1":
            return done("Well.", message["contextId"])
        asked = status("INPUT_REQUIRED", "May I?")
        asked["statusUpdate"]["status"]["message"]["metadata"] = {"interrupts": [{"id": "p1", "reason": "approval"}]}
        return [rpc(task("SUBMITTED")), rpc(asked)]

    async with fake_backend() as backend:
        agent = Agent(backend, answers)
        backends = {"it": {"dialect": "a2a", "url": backend.url}}
        route = {"dialect": "a2a", "path": "/a2a", "backend": "it", "durable": True}
        stored = {"history": f"sqlite:///{tmp_path}/talks.db", "runs": f"sqlite:///{tmp_path}/runs.db"}
        async with serving({"backends": backends, "routes": [route], "stores": stored}) as base:
            asked = await say(f"{base}/a2a", "go")
            again = await say(f"{base}/a2a", "well?", contextId=asked["contextId"], messageId="m-2")
            assert again["status"]["message"]["parts"] == asked["status"]["message"]["parts"]
            told = await say(f"{base}/a2a", "yes", taskId=asked["id"], messageId="m-3")
        assert told["status"]["state"] == "TASK_STATE_COMPLETED"
        assert [(each.get("contextId"), each.get("taskId")) for each in agent.asked] == [(None, None), ("c1", "t1")]


async def test_words_in_place_of_a_result_reach_the_agent(tmp_path: Path) -> None:
    """The client will not send the result any more: the agent learns that there is none, and what the client says."""
    call = {"id": "c1", "reason": "tool_result", "callId": "c1", "call": {"name": "clock", "args": {}}}

    def answers(message: dict[str, Any]) -> list[bytes]:
        if message.get("taskId") == "t1":
            return done("Well.", message["contextId"])
        asked = status("INPUT_REQUIRED", "The time?")
        asked["statusUpdate"]["status"]["message"]["metadata"] = {"interrupts": [call]}
        return [rpc(task("SUBMITTED")), rpc(asked)]

    async with fake_backend() as backend:
        agent = Agent(backend, answers)
        async with serving(routes(agent, history=f"sqlite:///{tmp_path}/talks.db")) as base:
            person = PEOPLE["ag-kit"](base, "thread")
            await person.say("What time is it?")
            assert (await person.say("never mind")).text == "Well."
    result, words = agent.asked[-1]["parts"]
    assert result["data"] == {"id": "c1", "name": "clock", "response": {"result": "No result was provided."}}
    assert words == {"text": "never mind"}


@pytest.mark.parametrize("front", ["agentscope", "ag-kit", "ag-kit-2"])
async def test_results_that_come_one_by_one_are_sent_together(front: str, tmp_path: Path) -> None:
    """Also if the agent fails at the first try."""
    calls = [
        {"id": name, "reason": "tool_result", "callId": name, "call": {"name": "clock", "args": {"zone": name}}}
        for name in ("c1", "c2", "c3")
    ]

    def answers(message: dict[str, Any]) -> list[bytes]:
        if message.get("taskId") == "t1":
            return done("Well.", "c1") if len(agent.asked) > 2 else [rpc(status("FAILED", "Again."))]
        asked = status("INPUT_REQUIRED", "The time?")
        asked["statusUpdate"]["status"]["message"]["metadata"] = {"interrupts": calls}
        return [rpc(task("SUBMITTED")), rpc(asked)]

    async with fake_backend() as backend:
        agent = Agent(backend, answers)
        async with serving(routes(agent, history=f"sqlite:///{tmp_path}/talks.db")) as base:
            person = PEOPLE[front](base, "thread", ("clock",))
            assert [call.id for call in (await person.say("What time is it?")).calls] == ["c1", "c2", "c3"]
            for name in ("c1", "c3"):
                assert (await person.answer({name: f"at {name}"})).error is None
            assert len(agent.asked) == 1
            assert (await person.answer({"c2": "at c2"})).error is not None
            assert (await person.answer({"c2": "at c2"})).text == "Well."
    for message in agent.asked[1:]:
        results = {part["data"]["id"]: part["data"]["response"] for part in message["parts"] if "data" in part}
        assert results == {name: {"result": f"at {name}"} for name in ("c1", "c2", "c3")}


@pytest.mark.parametrize(("front", "records"), [("ag-kit", 1), ("openai-chat", 2)])
async def test_an_answer_is_recorded_again_only_where_its_digest_is_needed(
    front: str, records: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Counted(attempt._AnswerRecorder):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(attempt, "_AnswerRecorder", Counted)
    async with fake_backend() as backend:
        agent = Agent(backend, lambda message: done("Hi.", "c-1"))
        async with serving(routes(agent, history=f"sqlite:///{tmp_path}/talks.db")) as base:
            assert (await PEOPLE[front](base, "thread").say("hi")).text == "Hi."
    assert len(made) == records


@pytest.mark.parametrize("front", list(PEOPLE))
async def test_the_agents_own_name_of_a_talk_is_kept(front: str, tmp_path: Path) -> None:
    async with fake_backend() as backend:
        agent = Agent(backend, lambda message: done("Hi.", message.get("contextId") or f"c-{len(agent.asked)}"))
        async with serving(routes(agent, history=f"sqlite:///{tmp_path}/talks.db")) as base:
            ann, bob = (PEOPLE[front](base, name) for name in ("thread-a", "thread-b"))
            for person, text in ((ann, "I am Ann."), (bob, "I am Bob."), (ann, "Who am I?"), (bob, "And I?")):
                seen = await person.say(text)
                assert (seen.error, seen.text) == (None, "Hi.")
        assert [message.get("contextId") for message in agent.asked] == [None, None, "c-1", "c-2"]
        assert [agent.texts(n) for n in range(4)] == [["I am Ann."], ["I am Bob."], ["Who am I?"], ["And I?"]]
        assert len({message["messageId"] for message in agent.asked}) == 4
        assert agent.cards == 1


@pytest.mark.parametrize("front", ["openai-chat", "ag-ui", "ag-kit", "agentscope"])
async def test_a_talk_that_the_agent_forgot_is_told_anew(front: str, tmp_path: Path) -> None:
    def answers(message: dict[str, Any]) -> list[bytes] | bytes:
        if message.get("contextId") == "c-old":
            return error(-32602, "Unknown context.")
        return done("Ann.", "c-new") if len(agent.asked) > 1 else done("Hi.", "c-old")

    async with fake_backend() as backend:
        agent = Agent(backend, answers)
        async with serving(routes(agent, history=f"sqlite:///{tmp_path}/talks.db")) as base:
            person = PEOPLE[front](base, "thread-a")
            await person.say("I am Ann.")
            seen = await person.say("Who am I?")
            assert (seen.error, seen.text) == (None, "Ann.")
            await person.say("Thanks.")
        assert [message.get("contextId") for message in agent.asked] == [None, "c-old", None, "c-new"]
        assert agent.texts(2) == ["user: I am Ann.", "assistant: Hi.", "Who am I?"]
        assert agent.texts(3) == ["Thanks."]


async def test_a_stream_that_ends_within_an_event_is_read_on_from_the_task(tmp_path: Path) -> None:
    async def play(exchange: Exchange) -> None:
        if exchange.seen.method == "GET":
            await exchange.answer(200, json.dumps(CARD).encode())
        elif exchange.seen.json["method"] == "SendStreamingMessage":
            await exchange.stream(b"data: %b\n\n" % rpc(task("SUBMITTED")), (b"data: %b" % rpc(artifact("Hi.")))[:-9])
        else:
            await exchange.answer(200, rpc(task("COMPLETED", "Hi.")["task"]))

    async with fake_backend() as backend:
        agent = Agent(backend, lambda message: b"")
        backend.plays(play)
        async with serving(routes(agent, history=f"sqlite:///{tmp_path}/talks.db")) as base:
            seen = await PEOPLE["openai-chat"](base, "thread").say("Hello?")
    assert (seen.error, seen.text) == (None, "Hi.")


async def test_two_users_who_name_their_threads_alike_have_two_talks(tmp_path: Path) -> None:
    keys = [{"name": name, "key": f"key-of-{name}"} for name in ("ann", "bob")]
    async with fake_backend() as backend:
        agent = Agent(backend, lambda message: done("Hi.", message.get("contextId") or f"c-{len(agent.asked)}"))
        config = {**routes(agent, history=f"sqlite:///{tmp_path}/talks.db"), "server": {"auth": {"keys": keys}}}
        async with serving(config) as base:
            for text in ("one", "two"):
                for name in ("ann", "bob"):
                    body = {
                        "threadId": "same", "runId": f"{name}-{text}", "state": {}, "tools": [], "context": [],
                        "forwardedProps": {}, "messages": [{"id": text, "role": "user", "content": text}],
                    }  # fmt: skip
                    if text == "two":
                        body["messages"] = [
                            {"id": "one", "role": "user", "content": "one"},
                            {"id": "x", "role": "assistant", "content": "Hi."},
                            *body["messages"],
                        ]  # type: ignore[misc]
                    reply = await post(f"{base}/agui", body, authorization=f"Bearer key-of-{name}")
                    assert b'"threadId":"same"' in reply.body
                    assert b"c-1" not in reply.body
        assert [message.get("contextId") for message in agent.asked] == [None, None, "c-1", "c-2"]


async def test_an_agent_that_names_no_context_is_told_the_talk_each_time(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        said = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hi."}]}}
        agent = Agent(backend, lambda message: [rpc(said)])
        async with serving(routes(agent, history=f"sqlite:///{tmp_path}/talks.db")) as base:
            person = PEOPLE["ag-kit"](base, "thread-a")
            await person.say("I am Ann.")
            await person.say("Who am I?")
        assert agent.texts() == ["user: I am Ann.", "assistant: Hi.", "Who am I?"]


@pytest.mark.parametrize("answers", ["a head is there", "no head is there", "in one piece"])
async def test_a_client_that_leaves_before_the_task_has_a_name_ends_it_all_the_same(
    answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late that is for an answer in one piece, while it is not later than the end of a run may be."""
    if answers == "in one piece":
        monkeypatch.setattr(stepped_backend, "_LAST_EVENTS", 0.1)
    async with fake_backend() as backend:
        begun, left, canceled = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def play(exchange: Exchange) -> None:
            if exchange.seen.method == "GET":
                card = {**CARD, "capabilities": {"streaming": answers != "in one piece"}}
                await exchange.answer(200, json.dumps(card).encode())
            elif exchange.seen.json["method"] == "CancelTask":
                assert exchange.seen.json["params"] == {"id": "t1"}
                canceled.set()
                await exchange.answer(200, rpc(task("CANCELED")["task"]))
            else:
                if answers == "a head is there":
                    await exchange.head()
                    await exchange.send(b": ping\n\n")
                begun.set()
                await left.wait()
                await asyncio.sleep(0.5)
                if answers == "in one piece":
                    await exchange.answer(200, rpc(task("WORKING")))
                    return
                if answers == "no head is there":
                    await exchange.head()
                await exchange.send(b"data: %b\n\n" % rpc(task("SUBMITTED")))
                await exchange.left()

        backend.plays(play)
        config = {"backends": {"it": {"dialect": "a2a", "url": backend.url}}, "routes": [
            {"dialect": "openai-chat", "path": "/chat/v1", "backend": "it"}]}  # fmt: skip
        async with serving(config) as base, asyncio.timeout(20):
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            asking = asyncio.create_task(post(base + CHAT, body))
            await begun.wait()
            await leave(asking)
            left.set()
            await canceled.wait()


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b": hello\n\n"])
async def test_a_stream_that_is_declared_as_json_is_read(start: bytes, end: bytes) -> None:
    async with fake_backend() as backend:
        events = done("Hello.", "c1")
        Agent(backend, lambda message: start + b"".join(b"data: %b%b%b" % (each, end, end) for each in events))
        config = {"backends": {"it": {"dialect": "a2a", "url": backend.url}}, "routes": [
            {"dialect": "openai-chat", "path": "/chat/v1", "backend": "it"}]}  # fmt: skip
        async with serving(config) as base:
            reply = await post(base + CHAT, {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    assert reply.json["choices"][0]["message"]["content"] == "Hello."


@pytest.mark.parametrize("body", [b"oh", b'"oh"', b"null", b""])
async def test_an_answer_that_is_neither_json_nor_a_stream_is_named(body: bytes) -> None:
    async with fake_backend() as backend:
        Agent(backend, lambda message: body)
        config = {"backends": {"it": {"dialect": "a2a", "url": backend.url}}, "routes": [
            {"dialect": "openai-chat", "path": "/chat/v1", "backend": "it"}]}  # fmt: skip
        async with serving(config) as base:
            reply = await post(base + CHAT, {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    assert reply.status == 502
    assert "neither an event stream nor a JSON object" in reply.json["error"]["message"]


async def test_what_an_agent_refuses_is_told_and_nothing_of_the_card() -> None:
    async with fake_backend() as backend:
        agent = Agent(backend, lambda message: error(-32005, "No pictures, please."))
        async with serving(routes(agent, history="off")) as base:
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            reply = await ask("POST", base + CHAT, json.dumps(body).encode(), {"content-type": "application/json"})
        assert reply.status == 502
        assert "No pictures, please." in reply.json["error"]["message"]
        assert agent.others == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "application/json",
            "The agent card could not be read: The backend's answer is longer than the limit of 1048576",
        ),
        (
            "text/event-stream",
            "The agent card (/.well-known/agent-card.json) is not a JSON object, got text/event-stream.",
        ),
    ],
)
async def test_a_card_without_an_end_is_not_read_to_its_end(kind: str, said: str) -> None:
    async with fake_backend() as backend:
        left = asyncio.Event()

        async def play(exchange: Exchange) -> None:
            await exchange.head(content_type=kind)
            with suppress(ConnectionError):
                while True:
                    await exchange.send(b"data: " + b" " * 65536 + b"\n\n")
            left.set()

        backend.plays(play)
        config = {"backends": {"it": {"dialect": "a2a", "url": backend.url}}, "routes": [
            {"dialect": "openai-chat", "path": "/chat/v1", "backend": "it"}]}  # fmt: skip
        async with serving(config) as base, asyncio.timeout(20):
            reply = await post(base + CHAT, {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
            assert reply.status == 502
            assert reply.json["error"]["message"].startswith(said)
            await left.wait()


def test_a_route_that_passes_bytes_through_needs_one_request_for_one_run() -> None:
    backends = {"it": {"dialect": "a2a", "url": "http://127.0.0.1:9"}}
    route = {"dialect": "a2a", "path": "/a", "backend": "it", "passthrough": True}
    with pytest.raises(ConfigError, match="several requests for one run"):
        Bridge.from_config({"backends": backends, "routes": [route], "stores": {"history": "off"}})


async def test_a_client_that_names_no_thread_goes_on_with_the_one_that_it_sees(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        agent = Agent(backend, lambda message: done("Hi.", message.get("contextId") or "c-7"))
        body: dict[str, Any] = {"input": [{"role": "user", "content": [{"type": "text", "text": "one"}]}]}
        headers = {"content-type": "application/json", "x-api-key": "key-of-ann"}
        async with serving(setup("a2a", agent.url, tmp_path)) as base:
            for _ in range(2):
                reply = await ask("POST", f"{base}/agentscope/process", json.dumps(body).encode(), headers)
                body["session_id"] = json.loads(reply.body.split(b"\n\n")[0][6:])["session_id"]
        assert body["session_id"] != "c-7"
        assert [message.get("contextId") for message in agent.asked] == [None, "c-7"]


async def test_messages_go_where_the_card_says_whatever_the_base_is() -> None:
    async with fake_backend() as backend:
        agent = Agent(backend, lambda _: done("Hi.", "c1"))
        agent.url = f"{backend.url}/base"
        async with serving(routes(agent, history="off")) as base:
            reply = await post(base + CHAT, {"model": "m", "messages": [{"role": "user", "content": "Hello"}]})
            assert reply.json["choices"][0]["message"]["content"] == "Hi."
        assert [seen.path for seen in backend.seen] == ["/base/.well-known/agent-card.json", "/rpc"]
