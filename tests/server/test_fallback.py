"""Several backends behind one route: who is asked next and when, who shares the load, who is told what of the talk."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bridge.engine.bridge import Bridge
from bridge.engine.route import RunCaller
from bridge.errors import ErrorCode, Failure
from bridge.model import Message, Request, Text, UsageReported
from bridge.run.breaker import CircuitBreaker
from bridge.run.retries import RetryBudget, RetryPolicy, asked_pause
from tests.pairs.agents import AGENTS, Agent, Say
from tests.pairs.clients import agentscope_client, openai_client
from tests.server.harness import Exchange, FakeBackend, Reply, fake_backend, free_port, post, serving

DIALECTS = {"llm": "openai-chat", "claude": "anthropic-messages", "scope": "agentscope"}
HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def config(backends: dict[str, FakeBackend | str], choice: Any, sections: dict[str, Any] | None = None) -> dict:
    """One route of chat completions over these backends; `sections`: more keys of a backend, by its name."""
    urls = {name: b if isinstance(b, str) else b.url for name, b in backends.items()}
    return {
        "backends": {
            name: {"dialect": DIALECTS.get(name, "openai-chat"), "url": url, **(sections or {}).get(name, {})}
            for name, url in urls.items()
        },
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": choice}],
    }


async def ask(base: str, **more: Any) -> Reply:
    return await post(f"{base}/v1/chat/completions", {**HELLO, **more})


def text(reply: Reply) -> str:
    return reply.json["choices"][0]["message"]["content"]


@pytest.fixture
async def two() -> Any:
    """A chat model and a model of another dialect; the second one always answers."""
    async with fake_backend("openai-chat") as llm, fake_backend("anthropic-messages") as claude:
        claude.says("from claude")
        yield {"llm": llm, "claude": claude}


# ---------------------------------------------------------------------- in order


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 401, 403])
async def test_the_next_backend_answers_in_its_own_dialect(two: dict[str, FakeBackend], status: int) -> None:
    two["llm"].answers(status, b'{"error":{"message":"not now"}}')
    async with serving(config(two, ["llm", "claude"])) as base:
        reply = await ask(base)
        assert (reply.status, text(reply)) == (200, "from claude")
        assert two["claude"].seen[0].path == "/v1/messages"
        assert two["claude"].seen[0].json["messages"] == [{"role": "user", "content": "Hello"}]
        streamed = await ask(base, stream=True)
        assert b"from claude" in streamed.body
        assert streamed.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"error":{"message":"no such parameter"}}'),
        (404, b'{"error":{"message":"no such model"}}'),
        (413, b'{"error":{"message":"too long"}}'),
        (422, b'{"error":{"message":"no"}}'),
        (400, b'{"error":{"message":"too many tokens","code":"context_length_exceeded"}}'),
    ],
)
async def test_what_is_the_clients_fault_is_asked_nobody_else(
    two: dict[str, FakeBackend], status: int, body: bytes
) -> None:
    two["llm"].answers(status, body)
    async with serving(config(two, ["llm", "claude"])) as base:
        assert (await ask(base)).status == status
        assert two["claude"].seen == []


async def test_a_backend_that_is_away_or_hangs_up(two: dict[str, FakeBackend]) -> None:
    async def hang_up(exchange: Exchange) -> None:
        exchange.reset()

    two["llm"].plays(hang_up)
    nobody = f"http://127.0.0.1:{free_port()}"
    async with serving(config({"away": nobody, **two}, ["away", "llm", "claude"])) as base:
        assert text(await ask(base)) == "from claude"
        assert len(two["llm"].seen) == 1


async def test_a_backend_that_is_silent(two: dict[str, FakeBackend]) -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.left()

    two["llm"].plays(silent)
    sections = {"llm": {"timeouts": {"first_event": "100ms"}}}
    async with serving(config(two, ["llm", "claude"], sections)) as base:
        assert text(await ask(base)) == "from claude"


async def test_its_own_retries_come_first(two: dict[str, FakeBackend]) -> None:
    two["llm"].answers(503, b"{}", retry_after="0")
    sections = {"llm": {"retry": {"attempts": 3, "backoff": "1ms"}}}
    async with serving(config(two, ["llm", "claude"], sections)) as base:
        assert text(await ask(base)) == "from claude"
        assert len(two["llm"].seen) == 3


async def test_nobody_else_is_asked_after_content(two: dict[str, FakeBackend]) -> None:
    two["llm"].breaks_off("half of")
    async with serving(config(two, ["llm", "claude"])) as base:
        reply = await ask(base, stream=True)
        assert b"half of" in reply.body
        assert b"broke in the middle" in reply.body
        assert two["claude"].seen == []


async def test_when_all_fail_the_last_one_is_told_with_its_headers(two: dict[str, FakeBackend]) -> None:
    two["llm"].answers(500, b"{}")
    two["claude"].answers(
        429, b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}', retry_after="9"
    )
    async with serving(config(two, ["llm", "claude"])) as base:
        reply = await ask(base)
        assert (reply.status, reply.headers["retry-after"]) == (429, "9")


async def test_a_backend_that_cannot_be_told_the_request_is_passed_over(two: dict[str, FakeBackend]) -> None:
    """Anthropic's API takes no sound; the failure of the one that was asked is what the client hears."""
    two["llm"].answers(503, b'{"error":{"message":"not now"}}')
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    async with serving(config(two, ["llm", "claude"])) as base:
        reply = await ask(base, messages=[{"role": "user", "content": [sound]}])
        assert (reply.status, two["claude"].seen) == (503, [])
    two["llm"].says("heard")
    async with serving(config(two, ["claude", "llm"])) as base:
        # Asked first, it is what the client is told of: another order would hide a mistake in the configuration.
        assert (await ask(base, messages=[{"role": "user", "content": [sound]}])).status == 400


async def test_the_log_says_who_answered(two: dict[str, FakeBackend], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    two["llm"].answers(503, b"{}")
    async with serving(config(two, ["llm", "claude"])) as base:
        await post(f"{base}/v1/chat/completions", HELLO, x_request_id="r-1")
        two["llm"].says("fine")
        await post(f"{base}/v1/chat/completions", HELLO, x_request_id="r-2")
    first, second = (record.facts for record in caplog.records if record.name == "bridge.access")
    assert (first["request_id"], first["back"], first["tried"]) == ("r-1", "claude", "llm,claude")
    assert (second["request_id"], second["back"]) == ("r-2", "llm")
    assert "tried" not in second
    assert [r.getMessage() for r in caplog.records if "trying claude" in r.getMessage()]


async def test_losses_of_a_backend_that_was_left_are_not_told(two: dict[str, FakeBackend]) -> None:
    """Anthropic's API cannot say `seed`; the model that answers can."""
    for backend in two.values():
        backend.says("fine", UsageReported(1, 1))
    async with serving(config(two, ["claude", "llm"])) as base:
        assert (await ask(base, seed=7)).headers["x-bridge-lost"] == "sampling"
        two["claude"].answers(503, b"{}")
        reply = await ask(base, seed=7)
        assert (reply.status, two["llm"].seen[0].json["seed"]) == (200, 7)
        assert "x-bridge-lost" not in reply.headers


async def test_the_model_that_is_shown_is_that_of_who_answers(two: dict[str, FakeBackend]) -> None:
    two["llm"].answers(503, b"{}")
    sections = {"llm": {"model": "big"}, "claude": {"model": "small"}}
    async with serving(config(two, ["llm", "claude"], sections)) as base:
        assert text(await ask(base)) == "from claude"
        assert two["claude"].seen[0].json["model"] == "m"
    sections = {"llm": {"model_map": {"*": "big"}}, "claude": {"model_map": {"*": "small"}}}
    async with serving(config(two, ["llm", "claude"], sections)) as base:
        await ask(base)
        assert (two["llm"].seen[-1].json["model"], two["claude"].seen[-1].json["model"]) == ("big", "small")


async def test_lists_in_models(two: dict[str, FakeBackend]) -> None:
    two["llm"].answers(503, b"{}")
    setup = config(two, "llm")
    setup["routes"][0] = {"dialect": "openai-chat", "path": "/v1", "models": {"m": ["llm", "claude"], "alone": "llm"}}
    async with serving(setup) as base:
        assert text(await ask(base)) == "from claude"
        assert (await ask(base, model="alone")).status == 503


async def test_a_durable_route_falls_over_too(two: dict[str, FakeBackend], tmp_path: Path) -> None:
    two["llm"].answers(503, b"{}")
    setup = config(two, ["llm", "claude"])
    setup["routes"][0]["durable"] = True
    async with serving({**setup, "stores": {"runs": f"sqlite:///{tmp_path}/runs.db"}}) as base:
        assert text(await ask(base)) == "from claude"


async def test_a_client_that_leaves_leaves_the_second_one_too(two: dict[str, FakeBackend]) -> None:
    asked = asyncio.Event()

    async def thinking(exchange: Exchange) -> None:
        await exchange.head()
        asked.set()
        await exchange.left()

    two["llm"].answers(503, b"{}")
    two["claude"].plays(thinking)
    async with serving(config(two, ["llm", "claude"])) as base:
        client = asyncio.create_task(ask(base, stream=True))
        await asked.wait()
        client.cancel()
        await asyncio.wait_for(two["claude"].seen[0].gone.wait(), 40)


async def test_tokens_are_counted_by_who_can() -> None:
    async with fake_backend() as down, fake_backend() as up:
        down.answers(503, b"{}")
        up.answers(200, b'{"input_tokens": 42}')
        setup = config({"one": down, "two": up}, ["one", "two"])
        for section in setup["backends"].values():
            section["dialect"] = "anthropic-messages"
        setup["routes"][0] = {"dialect": "anthropic-messages", "path": "/v1", "backend": ["one", "two"]}
        async with serving(setup) as base:
            reply = await post(f"{base}/v1/messages/count_tokens", HELLO)
            assert reply.json == {"input_tokens": 42}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"404 page not found"),
        (400, b'{"error": {"message": "NoResourceFoundException: 404 NOT_FOUND", "type": "invalid_request_error"}}'),
        (400, b'{"error": {"message": "Unsupported method: countTokens"}}'),
        (500, b'{"error": "No static resource v1/messages/count_tokens."}'),
        (200, b"<html></html>"),
        (200, b'{"type": "message", "content": [], "usage": {"input_tokens": 5}}'),
    ],
)
async def test_tokens_are_estimated_where_a_backend_counts_none(status: int, body: bytes) -> None:
    async with fake_backend("anthropic-messages") as backend:
        backend.answers(status, body)
        config = {
            "backends": {"it": {"dialect": "anthropic-messages", "url": backend.url}},
            "routes": [{"dialect": "anthropic-messages", "path": "/v1", "backend": "it"}],
        }
        async with serving(config) as base:
            reply = await post(f"{base}/v1/messages/count_tokens", HELLO)
            assert (reply.status, reply.headers["x-bridge-estimated"], reply.json["estimated"]) == (200, "tokens", True)
            backend.answers(400, b'{"error": {"message": "messages: at least one is required"}}')
            assert (await post(f"{base}/v1/messages/count_tokens", HELLO)).status == 400
            backend.answers(401, b'{"error": {"message": "404 keys"}}')
            assert (await post(f"{base}/v1/messages/count_tokens", HELLO)).status == 502


# ---------------------------------------------------------------------- who knows the talk


class Team:
    """Two backends behind AgentScope's and OpenAI's clients: one keeps the talk by an id, the other forgets."""

    def __init__(self, keeper: Agent, forgetter: Agent) -> None:
        self.keeper, self.forgetter = keeper, forgetter
        for agent in (keeper, forgetter):
            agent.brain = lambda heard: [Say(f"answer {len(heard.spoken)}")]
        self._plays = keeper.backend.script, forgetter.backend.script

    def only(self, agent: Agent) -> None:
        """From now on only this one is well."""
        for each, script in zip((self.keeper, self.forgetter), self._plays, strict=True):
            if each is agent:
                each.backend.script = script
            else:
                each.backend.answers(503, b"{}")


@pytest.mark.parametrize("client", [agentscope_client, openai_client], ids=["increments", "whole"])
async def test_every_backend_hears_the_whole_talk_once(client: Any, tmp_path: Path) -> None:
    async with fake_backend() as one, fake_backend() as other:
        team = Team(AGENTS["agentscope"](one), AGENTS["openai-chat"](other))
        setup = {
            "backends": {
                "keeper": {"dialect": "agentscope", "url": one.url},
                "forgetter": {"dialect": "openai-chat", "url": other.url},
            },
            "routes": [
                {"dialect": "agentscope", "path": "/scope", "backend": ["keeper", "forgetter"]},
                {"dialect": "openai-chat", "path": "/chat/v1", "backend": ["keeper", "forgetter"]},
            ],
            "stores": {"history": f"sqlite:///{tmp_path}/talks.db"},
        }
        conversation: list[dict[str, str]] = []
        async with serving(setup) as base:
            for number, agent in enumerate("kkffkkf"):
                who = team.keeper if agent == "k" else team.forgetter
                team.only(who)
                conversation.append({"role": "user", "content": f"question {number}"})
                seen = await client(base, conversation if client is openai_client else conversation[-1:])
                assert seen.text == f"answer {len(conversation)}"
                conversation.append({"role": "assistant", "content": seen.text})
                spoken = [entry for entry in who.heard[-1].spoken if entry[0] != "system"]
                assert spoken == [(m["role"], m["content"]) for m in conversation[:-1]]
            # What it knew already it was not told again.
            sent = [len(seen.json["input"]) for seen in one.seen if seen.json["input"][-1]["content"]]
            assert sent[1] == 1


# ---------------------------------------------------------------------- sharing the load


def names(bridge: Bridge, **asked: Any) -> str:
    route = bridge.routes[0]
    request = Request([Message("user", [Text("x")])], **asked)
    return route.group_for(request).order(f"\0{request.thread_id}")[0].name


def test_weights_share_the_load_by_conversation() -> None:
    weighted = [{"name": "a", "weight": 3}, {"name": "b", "weight": 1}]
    bridge = Bridge.from_config(config({"a": "http://a", "b": "http://b"}, weighted))
    drawn = [names(bridge, thread_id=f"t{n}") for n in range(4000)]
    # Nothing is random here: these names give this count, on every machine.
    assert 2900 < drawn.count("a") < 3100
    assert drawn == [names(bridge, thread_id=f"t{n}") for n in range(4000)]


async def test_the_others_are_fallbacks_of_who_was_drawn() -> None:
    async with fake_backend("openai-chat") as up:
        up.says("fine")
        nobody = f"http://127.0.0.1:{free_port()}"
        weighted = [{"name": "down", "weight": 1000}, {"name": "up"}]
        async with serving(config({"down": nobody, "up": up}, weighted)) as base:
            assert [(await ask(base)).status for _ in range(5)] == [200] * 5


async def test_requests_without_a_conversation_are_spread() -> None:
    async with AsyncExitStack() as stack:
        backends = {name: await stack.enter_async_context(fake_backend("openai-chat")) for name in ("a", "b")}
        for backend in backends.values():
            backend.says("fine")
        base = await stack.enter_async_context(serving(config(backends, [{"name": "a"}, {"name": "b"}])))
        await asyncio.gather(*(ask(base) for _ in range(60)))
        # One of them getting nothing has the chance of 2 in 2**60.
        assert backends["a"].seen
        assert backends["b"].seen


# ---------------------------------------------------------------------- the breaker


async def test_a_failing_backend_is_left_alone_and_found_again(two: dict[str, FakeBackend]) -> None:
    sections = {"llm": {"breaker": {"failures": 2, "open_for": "200ms"}}}
    two["llm"].answers(500, b"{}")
    async with serving(config(two, ["llm", "claude"], sections)) as base:
        for _ in range(5):
            assert text(await ask(base)) == "from claude"
        assert len(two["llm"].seen) == 2
        two["llm"].says("back again")
        async with asyncio.timeout(40):
            while text(await ask(base)) != "back again":
                await asyncio.sleep(0.02)
        assert len(two["llm"].seen) == 3
        assert text(await ask(base)) == "back again"


async def test_alone_it_is_refused_with_the_time_to_come_back() -> None:
    async with fake_backend() as llm:
        llm.answers(503, b'{"error":{"message":"not now"}}')
        sections = {"llm": {"breaker": {"failures": 1, "open_for": "5s"}, "retry": {"attempts": 3, "backoff": "1ms"}}}
        async with serving(config({"llm": llm}, "llm", sections)) as base:
            first, second = await ask(base), await ask(base)
            # Not even its own retries go on when it has opened.
            assert len(llm.seen) == 1
            assert (first.status, second.status) == (503, 503)
            assert first.json["error"]["message"] == "not now"
            assert 1 <= int(second.headers["retry-after"]) <= 5
            assert second.json["error"]["message"].startswith("The backend failed several times in a row")


@pytest.mark.parametrize("how", ["cut", "silent", "refused"])
async def test_what_counts_as_a_failure(how: str) -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.left()

    async with fake_backend("openai-chat") as llm:
        url = llm.url
        if how == "cut":
            llm.breaks_off("half of")
        elif how == "silent":
            llm.plays(silent)
        else:
            url = f"http://127.0.0.1:{free_port()}"
        section = {"breaker": {"failures": 2, "open_for": "1h"}, "timeouts": {"first_event": "50ms"}}
        async with serving(config({"llm": url}, "llm", {"llm": section})) as base:
            last = [await ask(base, stream=True) for _ in range(3)][-1]
            assert last.json["error"]["message"].startswith("The backend failed several times in a row")


@pytest.mark.parametrize("status", [400, 404, 408, 422, 429])
async def test_what_does_not_count(status: int) -> None:
    async with fake_backend() as llm:
        llm.answers(status, b'{"error":{"message":"no"}}')
        async with serving(config({"llm": llm}, "llm", {"llm": {"breaker": {"failures": 1}}})) as base:
            for _ in range(3):
                await ask(base)
            assert len(llm.seen) == 3


async def test_a_client_that_hangs_up_is_no_failure() -> None:
    asked = asyncio.Queue[Exchange]()

    async def thinking(exchange: Exchange) -> None:
        asked.put_nowait(exchange)
        await exchange.left()

    async with fake_backend("openai-chat") as llm:
        llm.plays(thinking)
        async with serving(config({"llm": llm}, "llm", {"llm": {"breaker": {"failures": 1}}})) as base:
            client = asyncio.create_task(ask(base))
            exchange = await asked.get()
            client.cancel()
            await asyncio.wait_for(exchange.left(), 40)
            llm.says("fine")
            assert text(await ask(base)) == "fine"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


FAULT = Failure(ErrorCode.BACKEND_UNAVAILABLE, "")


def opened(failures: int = 1) -> tuple[CircuitBreaker, Clock]:
    clock = Clock()
    breaker = CircuitBreaker("it", failures, 10, clock=clock)
    for _ in range(failures):
        breaker.admit().ended(FAULT)
    assert breaker.is_open
    return breaker, clock


def test_one_call_at_a_time_probes() -> None:
    breaker, clock = opened()
    clock.now += 10
    probe = breaker.admit()
    assert breaker.refuses
    probe.dropped()
    second = breaker.admit()
    second.ended(FAULT)
    assert breaker.refuses
    clock.now += 10
    third = breaker.admit()
    third.answered()
    assert not breaker.is_open
    # Its stream is cut later: that counts, like that of any other call.
    third.ended(FAULT)
    assert breaker.is_open


def test_calls_from_before_say_nothing_of_the_time_after() -> None:
    clock = Clock()
    breaker = CircuitBreaker("it", 1, 10, clock=clock)
    good, bad = breaker.admit(), breaker.admit()
    breaker.admit().ended(FAULT)
    good.ended(None)
    assert breaker.is_open
    clock.now += 10
    breaker.admit().answered()
    bad.ended(FAULT)
    assert not breaker.is_open


def test_failures_count_in_a_row_only() -> None:
    breaker = CircuitBreaker("it", 2, 10)
    for outcome in (FAULT, None, FAULT, Failure(ErrorCode.INVALID_REQUEST, "")):
        breaker.admit().ended(outcome)
    assert not breaker.is_open
    breaker.admit().ended(FAULT)
    assert breaker.is_open


@pytest.mark.parametrize(("code", "open_after"), [(ErrorCode.INVALID_REQUEST, False), (ErrorCode.RUN_TIMEOUT, True)])
def test_a_refusal_ends_the_probing_and_a_limit_of_ours_does_not(code: ErrorCode, open_after: bool) -> None:
    breaker, clock = opened()
    clock.now += 10
    breaker.admit().ended(Failure(code, ""))
    assert breaker.is_open is open_after
    assert not breaker.refuses


# ---------------------------------------------------------------------- the budget of retries


async def test_repeated_calls_are_a_share_of_all() -> None:
    async with fake_backend() as llm:
        llm.answers(503, b"{}", retry_after="0")
        section = {"retry": {"attempts": 4, "backoff": "0ms", "budget": 0.5}}
        async with serving(config({"llm": llm}, "llm", {"llm": section})) as base:
            for _ in range(40):
                await ask(base)
        # 40 first calls, ten that were saved at the start, and a half for each request since then.
        assert 40 + 10 <= len(llm.seen) <= 40 + 10 + 20
    async with fake_backend() as llm:
        llm.answers(503, b"{}", retry_after="0")
        section["retry"]["budget"] = 0
        async with serving(config({"llm": llm}, "llm", {"llm": section})) as base:
            await ask(base)
        assert len(llm.seen) == 1


def test_what_is_saved_has_a_bound() -> None:
    budget = RetryBudget(0.5)
    for _ in range(1000):
        budget.called()
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]


def test_retry_after_may_be_a_date() -> None:
    def pause(text: str) -> float | None:
        return asked_pause(Failure(ErrorCode.OVERLOADED, "", headers={"retry-after": text}), lambda: 784111767.0)

    assert pause("Sun, 06 Nov 1994 08:49:37 GMT") == 10
    assert pause("Sun, 06 Nov 1994 08:49:07 GMT") == 0
    assert (pause("2.5"), pause(" 3 "), pause("soon"), pause(""), pause("-1")) == (2.5, 3, None, None, None)
    date = Failure(ErrorCode.OVERLOADED, "", headers={"retry-after": "Sun, 06 Nov 2994 08:49:37 GMT"})
    assert RetryPolicy(attempts=2).pause(date, 1) is None


def test_pauses_double_within_their_bounds() -> None:
    retry, failure = RetryPolicy(attempts=9, backoff=1, max_backoff=4), Failure(ErrorCode.OVERLOADED, "")
    for attempt, longest in ((1, 1), (2, 2), (3, 4), (7, 4)):
        pauses = [retry.pause(failure, attempt) for _ in range(50)]
        assert all(p is not None and longest / 2 <= p <= longest for p in pauses)
        assert len(set(pauses)) > 1


async def test_a_run_in_the_library_falls_over(two: dict[str, FakeBackend]) -> None:
    two["llm"].answers(503, b"{}")
    async with Bridge.from_config({**config(two, ["llm", "claude"]), "stores": {"history": "off"}}) as bridge:
        request = Request([Message("user", [Text("Hello")])], model="m")
        run = await bridge.run(bridge.routes[0], request, caller=RunCaller())
        while not run.ended:
            await run.read()
        await run.close()
        assert (run.backend.name, run.tries.backends) == ("claude", ["llm", "claude"])
