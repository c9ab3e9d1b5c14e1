"""An agent behind the frontends that people use, over HTTP: text, permissions, a client that leaves, a restart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.dialects.acp.clients import PEOPLE
from tests.dialects.acp.test_agents import configuration
from tests.pairs.people import ChatPerson, Person, leave
from tests.server.harness import serving


@contextlib.asynccontextmanager
async def at(dialect: str, folder: Path, *settings: str, thread: str = "t") -> AsyncIterator[Person]:
    """Somebody at a frontend of this dialect; no agent is left at the end."""
    (folder / "state").mkdir(exist_ok=True)
    config: dict[str, Any] = configuration(f"state={folder / 'state'}", *settings, folder=folder)
    config["routes"] = [{"dialect": dialect, "path": PEOPLE[dialect].route, "backend": "agent"}]
    async with serving(config) as base:
        yield PEOPLE[dialect](base, thread)
    assert agents(folder) == 0


def agents(folder: Path) -> int:
    """Count the running agents that were started with this folder."""
    count = 0
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            count += any(str(folder) in word for word in each.cmdline())
    return count


@pytest.mark.parametrize("dialect", PEOPLE)
async def test_text_permissions_and_a_restart(dialect: str, tmp_path: Path) -> None:
    async with at(dialect, tmp_path, "load=late") as person:
        assert (await person.say("say Hello you")).text.strip() == "Hello you"
        for word, chosen in (("yes", "id-allow_once"), ("no", "id-reject_once")):
            await person.say("ask")
            answer = await person.resume(word)
            assert (answer.error, answer.text.strip()) == (None, f"Chosen: {chosen}")
        assert agents(tmp_path) == 1
    async with at(dialect, tmp_path, "load=late") as again:
        person.base = again.base
        assert (await person.say("remember")).text == "4: say Hello you / ask / ask / remember"
        assert (await person.say("error -32603 overloaded")).error is not None


@pytest.mark.parametrize("shows", [True, False])
@pytest.mark.parametrize("dialect", PEOPLE)
async def test_an_agent_that_ends_without_a_word_is_the_same_session(dialect: str, shows: bool, tmp_path: Path) -> None:
    """As opencode and codex do after a no. `shows`: the client sends the empty answer back."""
    async with at(dialect, tmp_path) as person:
        await person.say("refused")
        refused = await person.resume("no")
        assert (refused.error, refused.text.strip()) == (None, "")
        if shows and isinstance(person, ChatPerson) and person.messages:
            person.messages.append({"role": "assistant", "content": ""})
        assert (await person.say("remember")).text == "2: refused / remember"


@pytest.mark.parametrize("dialect", PEOPLE)
async def test_a_client_that_leaves_cancels(dialect: str, tmp_path: Path) -> None:
    async with at(dialect, tmp_path) as person:
        leaving = asyncio.create_task(person.say("slow"))
        await until_heard(person)
        await leave(leaving)
        other = PEOPLE[dialect](person.base, "other")
        assert (await other.say("say on")).text.strip() == "on"
        assert agents(tmp_path) == 1  # the agent has ended the prompt


@pytest.mark.parametrize("shows", [True, False])
@pytest.mark.parametrize("dialect", PEOPLE)
async def test_a_conversation_goes_on_after_a_cancel(dialect: str, shows: bool, tmp_path: Path) -> None:
    """The agent keeps its session, and is not told again what it knows. `shows`: the client sends half the canceled
    answer back.
    """
    async with at(dialect, tmp_path) as person:
        await person.say("say one")
        leaving = asyncio.create_task(person.say("slow"))
        await until_heard(person, "working")
        await leave(leaving)
        if shows and isinstance(person, ChatPerson) and person.messages:
            person.messages.append({"role": "assistant", "content": "work"})
        assert (await person.say("remember")).text == "3: say one / slow / remember"
        assert (await person.say("remember")).text.startswith("4: ")


@pytest.mark.parametrize("dialect", PEOPLE)
async def test_what_is_said_after_a_cancel_answers_no_earlier_question(dialect: str, tmp_path: Path) -> None:
    async with at(dialect, tmp_path) as person:
        await person.say("askslow")
        leaving = asyncio.create_task(person.resume("yes"))
        await until_heard(person, "working")
        await leave(leaving)
        assert (await person.say("remember")).text == "2: askslow / remember"


async def until_heard(person: Person, text: str = "") -> None:
    """Wait until the last answer has begun, with this text in it."""
    async with asyncio.timeout(20):
        while not person.seen.started.is_set() or text not in person.seen.text:
            await asyncio.sleep(0.01)
