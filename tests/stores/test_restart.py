"""A conversation goes on after the server was stopped and another one began, on every engine."""

from __future__ import annotations

import pytest

from tests.pairs.agents import AGENTS, Ask, Say, Step
from tests.pairs.people import PEOPLE, routes
from tests.server.harness import fake_backend, serving
from tests.stores.conftest import Engine


@pytest.mark.sampled(9)
@pytest.mark.turns(5)
@pytest.mark.parametrize(("front", "back"), [pytest.param(p, a, id=f"{p} to {a}") for p in PEOPLE for a in AGENTS])
async def test_a_talk_survives_a_restart(engine: Engine, front: str, back: str) -> None:
    """With a call of a tool that is open, or a question to a person, where the agent asks any."""
    async with fake_backend() as backend:
        agent = AGENTS[back](backend)
        asks: list[Step] = [Say("Well. "), Ask("int-1", {"message": "Go on?", "name": "wipe", "arguments": "{}"})]
        answers: list[list[Step]] = [[Say("Hello")], asks if agent.interrupts else [Say("Well. ")], [Say("Done")]]
        agent.brain = lambda heard: answers[len(agent.heard) - 1]
        config = routes(agent, history=engine.url)
        person = PEOPLE[front]("", "talk-1")
        for turn in range(3):
            async with serving(dict(config)) as base:
                person.base = base
                if turn == 2 and agent.interrupts:
                    seen = await person.resume("yes")
                else:
                    seen = await person.say(f"turn {turn}")
                assert seen.error is None
        assert seen.text == "Done"
        last = agent.heard[-1]
        assert (last.resume is not None) == agent.interrupts
        users = [text for role, text in last.spoken if role == "user"]
        assert users == (["turn 0", "turn 1"] if agent.interrupts else ["turn 0", "turn 1", "turn 2"])
        assert ("assistant", "Hello") in last.spoken
