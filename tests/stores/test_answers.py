"""Stored responses, judged by the real SDK: found again, continued, branched and forgotten, on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from bridge.contract import StoredAnswer
from bridge.model import Message, Text
from bridge.run.conversation.response_store import ResponseStore
from bridge.stores import Bounds, Conversation
from tests.pairs.agents import AGENTS, Agent, Fall, Hang, Say, Think, Use
from tests.pairs.test_conversations import responses_stream, responses_text
from tests.responses_judge import judge, wire_events
from tests.server.harness import ask, fake_backend, serving
from tests.stores.conftest import Engine

PARIS = ("call_1", "get_weather", '{"city":"Paris"}')
WEATHER: Any = {"type": "function", "name": "get_weather", "strict": False, "parameters": {"type": "object"}}
JSON = {"content-type": "application/json", "authorization": "Bearer key-a"}

backs = pytest.mark.parametrize("back", AGENTS)


@asynccontextmanager
async def bridged(
    agent: Agent, history: str | dict[str, str], **route: Any
) -> AsyncIterator[tuple[openai.AsyncOpenAI, str]]:
    """The client of owner `a`, and the address."""
    config = {
        "server": {"auth": {"keys": [{"name": n, "key": f"key-{n}", "routes": ["*"]} for n in ("a", "b")]}},
        "backends": {"it": {"dialect": agent.dialect, "url": agent.url, "options": agent.options}},
        "routes": [{"dialect": "openai-responses", "path": p, "backend": "it", **route} for p in ("/v1", "/other/v1")],
        "stores": {"history": history} if isinstance(history, str) else history,
    }
    async with (
        serving(config) as base,
        openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="key-a", max_retries=0) as client,
    ):
        yield client, base


async def created(client: openai.AsyncOpenAI, streamed: bool = True, **asked: Any) -> Response:
    if not streamed:
        whole: Response = await client.responses.create(model="m", **asked)
        return whole
    events = [e async for e in await client.responses.create(model="m", stream=True, **asked)]
    judge([e.to_dict() for e in events])
    answer: Response = events[-1].response
    return answer


@backs
async def test_a_talk_branches_and_survives_a_restart(engine: Engine, back: str) -> None:
    async with fake_backend() as backend:
        agent = AGENTS[back](backend)
        agent.brain = lambda heard: [Say(f"To {heard.last[1]}.")]
        async with bridged(agent, engine.url) as (client, _):
            first = await created(client, input="One", instructions="Be brief.")
            assert (first.store, first.previous_response_id) == (True, None)
            second = await created(client, False, input="Two", previous_response_id=first.id)
            assert second.previous_response_id == first.id
        async with bridged(agent, engine.url) as (client, _):
            # Two at once go on from the first, which was continued already.
            left, right = await asyncio.gather(
                *(created(client, input=text, previous_response_id=first.id) for text in ("Left", "Right"))
            )
            await created(client, input="Three", previous_response_id=second.id)
            assert (left.output_text, right.output_text) == ("To Left.", "To Right.")
            for known in (first, second, left, right):
                found = await client.responses.retrieve(known.id)
                assert found.to_dict() == known.to_dict()
        conversations = [[e for e in h.spoken if e[0] != "system"] for h in agent.heard]
    one, two = ("user", "One"), [("user", "Two"), ("assistant", "To Two.")]
    begun = [one, ("assistant", "To One.")]
    assert conversations[:2] == [[one], [*begun, ("user", "Two")]]
    assert sorted(conversations[2:4]) == [[*begun, ("user", "Left")], [*begun, ("user", "Right")]]
    assert conversations[4] == [*begun, *two, ("user", "Three")]
    assert agent.heard[0].spoken[0][0] == "system" or back.startswith("ag-kit")
    assert not any(e[0] == "system" for h in agent.heard[1:] for e in h.spoken), "instructions hold for one request"


@pytest.mark.parametrize("back", ["openai-chat", "anthropic-messages"])
async def test_calls_are_answered_in_the_next_request(engine: Engine, back: str) -> None:
    async with fake_backend() as backend:
        agent = AGENTS[back](backend)
        agent.brain = lambda heard: (
            [Say("Sunny.")] if heard.last[0] == "result" else [Think("Hm."), Say("I look."), Use(*PARIS)]
        )
        async with bridged(agent, engine.url) as (client, _):
            asked = await created(client, input="Paris?", tools=[WEATHER])
            item = asked.output[-1]
            assert item.type == "function_call"
            result: Any = {"type": "function_call_output", "call_id": "call_1", "output": "sun"}
            answer = await created(client, input=[result], previous_response_id=asked.id, tools=[WEATHER])
            assert answer.output_text == "Sunny."
            # Items may be pointed at one by one, too.
            pointed: Any = [{"type": "item_reference", "id": i.id} for i in [*asked.output, answer.output[-1]]]
            again = [{"role": "user", "content": "Paris?"}, *pointed[:-1], result, pointed[-1]]
            await created(client, input=[*again, {"role": "user", "content": "Thanks"}])
    expected = [("user", "Paris?"), ("assistant", "I look."), ("call", *PARIS), ("result", "call_1", "sun")]
    assert agent.heard[1].conversation == expected
    assert agent.heard[2].conversation == [*expected, ("assistant", "Sunny."), ("user", "Thanks")]


async def test_whose_answer_it_is(engine: Engine) -> None:
    """Another owner, and another route, find nothing."""
    async with fake_backend() as backend:
        agent = AGENTS["openai-chat"](backend)
        async with bridged(agent, engine.url) as (client, base):
            known = await created(client, input="Hi")
            strangers = [client.with_options(api_key="key-b"), client.with_options(base_url=f"{base}/other/v1")]
            for stranger in strangers:
                with pytest.raises(openai.NotFoundError) as lost:
                    await stranger.responses.retrieve(known.id)
                assert (lost.value.param, lost.value.code) == ("id", "not_found")
                with pytest.raises(openai.NotFoundError):
                    await stranger.responses.delete(known.id)
                with pytest.raises(openai.BadRequestError) as refused:
                    await created(stranger, input="More", previous_response_id=known.id)
                assert (refused.value.param, refused.value.code) == (
                    "previous_response_id", "previous_response_not_found",
                )  # fmt: skip
                pointed: Any = [{"type": "item_reference", "id": known.output[0].id}]
                with pytest.raises(openai.NotFoundError) as nothing:
                    await created(stranger, input=pointed)
                assert (nothing.value.param, nothing.value.code) == ("input[0]", "item_not_found")
            assert len(agent.heard) == 1
            assert (await client.responses.retrieve(known.id)).id == known.id


async def test_a_deleted_answer_is_gone_and_what_followed_stays(engine: Engine) -> None:
    async with fake_backend() as backend:
        agent = AGENTS["openai-chat"](backend)
        async with bridged(agent, engine.url) as (client, base):
            first = await created(client, input="One")
            second = await created(client, input="Two", previous_response_id=first.id)
            deleted = await ask("DELETE", f"{base}/v1/responses/{first.id}", headers=JSON)
            assert (deleted.status, deleted.json) == (200, {"id": first.id, "object": "response", "deleted": True})
            with pytest.raises(openai.NotFoundError):
                await client.responses.delete(first.id)
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(first.id)
            with pytest.raises(openai.BadRequestError):
                await created(client, input="More", previous_response_id=first.id)
            await created(client, input="Three", previous_response_id=second.id)
    assert [e[1] for e in agent.heard[-1].spoken] == ["One", "ok", "Two", "ok", "Three"]


@pytest.mark.parametrize("streamed", [True, False])
async def test_what_is_not_kept(engine: Engine, streamed: bool) -> None:
    """`store: false`, what failed, and what its client did not wait for."""
    async with fake_backend() as backend:
        agent = AGENTS["openai-chat"](backend)
        async with bridged(agent, engine.url) as (client, _):
            answer = await created(client, streamed, input="Hi", store=False)
            assert answer.store is False
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(answer.id)
            agent.brain = lambda heard: [Say("Half"), Fall()]
            with pytest.raises(openai.APIError, match="the model fell over"):
                await created(client, input="Hi")
            events = await wire_events(client, model="m", input="Hi")
            judge(events)
            assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(events[-1]["response"]["id"])
            agent.brain = lambda heard: [Say("Half"), Hang()]
            stream = await client.responses.create(model="m", input="Hi", stream=True)
            begun = await anext(aiter(stream))
            await stream.close()
            assert begun.type == "response.created"
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(begun.response.id)


async def test_what_cannot_be_served_is_said(engine: Engine) -> None:
    async with fake_backend() as backend, bridged(AGENTS["openai-chat"](backend), engine.url) as (client, base):
        known = await created(client, input="Hi")
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.retrieve(known.id, stream=True)
        assert refused.value.param == "stream"
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model="m", input="Hi", conversation="conv_1")
        assert refused.value.param == "conversation"
        long = await ask("GET", f"{base}/v1/responses/{'x' * 600}", headers=JSON)
        assert (long.status, long.json["error"]["type"]) == (400, "invalid_request_error")


async def test_a_store_that_is_down_takes_no_answer_away(engine: Engine) -> None:
    async with fake_backend() as backend:
        agent = AGENTS["openai-chat"](backend)
        async with bridged(agent, engine.url) as (client, _):
            known = await created(client, input="Hi")
            await engine.down()
            assert (await created(client, input="Hi")).output_text == "ok"
            more = created(client, input="More", previous_response_id=known.id)
            for attempt in (client.responses.retrieve(known.id), more):
                with pytest.raises(openai.InternalServerError) as down:
                    await attempt
                assert (down.value.status_code, down.value.code) == (503, "store_unavailable")
            await engine.up()
            assert (await client.responses.retrieve(known.id)).id == known.id


async def test_where_the_backend_keeps_them_the_bridge_does_not(engine: Engine) -> None:
    async with fake_backend() as backend:
        agent = AGENTS["openai-responses"](backend)
        backend.streams(*responses_stream(responses_text("Hi")))
        async with bridged(agent, engine.url, options={"stored": "backend"}) as (client, _):
            answer = await created(client, input="Hi", store=True, previous_response_id="resp_0")
            sent = backend.seen[0].json
            assert (sent["store"], sent["previous_response_id"]) == (True, "resp_0")
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(answer.id)


@pytest.mark.parametrize("route", [{"durable": True}, {"options": {"stored": "refuse"}}])
async def test_routes_that_keep_none(tmp_path: Path, route: dict[str, Any]) -> None:
    async with fake_backend() as backend:
        agent = AGENTS["openai-chat"](backend)
        stores = {"history": f"sqlite:///{tmp_path}/h.db", "runs": f"sqlite:///{tmp_path}/r.db"}
        async with bridged(agent, stores, **route) as (client, _):
            answer = await created(client, input="Hi")
            assert answer.store is False
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(answer.id)
            with pytest.raises(openai.BadRequestError) as refused:
                await created(client, input="Hi", previous_response_id=answer.id)
            assert refused.value.param == "previous_response_id"


async def test_answers_do_not_push_out_conversations(engine: Engine) -> None:
    history = engine.history(bounds=Bounds(conversations=2))
    await history.commit("me", "/v1", Conversation("talk"), [Message("user", [Text("Hi")])])
    answers = ResponseStore(history, "me", "/v1")
    for number in range(3):
        await answers.keep(StoredAnswer(f"resp_{number}", {"n": number}, [Message("user", [Text("Hi")])]))
    assert await history.load("me", "/v1", "talk") is not None
    assert [await answers.find(f"resp_{n}") is not None for n in range(3)] == [False, True, True]


async def test_the_end_of_an_answer_is_kept_once(engine: Engine) -> None:
    """By whoever comes first, and not at all where the answer was forgotten meanwhile."""
    asked, said = [Message("user", [Text("Hi")])], [Message("assistant", [Text("Ho")])]
    begun = StoredAnswer("resp_1", {"status": "queued"}, asked, "1", ended=False)
    looked: list[str] = []

    async def look(answer: StoredAnswer) -> StoredAnswer:
        looked.append(answer.id)
        return StoredAnswer(answer.id, {"status": "completed"}, [*asked, *said], answer.run_id)

    one, other = (ResponseStore(engine.history(), "me", "/v1", look) for _ in range(2))
    await one.keep(begun)
    assert await one.load("resp_1") == begun
    found = await asyncio.gather(one.find("resp_1"), other.find("resp_1"))
    assert [f.body for f in found if f] == [{"status": "completed"}] * 2
    assert len(looked) <= 2
    assert (kept := await other.load("resp_1")) is not None
    assert (kept.ended, kept.run_id, kept.messages) == (True, "1", [*asked, *said])
    assert await one.settle(StoredAnswer("resp_1", {"status": "failed"}, asked, "1")), "the first end counts"
    assert await other.load("resp_1") == kept
    assert await one.delete("resp_1")
    assert not await other.settle(kept)
    assert await one.load("resp_1") is None
