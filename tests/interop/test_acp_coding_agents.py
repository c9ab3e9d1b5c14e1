"""Coding agents over the Agent Client Protocol, unchanged, with scripted models, behind clients of other protocols.

Each client plays one talk over HTTP: the agent answers, makes a file after it was allowed and none after it was not, is
left in the middle of a turn and goes on in its session, and is started again and remembers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.dialects.acp.clients import PEOPLE
from tests.interop import test_coding_agents as coding
from tests.interop.conftest import node_client
from tests.pairs.agents import AGENTS, Hang, Heard, Say, Step, Use
from tests.pairs.people import ChatPerson, Person, leave
from tests.server.harness import fake_backend, serving

pytestmark = pytest.mark.interop_all

OWN = Path(__file__).parent / "acp-agents"
MAKE = "touch made.txt"
Wire = dict[str, Any]


def opencode(home: Path, base: str) -> dict[str, str]:
    _, variables = coding.opencode(home, base)
    settings = home / "opencode.json"
    asks = {"model": "bridge/m", "small_model": "bridge/m", "permission": {"bash": "ask"}}
    settings.write_text(json.dumps({**json.loads(settings.read_text()), **asks}))
    return variables


def codex(home: Path, base: str) -> dict[str, str]:
    _, variables = coding.codex(home, base)
    settings = home / "config.toml"
    settings.write_text('approval_policy = "on-request"\nsandbox_mode = "read-only"\n' + settings.read_text())
    return {**variables, "KEY": "x"}


def of(setup: coding.Setup) -> Callable[[Path, str], dict[str, str]]:
    return lambda home, base: setup(home, base)[1]


@dataclass(frozen=True)
class Program:
    """An agent: how it is started, the dialect of its model, and the tools by which it runs commands."""

    command: Path
    args: tuple[str, ...]
    setup: Callable[[Path, str], dict[str, str]]
    dialect: str
    tools: dict[str, Wire]
    path: str = "/v1"
    options: Wire = field(default_factory=dict)
    restores: bool = True


RUN = {"command": MAKE, "description": "Make a file"}
BIN, OWN_BIN = coding.FOLDER / "node_modules" / ".bin", OWN / "node_modules" / ".bin"
PROGRAMS = {
    "opencode": Program(BIN / "opencode", ("acp",), opencode, "openai-responses", {"bash": RUN}),
    "codex": Program(
        OWN_BIN / "codex-acp", (), codex, "openai-responses",
        {"exec_command": {"cmd": MAKE, "sandbox_permissions": "require_escalated", "justification": "To try it"}},
        options={"mode": "read-only"},
    ),
    "gemini": Program(
        BIN / "gemini", ("--acp", "--model", "m"), of(coding.gemini), "gemini", {"run_shell_command": RUN}, "/",
        restores=False,  # this version overwrites a session that it loads in the minute in which that began
    ),
    "qwen": Program(
        BIN / "qwen", ("--acp", "--auth-type", "openai"), of(coding.qwen), "openai-chat",
        {"run_shell_command": {**RUN, "is_background": False}},
    ),
    "claude": Program(
        OWN_BIN / "claude-agent-acp", (), of(coding.claude), "anthropic-messages", {"Bash": RUN},
        options={"mode": "default"},
    ),
}  # fmt: skip
CLIENTS = {
    "opencode": "openai-responses", "codex": "ag-ui", "gemini": "a2a", "qwen": "ai-sdk-ui", "claude": "ag-ui",
}  # fmt: skip
"""The client of each agent beside one of chat."""


def model(program: Program) -> Callable[[Heard], list[Step]]:
    """What the model says, by the last of these words that it was told."""
    count = 0

    def brain(heard: Heard) -> list[Step]:
        nonlocal count
        told = [entry[1] for entry in heard.conversation if entry[0] == "user"]
        tool = next((name for name in program.tools if name in heard.tools), None)
        if tool is None:
            return [Say("A title")]
        if heard.last[0] == "result":
            return [Say("Done.")]
        last = next((word for text in reversed(told) for word in WORDS if word in text), "")
        if last == "MAKE":
            count += 1
            return [Use(f"call_{count}", tool, json.dumps(program.tools[tool]))]
        if last == "WAIT":
            return [Say("Waiting."), Hang()]
        if last == "RECALL":
            how = "from the start" if "user: HELLO" in "".join(told) else "before"
            return [Say(f"I was told {sum('HELLO' in text for text in told)} hello {how}.")]
        return [Say("Hello there.")]

    return brain


WORDS = ("RECALL", "WAIT", "MAKE", "HELLO")


@pytest.mark.parametrize(
    ("name", "front"), [(name, front) for name in PROGRAMS for front in ("openai-chat", CLIENTS[name])]
)
async def test_a_talk(name: str, front: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    node_client(program.command.parents[2], name)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    async with fake_backend() as backend:
        scripted = AGENTS["openai-chat"](backend)
        scripted.brain = model(program)
        models = {
            "backends": {"it": {"dialect": "openai-chat", "url": scripted.url}},
            "routes": [{"dialect": program.dialect, "path": program.path, "backend": "it"}],
            "stores": {"history": "off"},
        }
        async with serving(models) as base:
            agent = {
                "dialect": "acp", "command": str(program.command), "args": list(program.args), "cwd": str(work),
                "env": {"HOME": str(home), **program.setup(home, base)}, "options": program.options,
            }  # fmt: skip
            person = PEOPLE[front]("", "t")
            config = {
                "backends": {"agent": agent},
                "routes": [{"dialect": front, "path": person.route, "backend": "agent"}],
                "stores": {"history": f"sqlite:///{tmp_path}/history.db"},
            }
            async with asyncio.timeout(coding.PATIENCE):
                await talk(person, config, work, restores=program.restores)
        assert backend.problems == []


async def talk(person: Person, config: Wire, work: Path, *, restores: bool) -> None:
    made = work / "made.txt"
    async with serving({**config}) as person.base:
        assert "Hello there." in (await person.say("HELLO")).text, person.seen
        await person.say("MAKE")
        assert not made.exists()
        allowed = await person.resume("yes")
        assert allowed.error is None
        assert made.exists()
        assert "Done." in allowed.text
        made.unlink()
        await person.say("MAKE")
        refused = await person.resume("no")
        assert refused.error is None
        if not refused.text and isinstance(person, ChatPerson):  # some agents end without a word
            person.messages.append({"role": "assistant", "content": ""})
        assert not made.exists()
        await leave_in_the_middle(person)
        assert "I was told 1 hello before." in (await person.say("RECALL")).text
    assert running(work) == []
    async with serving({**config}) as person.base:
        recalled = (await person.say("RECALL")).text
        assert "I was told 1 hello before." in recalled or (not restores and "hello from the start" in recalled)
        await leave_in_the_middle(person)
        other = PEOPLE[person.dialect](person.base, "another")
        assert "Hello there." in (await other.say("HELLO")).text
    assert running(work) == []


async def leave_in_the_middle(person: Person) -> None:
    leaving = asyncio.create_task(person.say("WAIT"))
    while "Waiting." not in person.seen.text:
        await asyncio.sleep(0.05)
    await leave(leaving)


def running(folder: Path) -> list[str]:
    """The processes that work in this folder."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if each.cwd() == str(folder):
                found.append(each.name())
    return found
