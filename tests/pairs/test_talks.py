"""Every frontend over every backend as a conversation of several turns: what people see, and what the agent hears."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest

from bridge.contract import registry
from bridge.run.backends.demo_backend import PICTURE
from tests.pairs.agents import AGENTS as DIRECT
from tests.pairs.agents import BREAKS, Agent, Ask, Fall, Hang, Heard, Ran, Say, Step, Think, Use
from tests.pairs.agents.runs import RUNS
from tests.pairs.clients import Seen
from tests.pairs.people import PEOPLE, ChatPerson, Person, Question, leave, routes
from tests.server.harness import fake_backend, serving

AGENTS: dict[str, type[Agent]] = {**DIRECT, **RUNS}
DATA_URL = f"data:image/png;base64,{PICTURE}"
PARIS = ("call_1", "get_weather", '{"city": "Paris"}')
ROME = ("call_2", "get_weather", '{"city": "Rome"}')

# Dialects whose backends have a rule for the names of tools.
RULED = ("openai-chat", "openai-responses", "anthropic-messages")

Pair = tuple[str, str]
Test = TypeVar("Test", bound=Callable[..., Any])


def of(*pairs: Pair) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("front", "back"), [pytest.param(p, a, id=f"{p} to {a}") for p, a in pairs])


def sampled(cases: pytest.MarkDecorator) -> Callable[[Test], Test]:
    """Nine agents: every seventh pair has each client and each agent in it."""
    return lambda test: pytest.mark.sampled(7)(pytest.mark.turns(4)(cases(test)))


PAIRS = [(p, a) for p in PEOPLE for a in AGENTS]
pairs = sampled(of(*PAIRS))
waiting = sampled(of(*((p, a) for p, a in PAIRS if AGENTS[a].interrupts)))
running = sampled(of(*((p, a) for p, a in PAIRS if AGENTS[a].runs_tools)))
# The first generation of AG-Kit has no pictures on its wire.
showing = sampled(of(*((p, a) for p, a in PAIRS if p != "ag-kit")))
# With one dialect on both sides the backend decides what it makes of a name.
renaming = sampled(of(*((p, a) for p, a in PAIRS if PEOPLE[p].dialect != a or a not in RULED)))
increments = of(
    *(
        (p, a)
        for p in ("agentscope", "ag-kit", "ag-kit-2")
        for a in ("openai-chat", "openai-responses", "anthropic-messages", "ag-ui", *RUNS)
    )
)


def _each_once(fronts: list[str], backs: list[str]) -> list[Pair]:
    """As few pairs as have each frontend and each backend in them."""
    return [(fronts[n % len(fronts)], backs[n % len(backs)]) for n in range(max(len(fronts), len(backs)))]


@asynccontextmanager
async def meeting(front: str, back: str, tmp_path: Path, **person: Any) -> AsyncIterator[tuple[Person, Agent]]:
    async with fake_backend() as backend:
        agent = AGENTS[back](backend)
        async with (
            agent.served(tmp_path) as url,
            serving(routes(agent, url, history=f"sqlite:///{tmp_path}/talks.db")) as base,
        ):
            yield PEOPLE[front](base, "talk-1", **person), agent


def script(agent: Agent, *answers: list[Step]) -> None:
    """What the agent says, request by request."""
    left = list(answers)
    agent.brain = lambda heard: left.pop(0)


def plain(conversation: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """With arguments as values: not every wire keeps the string that the model wrote."""
    return [(*e[:3], orjson.loads(e[3])) if e[0] == "call" else e for e in conversation]


def between(person: Person) -> str:
    """What stands between the texts before and after a tool's result, which clients of AG-Kit see between them."""
    return "" if person.dialect == "ag-kit" else registry.get(person.dialect).capabilities.separator


def check(seen: Seen, text: str) -> None:
    assert (seen.error, seen.text) == (None, text)


# ---------------------------------------------------------------------- texts


@pairs
async def test_each_turn_knows_the_ones_before(front: str, back: str, tmp_path: Path) -> None:
    async with meeting(front, back, tmp_path) as (person, agent):
        agent.brain = lambda heard: [Say(f"You said {heard.last[1]}")]
        conversation: list[tuple[str, str]] = []
        for word in ("one", "two ☀ \u2028", "three"):
            check(await person.say(word), f"You said {word}")
            conversation.append(("user", word))
            assert agent.heard[-1].conversation == conversation
            conversation.append(("assistant", f"You said {word}"))


@pairs
async def test_reasoning_is_told_where_the_card_allows_and_is_no_part_of_the_talk(
    front: str, back: str, tmp_path: Path
) -> None:
    thinks = back != "ag-kit"
    async with meeting(front, back, tmp_path) as (person, agent):
        script(agent, [*([Think("Hm, hm.")] if thinks else []), Say("Sunny")], [Say("Yes")])
        check(await person.say("Weather?"), "Sunny")
        assert person.seen.reasoning == ("Hm, hm." if thinks and front != "ag-kit" else "")
        check(await person.say("Sure?"), "Yes")
        assert agent.heard[-1].spoken == [("user", "Weather?"), ("assistant", "Sunny"), ("user", "Sure?")]


@showing
async def test_a_picture_goes_in(front: str, back: str, tmp_path: Path) -> None:
    async with meeting(front, back, tmp_path) as (person, agent):
        script(agent, [Say("A square")], [Say("Red")])
        seen = await person.say("What is this?", DATA_URL)
        if not agent.takes_images:
            assert "image" in (seen.error or "")
            assert agent.heard == []
            return
        check(seen, "A square")
        assert agent.heard[0].images == [DATA_URL]
        check(await person.say("What colour?"), "Red")
        # A backend that remembers has seen it; any other is shown it again.
        assert agent.heard[1].images == ([] if agent.remembers else [DATA_URL])


# ---------------------------------------------------------------------- tools


@pairs
@pytest.mark.parametrize("calls", [(PARIS,), (PARIS, ROME)], ids=["one call", "two calls"])
async def test_a_client_runs_tools(front: str, back: str, tmp_path: Path, calls: tuple[Any, ...]) -> None:
    async with meeting(front, back, tmp_path, tools=("get_weather",)) as (person, agent):
        script(agent, [*(Use(*c) for c in calls)], [Say("Sunny")], [Say("Bye")])
        seen = await person.say("Weather?")
        assert [(c.id, c.name, c.arguments) for c in seen.calls] == list(calls)
        assert (seen.error, seen.results) == (None, [])
        assert agent.heard[0].tools == ["get_weather"]
        check(await person.answer({c[0]: f"sunny {c[0]}" for c in calls}), "Sunny")
        conversation: list[tuple[Any, ...]] = [("user", "Weather?"), *(("call", *c) for c in calls)]
        conversation += [("result", c[0], f"sunny {c[0]}") for c in calls]
        assert plain(agent.heard[1].conversation) == plain(conversation)
        check(await person.say("Thanks"), "Bye")
        assert plain(agent.heard[2].conversation) == plain([*conversation, ("assistant", "Sunny"), ("user", "Thanks")])


@running
async def test_an_agent_runs_a_tool(front: str, back: str, tmp_path: Path) -> None:
    """Whoever would run the call again does not see it; the others see it with its result, once."""
    shown = not front.startswith(("openai-", "anthropic-messages"))
    async with meeting(front, back, tmp_path) as (person, agent):
        script(agent, [Say("Let me see. "), Ran(*PARIS, "rain"), Say("It rains.")], [Say("Yes")])
        seen = await person.say("Weather?")
        check(seen, f"Let me see. {between(person)}It rains.")
        assert [(c.id, c.name, c.arguments) for c in seen.calls] == ([PARIS] if shown else [])
        assert seen.results == ([("call_1", "rain")] if shown else [])
        check(await person.say("Sure?"), "Yes")
        heard = [e for e in agent.heard[1].conversation if e[0] == "result"]
        # A client that sends the whole talk sends what it was shown.
        assert heard == ([("result", "call_1", "rain")] if shown or agent.remembers or agent.remembered else [])
        spoken = "".join(t for r, t in agent.heard[1].spoken if r == "assistant")
        assert spoken.split() == ["Let", "me", "see.", "It", "rains."]
        assert agent.heard[1].last == ("user", "Sure?")


@increments
async def test_results_that_come_one_by_one(front: str, back: str, tmp_path: Path) -> None:
    async with meeting(front, back, tmp_path, tools=("get_weather",)) as (person, agent):
        script(agent, [Use(*PARIS), Use(*ROME)], [Say("Both sunny")])
        await person.say("Weather?")
        check(await person.answer({"call_2": "sunny"}), "")
        assert len(agent.heard) == 1
        check(await person.answer({"call_1": "rain"}), "Both sunny")
        assert agent.heard[1].conversation[-2:] == [("result", "call_2", "sunny"), ("result", "call_1", "rain")]


@increments
async def test_a_result_of_no_call_is_refused(front: str, back: str, tmp_path: Path) -> None:
    async with meeting(front, back, tmp_path) as (person, agent):
        seen = await person.answer({"nix": "sunny"})
        assert "no open tool call 'nix'" in (seen.error or "")
        assert 400 <= seen.status < 500
        assert agent.heard == []


@renaming
async def test_a_tool_name_that_the_backend_forbids(front: str, back: str, tmp_path: Path) -> None:
    name = "weather.get 天气"
    async with meeting(front, back, tmp_path, tools=(name, "plain-name_1")) as (person, agent):

        def brain(heard: Heard) -> list[Step]:
            return [Say("Sunny")] if heard.last[0] == "result" else [Use("call_1", heard.tools[0], "{}")]

        agent.brain = brain
        seen = await person.say("Weather?")
        assert [c.name for c in seen.calls] == [name]
        check(await person.answer({"call_1": "sunny"}), "Sunny")
        first, second = agent.heard
        if back in RULED:
            assert re.fullmatch(r"weather_get__?[0-9a-f]{8}", first.tools[0])
            assert first.tools[1] == "plain-name_1"
            assert second.conversation[1] == ("call", "call_1", first.tools[0], "{}")
        else:
            assert first.tools == [name, "plain-name_1"]


# ---------------------------------------------------------------------- failures


@pairs
async def test_a_talk_goes_on_after_an_error_in_the_stream(front: str, back: str, tmp_path: Path) -> None:
    async with meeting(front, back, tmp_path) as (person, agent):
        script(agent, [Say("Hello")], [Say("Half an ans"), Fall()], [Say("Whole")])
        await person.say("one")
        seen = await person.say("two")
        assert BREAKS in (seen.error or "")
        assert seen.text in ("Half an ans", "")
        check(await person.say("three"), "Whole")
        heard = agent.heard[2].spoken
        assert heard[-1] == ("user", "three")
        assert [t for r, t in heard if r == "user"] == ["one", "two", "three"]


@pairs
async def test_a_person_who_leaves_stops_the_agent_and_may_come_back(front: str, back: str, tmp_path: Path) -> None:
    async with meeting(front, back, tmp_path) as (person, agent):
        script(agent, [Say("Hello")], [Say("Half an answer, "), Hang()], [Say("Back")])
        await person.say("one")
        before = person.seen
        reading = asyncio.create_task(person.say("two"))
        async with asyncio.timeout(40):
            while person.seen is before:
                await asyncio.sleep(0.005)
            await agent.hanging.wait()
            await person.seen.started.wait()
        await leave(reading)
        async with asyncio.timeout(1):
            await agent.left(1)
        check(await person.say("three"), "Back")
        assert agent.heard[2].last == ("user", "three")
        assert [t for r, t in agent.heard[2].spoken if r == "user"] == ["one", "two", "three"]


@of(*_each_once([p for p in PEOPLE if " " not in p], list(AGENTS)))
async def test_twenty_talks_at_once_stay_apart(front: str, back: str, tmp_path: Path) -> None:
    async with meeting(front, back, tmp_path) as (first, agent):
        agent.brain = lambda heard: [Say(f"hello {heard.conversation[0][1]}")]

        async def conversation(number: int) -> None:
            person = PEOPLE[front](first.base, f"talk-{number}")
            for word in (f"I am {number}", "And now?"):
                check(await person.say(word), f"hello I am {number}")

        await asyncio.gather(*(conversation(n) for n in range(20)))
    conversations = sorted(tuple(t for _, t in h.spoken) for h in agent.heard if len(h.spoken) == 3)
    assert conversations == sorted((f"I am {n}", f"hello I am {n}", "And now?") for n in range(20))


# ---------------------------------------------------------------------- threads


@pytest.mark.parametrize("front", list(PEOPLE))
async def test_a_talk_is_one_thread_at_an_agent(front: str, tmp_path: Path) -> None:
    """Agents keep their state, and what they wait for, by the thread, though AG-UI sends them the whole talk."""
    wait: list[Step] = [Ask("int-1", {"message": "Go on?"})]
    async with meeting(front, "ag-ui", tmp_path, tools=("get_weather",)) as (person, agent):
        script(agent, [Say("Hello")], [Say("Look: "), Use(*PARIS)], [Say("Sunny")], wait, [Fall()], [Say("Done")])
        await person.say("one")
        await person.say("Paris?")
        await person.answer({"call_1": "sunny"})
        await person.say("Do it")
        asked = person.asked
        assert (await person.resume("yes")).error is not None
        person.asked = asked
        check(await person.resume("yes"), "Done")
        assert len({h.thread for h in agent.heard}) == 1
        assert [h.resume is not None for h in agent.heard] == [False] * 4 + [True] * 2


async def test_talks_with_the_same_beginning_are_threads_of_their_own(tmp_path: Path) -> None:
    async with meeting("openai-chat", "ag-ui", tmp_path) as (first, agent):
        agent.brain = lambda heard: [Say("Hello")]
        second = PEOPLE["openai-chat"](first.base, "talk-2")
        assert isinstance(first, ChatPerson)
        for person in (first, second):
            await person.say("one")
        await asyncio.gather(first.say("two"), second.say("and two"))
        del first.messages[2:]
        await first.say("two, edited")
        threads = [h.thread for h in agent.heard]
        assert len(set(threads[:2])) == len(set(threads[2:4])) == 2
        assert threads[4] not in threads[2:4]


# ---------------------------------------------------------------------- interrupts


@waiting
async def test_an_interrupt_and_its_answer(front: str, back: str, tmp_path: Path) -> None:
    payload = {"name": "wipe", "arguments": "{}"} if back == "agentscope" else {"message": "Go on?"}
    async with meeting(front, back, tmp_path) as (person, agent):
        script(agent, [Say("Well. "), Ask("int-1", payload)], [Say("Done")], [Say("Bye")])
        seen = await person.say("Do it")
        assert seen.error is None
        if person.knows_interrupts:
            assert len(person.asked) == 1
            assert seen.text == "Well. "
        else:
            question = "confirmation: wipe({})" if back == "agentscope" else "Go on?"
            assert seen.text == "Well. " + between(person) + question.replace("confirmation", "approval")
            assert seen.finish == "stop"
        check(await person.resume("yes"), "Done")
        heard = agent.heard[1]
        assert heard.resume is True if back == "agentscope" else heard.resume
        assert not heard.refused
        assert heard.resumed in ("int-1", None)
        assert (heard.resumed is None) == (back == "ag-kit-2")
        assert [t for r, t in heard.spoken if r == "user"] == ["Do it"]
        check(await person.say("Thanks"), "Bye")
        assert agent.heard[2].last == ("user", "Thanks")
        assert agent.heard[2].resume is None
        assert agent.heard[2].spoken.count(("assistant", "Done")) == 1


@waiting
async def test_a_no_is_a_no(front: str, back: str, tmp_path: Path) -> None:
    payload = {"name": "wipe", "arguments": "{}"} if back == "agentscope" else {"message": "Go on?"}
    async with meeting(front, back, tmp_path) as (person, agent):
        script(agent, [Ask("int-1", payload)], [Say("Left alone")])
        await person.say("Do it")
        check(await person.resume("no, better not"), "Left alone")
        heard = agent.heard[1]
        assert heard.refused or heard.resume == "no, better not" or b'"approve":false' in flat(heard.resume)
        assert heard.resume is not True


def flat(payload: Any) -> bytes:
    """A payload as JSON, also when it came as JSON text."""
    return payload.encode() if isinstance(payload, str) else orjson.dumps(payload)


@pytest.mark.parametrize("front", ["ag-kit", "ag-kit-2"])
@pytest.mark.parametrize("back", [a for a, kind in AGENTS.items() if kind.interrupts])
async def test_who_goes_past_an_interrupt_is_asked_again(front: str, back: str, tmp_path: Path) -> None:
    payload = {"name": "wipe", "arguments": "{}"} if back == "agentscope" else {"message": "Go on?"}
    async with meeting(front, back, tmp_path) as (person, agent):

        def brain(heard: Heard) -> list[Step]:
            if heard.resume is not None:
                return [Say("Done")]
            # An agent that waits says nothing to anything else (ag-kit protocol page, part 1, section 7).
            return [Ask("int-1", payload)] if heard.last == ("user", "Do it") else []

        agent.brain = brain
        await person.say("Do it")
        first = person.asked
        check(await person.say("Hello?"), "")
        assert person.asked == first
        check(await person.resume("yes"), "Done")
        assert ("user", "Hello?") in agent.heard[-1].conversation


async def test_an_answer_to_no_interrupt_is_a_conflict(tmp_path: Path) -> None:
    for back in AGENTS:
        async with meeting("ag-kit", back, tmp_path / back) as (person, agent):
            await person.say("Hello")
            person.asked = [Question("nix", None)]
            seen = await person.resume("yes")
            assert (seen.status, len(agent.heard)) == (409, 1), back
            assert "no open interrupt 'nix'" in (seen.error or "")


@pytest.mark.parametrize("front", list(PEOPLE))
async def test_a_call_that_waits_for_a_person(front: str, tmp_path: Path) -> None:
    """The agent's own call waits for an approval. Clients that run what they see are told of it by the question."""
    async with meeting(front, "ag-ui", tmp_path, tools=("get_weather",)) as (person, agent):
        wait: list[Step] = [
            Say("Well."),
            Use("call_1", "send_email", '{"to": "Bo"}'),
            Ask("int-1", {"message": "Send?"}, "tool_call", "call_1"),
        ]
        script(agent, wait, [Say("Sent")], [Say("Bye")])
        seen = await person.say("Send it")
        assert seen.error is None
        if person.knows_interrupts:
            assert [c.id for c in seen.calls] == ["call_1"]
            answer: Any = "yes" if front.startswith("ag-kit") or front == "agentscope" else {"approved": True}
        else:
            assert (seen.calls, seen.finish) == ([], "stop")
            assert re.fullmatch(r'Well.\s*send_email\({"to": "Bo"}\)\s*Send\?', seen.text)
            answer = "yes"
        check(await person.resume(answer), "Sent")
        heard = agent.heard[1]
        assert heard.resumed == "int-1"
        assert heard.thread == agent.heard[0].thread
        assert [e for e in heard.conversation if e[0] == "result"] == []
        check(await person.say("Thanks"), "Bye")
        assert agent.heard[2].thread == agent.heard[0].thread


@pytest.mark.parametrize("front", [f for f, kind in PEOPLE.items() if not kind.knows_interrupts])
async def test_a_question_that_is_asked_again_has_its_call(front: str, tmp_path: Path) -> None:
    """The result of the client's own call does not answer the question about the agent's, which stays silent."""
    async with meeting(front, "ag-ui", tmp_path, tools=("get_weather",)) as (person, agent):
        ask = Ask("int-1", {"message": "Send?", "responseSchema": {"type": "boolean"}}, "tool_call", "call_2")
        script(agent, [Use(*PARIS), Use("call_2", "send_email", '{"to": "Bo"}'), ask], [], [Say("Sent")])
        first = await person.say("Send it")
        assert [c.id for c in first.calls] == ["call_1"]
        assert re.fullmatch(r'send_email\({"to": "Bo"}\)\s*Send\?', first.text)
        again = await person.answer({"call_1": "sunny"})
        assert (again.text, again.calls, again.error) == (first.text, [], None)
        check(await person.say("yes"), "Sent")
        assert agent.heard[2].resume is True
        assert ("call", "call_2", "send_email", '{"to": "Bo"}') in agent.heard[2].conversation


@pytest.mark.parametrize("front", [f for f, kind in PEOPLE.items() if not kind.knows_interrupts])
async def test_a_tools_result_answers_a_question_that_names_no_call(front: str, tmp_path: Path) -> None:
    async with meeting(front, "ag-ui", tmp_path, tools=("get_weather",)) as (person, agent):
        script(agent, [Use(*PARIS), Ask("int-1", {"message": "What is it like?"})], [Say("I see.")])
        seen = await person.say("Paris?")
        assert [c.id for c in seen.calls] == ["call_1"]
        assert "What is it like?" in seen.text
        check(await person.answer({"call_1": "sunny"}), "I see.")
        assert (agent.heard[1].resumed, agent.heard[1].resume) == ("int-1", "sunny")


@pytest.mark.parametrize("front", ["agentscope", "ag-kit", "ag-kit-2"])
async def test_a_free_question_is_answered_by_typing(front: str, tmp_path: Path) -> None:
    async with meeting(front, "ag-ui", tmp_path) as (person, agent):
        schema = {"type": ["string", "boolean"]}
        ask = Ask("int-1", {"message": "Which colour?", "responseSchema": schema}, "hitl", "call_1")
        script(agent, [Use("call_1", "ask_user", "{}"), ask], [Say("Blue it is.")])
        await person.say("Paint it")
        assert len(person.asked) == 1
        check(await person.say("blue"), "Blue it is.")
        assert (agent.heard[1].resumed, agent.heard[1].resume) == ("int-1", "blue")


@pytest.mark.parametrize("show", ["text", "reasoning"])
async def test_a_talk_in_which_server_tools_are_told_stays_one_thread(show: str, tmp_path: Path) -> None:
    async with fake_backend() as backend:
        agent = AGENTS["ag-ui"](backend)
        config = routes(agent, history=f"sqlite:///{tmp_path}/talks.db")
        config["routes"][0]["options"] = {"server_tools": show}
        async with serving(config) as base:
            person = PEOPLE[config["routes"][0]["dialect"]](base, "talk-1")
            script(agent, [Ran(*PARIS, "sunny"), Say("Sunny.")], [Say("Bye")])
            await person.say("Paris?")
            await person.say("Thanks")
    assert agent.heard[0].thread == agent.heard[1].thread


@pytest.mark.parametrize("front", [p for p in PEOPLE if not PEOPLE[p].knows_interrupts])
async def test_a_call_that_waits_without_a_question_is_an_error(front: str, tmp_path: Path) -> None:
    """As Mastra's `requireApproval` ends a run behind AG-UI; the client can talk on."""
    async with meeting(front, "ag-ui", tmp_path) as (person, agent):
        script(agent, [Use("c1", "wipe", '{"path":"/"}')], [Say("hello")])
        seen = await person.say("wipe")
        assert (seen.calls, 'its own tool call wipe({"path":"/"})' in (seen.error or "")) == ([], True)
        seen = await person.say("and now?")
        assert (seen.error, seen.text) == (None, "hello")
