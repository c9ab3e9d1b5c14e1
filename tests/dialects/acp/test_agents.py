"""Agents as backends: processes with a scripted agent, through the engine, and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from bridge import Bridge, Request
from bridge.engine.route import RunCaller
from bridge.errors import BridgeError, ConfigError, ErrorCode
from bridge.model import (
    Answer,
    FinishReason,
    Folder,
    HistoryMode,
    Inline,
    Media,
    MediaKind,
    Message,
    Resume,
    Text,
    TextDelta,
    ToolResulted,
    result_text,
)
from bridge.run.backends.agents.agent_backend import AgentBackend
from tests.dialects.acp.helpers import processes

pytestmark = pytest.mark.usefixtures("known_others")

AGENT = Path(__file__).with_name("scripted_agent.py")


def configuration(
    *settings: str, folder: Path | None = None, dialect: str = "ag-ui", env: Any = None, **options: Any
) -> dict[str, Any]:
    """A route to scripted agents with these settings; conversations are stored in this folder, if there is one."""
    history = "off" if folder is None else f"sqlite:///{folder}/history.db"
    backend = {"dialect": "acp", "command": sys.executable, "args": [str(AGENT), *settings], "cwd": str(folder or "/")}
    return {
        "backends": {"agent": {**backend, "options": options, "env": env or {}}},
        "routes": [{"dialect": dialect, "path": "/it", "backend": "agent"}],
        "stores": {"history": history},
    }


class Talk:
    """A conversation of an owner over a route."""

    def __init__(self, bridge: Bridge, thread: str | None = "t", owner: str = "") -> None:
        self.bridge = bridge
        self.thread = thread
        self.owner = owner
        self.events: list[Any] = []

    async def run(self, *messages: str | Message, resume: list[Resume] | None = None, **more: Any) -> Answer:
        """The answer to new messages."""
        given = [Message("user", [Text(each)]) if isinstance(each, str) else each for each in messages]
        request = Request(given, thread_id=self.thread, history=HistoryMode.DELTA, resume=resume or [], **more)
        run = await self.bridge.run(self.bridge.routes[0], request, caller=RunCaller(self.owner))
        folder = Folder()
        self.events = []
        try:
            while not run.ended:
                events = await asyncio.wait_for(run.read(), 20)
                self.events += events
                folder.feed(events)
        finally:
            await run.close()
        return folder.answer

    async def says(self, *messages: str | Message, **more: Any) -> str:
        answer = await self.run(*messages, **more)
        assert answer.failure is None, (answer.failure, answer.failure.cause)
        return answer.text

    async def answers(self, payload: Any, asked: Answer) -> Answer:
        return await self.run(resume=[Resume(asked.interrupts[0].interrupt_id, "resolved", payload)])


@contextlib.asynccontextmanager
async def agents(*settings: str, **more: Any) -> AsyncIterator[Bridge]:
    """A bridge over scripted agents, of which none is left at the end."""
    async with Bridge.from_config(configuration(*settings, **more)) as bridge:
        yield bridge
    assert processes() == []


@contextlib.asynccontextmanager
async def talk(*settings: str, **more: Any) -> AsyncIterator[Talk]:
    async with agents(*settings, **more) as bridge:
        yield Talk(bridge)


def backend(bridge: Bridge) -> AgentBackend:
    found = bridge.routes[0].backends[0]
    assert isinstance(found, AgentBackend)
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- sessions


async def test_a_thread_is_a_session_and_a_process_has_many() -> None:
    async with agents() as bridge:
        one, two = Talk(bridge, "one"), Talk(bridge, "two")
        assert await one.says("say Hello you") == "Hello you "
        assert await two.says("say Hi") == "Hi "
        assert await one.says("remember") == "2: say Hello you / remember"
        first, second = (await one.says("where")).split(), (await two.says("where")).split()
        assert first[1] == second[1]
        assert first[2] != second[2]
        assert first[0] == "/"


async def test_nothing_is_started_before_it_is_needed() -> None:
    async with agents() as bridge:
        assert processes() == []
        await backend(bridge).check()
        assert processes() == []


async def test_owners_share_no_process() -> None:
    async with agents() as bridge:
        one, two = Talk(bridge, "t", "ann"), Talk(bridge, "t", "bob")
        assert (await one.says("where")).split()[1] != (await two.says("where")).split()[1]
        assert await two.says("remember") == "2: where / remember"
        assert len(processes()) == 2


async def test_many_owners_at_once_share_no_process(tmp_path: Path) -> None:
    """More owners than processes: each session goes on in a process of its owner, and hears its owner only."""
    async with agents(f"state={tmp_path}", "resume=yes", processes=2, idle=600) as bridge:
        owners: dict[str, set[str]] = {}

        async def talks(owner: str) -> None:
            it, said = Talk(bridge, "t", owner), list[str]()
            for number in range(4):
                words = "where" if number % 2 else f"say {owner}"
                while (answer := await it.run(words)).failure is not None:
                    assert answer.failure.code is ErrorCode.OVERLOADED
                    await asyncio.sleep(0.02)
                said.append(words)
                if number % 2:
                    owners.setdefault(answer.text.split()[1], set()).add(owner)
                else:
                    assert answer.text == f"{owner} "
            while (answer := await it.run("remember")).failure is not None:
                await asyncio.sleep(0.02)
            assert answer.text == f"5: {' / '.join(said)} / remember"

        await asyncio.gather(*(talks(f"owner{number}") for number in range(5)))
        assert all(len(each) == 1 for each in owners.values())
        assert len(processes()) == 2


async def test_each_owner_has_a_folder(tmp_path: Path) -> None:
    config = configuration(folder=tmp_path)
    config["backends"]["agent"]["cwd"] = str(tmp_path / "work" / "{owner}")
    async with Bridge.from_config(config) as bridge:
        assert (await Talk(bridge, "t", "ann").says("where")).split()[0] == str(tmp_path / "work/ann")
        escaped = (await Talk(bridge, "t", "../../etc").says("where")).split()[0]
        assert Path(escaped).parent == tmp_path / "work"
        assert Path(escaped).name.startswith("~")
        assert (await Talk(bridge, "t", "").says("where")).split()[0] == str(tmp_path / "work/shared")


async def test_a_client_cannot_name_a_session_of_another(tmp_path: Path) -> None:
    """Names of threads that clients choose are never taken for ids of sessions."""
    async with agents(f"state={tmp_path}", "load=yes") as bridge:
        session = (await Talk(bridge, "t", "ann").says("where")).split()[2]
        assert await Talk(bridge, session, "bob").says("remember") == "1: remember"
        assert await Talk(bridge, session, "ann").says("remember") == "1: remember"


async def test_a_conversation_that_the_agent_does_not_know_is_told_before(tmp_path: Path) -> None:
    async with talk() as it:
        earlier = [
            Message("system", [Text("Be brief.")]),
            Message("user", [Text("Hi")]),
            Message("assistant", [Text("Yo")]),
        ]
        said = await it.says(*earlier, "remember")
        assert said == "1: system: Be brief.\nuser: Hi\nassistant: Yo | remember"
        assert await it.says("remember") == f"2: {said.removeprefix('1: ')} / remember"


async def test_two_sessions_of_an_agent_are_never_one() -> None:
    async with agents("same=one") as bridge:
        await Talk(bridge, "one").says("say hi")
        failure = (await Talk(bridge, "two").run("remember")).failure
        assert failure is not None
        assert failure.code is ErrorCode.BACKEND_PROTOCOL


async def test_the_whole_conversation_of_a_client_is_trimmed_to_what_is_new(tmp_path: Path) -> None:
    async with agents(folder=tmp_path, dialect="openai-chat") as bridge:
        talked = [Message("user", [Text("say one")])]

        async def turn() -> str:
            answer = await bridge.complete(Request(list(talked)))
            talked.extend(answer.messages)
            return answer.text

        assert await turn() == "one "
        talked.append(Message("user", [Text("remember")]))
        assert await turn() == "2: say one / remember"


@pytest.mark.parametrize(
    "how",
    [
        ("resume=yes",),
        ("load=yes",),
        ("load=late",),
        ("load=yes", "resume=yes"),
        ("load=yes", "resume=promised"),
    ],
)
async def test_a_session_goes_on_in_a_new_process(tmp_path: Path, how: tuple[str, ...]) -> None:
    """What is told again is not taken for the answer."""
    state = tmp_path / "state"
    state.mkdir()
    async with talk(f"state={state}", *how, folder=tmp_path) as it:
        first = (await it.says("where")).split()
    async with talk(f"state={state}", *how, folder=tmp_path) as it:
        second = (await it.says("where")).split()
        assert second[2] == first[2]
        assert second[1] != first[1]
        assert await it.says("remember") == "3: where / where / remember"


@pytest.mark.parametrize("how", [("load=yes",), ()])
async def test_a_session_that_is_lost_begins_anew_with_what_was_said(tmp_path: Path, how: tuple[str, ...]) -> None:
    async with talk(*how, folder=tmp_path) as it:
        await it.says("say one")
    async with talk(*how, folder=tmp_path) as it:
        assert await it.says("remember") == "1: user: say one\nassistant: one  | remember"
        assert await it.says("remember") == "2: user: say one\nassistant: one  | remember / remember"


# ---------------------------------------------------------------------- content


async def test_a_call_and_its_result() -> None:
    async with talk() as it:
        answer = await it.run("tool")
        assert [(call.name, call.arguments) for call in answer.calls] == [("read", '{"path":"a.txt"}')]
        (result,) = [event for event in it.events if isinstance(event, ToolResulted)]
        assert result_text(result.parts) == "three lines"
        assert (answer.text, answer.reason) == ("It has three lines.", FinishReason.STOP)


@pytest.mark.parametrize(
    ("where", "counts"), [("answer", (11, 7, 18)), ("quota", (11, 7, None)), ("chunks", (22, 14, 36)), ("none", None)]
)
async def test_usage(where: str, counts: tuple[int, ...] | None) -> None:
    async with talk() as it:
        used = (await it.run(f"usage {where}")).usage
        assert (used and (used.input, used.output, used.total)) == counts


async def test_a_picture_goes_to_agents_that_take_one() -> None:
    picture = Media(MediaKind.IMAGE, Inline("AA=="), "image/png")
    async with talk() as it:
        assert await it.says(Message("user", [picture, Text("remember")])) == "1: image | remember"
        answer = await it.run(Message("user", [Text("hm"), Media(MediaKind.AUDIO, Inline("AA=="), "audio/wav")]))
        assert answer.failure is not None
        assert (answer.failure.code, answer.failure.param) == (ErrorCode.UNSUPPORTED, "messages[0].content[1]")
        assert await it.says("say fine") == "fine "


@pytest.mark.parametrize("settings", [(), ("options=no",)])
async def test_the_model_is_an_option_of_the_session(settings: tuple[str, ...]) -> None:
    async with talk(*settings) as it:
        assert await it.says("model") == "small"
        assert await it.says("model", model="big") == "big"
        assert await it.says("model", model="unheard-of") == "big"


async def test_the_mode_of_sessions_is_an_option() -> None:
    async with talk() as it:
        assert await it.says("mode") == "auto"
    async with talk(mode="default") as it:
        assert await it.says("mode") == "default"
    async with talk(mode="yolo") as it:
        failure = (await it.run("mode")).failure
        assert failure is not None
        assert failure.message == "The agent has no mode 'yolo' (options.mode); it has: auto, default."


async def test_updates_that_are_no_answer_are_not_told() -> None:
    async with talk() as it:
        assert await it.says("odd") == "odd"


# ---------------------------------------------------------------------- permissions


@pytest.mark.parametrize(
    ("payload", "chosen"),
    [("yes", "id-allow_once"), ("no", "id-reject_once"), ({"optionId": "id-allow_always"}, "id-allow_always")],
)
async def test_a_permission_is_answered_by_the_next_request(payload: Any, chosen: str) -> None:
    async with talk() as it:
        asked = await it.run("ask")
        assert asked.reason is FinishReason.INTERRUPTED
        assert asked.interrupts[0].payload["title"] == "rm -r build"
        answer = await it.answers(payload, asked)
        assert answer.text == f"Chosen: {chosen}"
        (result,) = [event for event in it.events if isinstance(event, ToolResulted)]
        assert result.is_error == ("reject" in chosen)
        assert answer.reason is FinishReason.STOP
        assert await it.says("say next") == "next "


async def test_the_agent_that_ends_its_turn_for_a_no_did_not_fail() -> None:
    async with talk() as it:
        answer = await it.answers("no", await it.run("refused"))
        assert (answer.failure, answer.reason) == (None, FinishReason.STOP)


async def test_a_no_without_an_option_for_it_cancels_the_prompt() -> None:
    async with talk() as it:
        answer = await it.answers("no", await it.run("ask allow_always"))
        assert (answer.failure, answer.text) == (None, "")
        assert await it.says("say next") == "next "


async def test_a_client_without_interrupts_answers_by_its_next_message(tmp_path: Path) -> None:
    async with agents(folder=tmp_path, dialect="openai-chat") as bridge:
        route = bridge.routes[0]
        talked = [Message("user", [Text("ask")])]

        async def turn() -> Answer:
            run = await bridge.run(route, Request(list(talked)), RunCaller(capabilities=route.capabilities))
            folder = Folder()
            while not run.ended:
                folder.feed(await asyncio.wait_for(run.read(), 20))
            await run.close()
            talked.append(Message("assistant", [Text(folder.answer.text or _asked(folder.answer))]))
            return folder.answer

        def _asked(answer: Answer) -> str:
            from bridge.model import interrupt_text

            return "".join(map(interrupt_text, answer.interrupts))

        first = await turn()
        assert "rm -r build" in str(talked[-1].parts) + str(first.interrupts)
        talked.append(Message("user", [Text("yes")]))
        assert (await turn()).text == "Chosen: id-allow_once"


async def test_two_permissions_at_once_are_asked_one_after_the_other() -> None:
    async with talk() as it:
        asked = await it.run("asktwo")
        while asked.reason is FinishReason.INTERRUPTED:
            asked = await it.answers("yes", asked)
        assert asked.text == "id-allow_once id-allow_once"


async def test_a_form_is_filled() -> None:
    async with talk() as it:
        asked = await it.run("form")
        assert asked.interrupts[0].reason == "input_required"
        answer = await it.answers({"way": "left"}, asked)
        assert answer.text == '{"action": "accept", "content": {"way": "left"}}'


@pytest.mark.parametrize(("policy", "chosen"), [("reject", "id-reject_once"), ("allow_once", "id-allow_once")])
async def test_a_policy_answers_at_once(policy: str, chosen: str) -> None:
    async with talk(permissions=policy) as it:
        assert await it.says("ask") == f"Chosen: {chosen}"
        assert await it.says("form") == '{"action": "decline"}'


async def test_a_front_that_cannot_ask_rejects() -> None:
    async with agents(dialect="openai-chat") as bridge:
        route = bridge.routes[0]
        run = await bridge.run(route, Request("ask"), RunCaller(capabilities=route.capabilities))
        folder = Folder()
        while not run.ended:
            folder.feed(await asyncio.wait_for(run.read(), 20))
        await run.close()
        assert folder.answer.text == "Chosen: id-reject_once"


async def test_something_else_instead_of_an_answer_cancels_the_prompt() -> None:
    async with talk() as it:
        await it.run("ask")
        assert await it.says("remember") == "2: ask / remember"


async def test_a_question_that_is_left_is_no_answer() -> None:
    """As an editor does after a cancel: what it says next is all that the agent gets."""
    async with talk() as it:
        asked = await it.run("ask")
        left = [Resume(asked.interrupts[0].interrupt_id, "cancelled")]
        assert await it.says("remember", resume=left) == "2: ask / remember"


async def test_a_question_is_answered_once_and_only_by_its_owner() -> None:
    async with agents() as bridge:
        it = Talk(bridge, "t", "ann")
        asked = await it.run("ask")
        for other in (Talk(bridge, "t", "bob"), Talk(bridge, "elsewhere", "ann")):
            failure = (await other.answers("yes", asked)).failure
            assert failure is not None
            assert failure.code is ErrorCode.CONFLICT
        assert (await it.answers("yes", asked)).text == "Chosen: id-allow_once"
        failure = (await it.answers("yes", asked)).failure
        assert failure is not None
        assert (failure.code, failure.param) == (ErrorCode.CONFLICT, "resume")


async def test_a_question_that_nobody_answers_is_given_up() -> None:
    async with talk(park_for=0.1) as it:
        asked = await it.run("ask")
        session = next(iter(backend(it.bridge).pool.processes[0].sessions.values()))
        await until(lambda: session.is_idle)
        failure = (await it.answers("yes", asked)).failure
        assert failure is not None
        assert failure.code is ErrorCode.CONFLICT
        assert await it.says("say next") == "next "


# ---------------------------------------------------------------------- cancellation


async def start(it: Talk, text: str, want: int = 1) -> Any:
    """A run of which the agent has said something."""
    request = Request([Message("user", [Text(text)])], thread_id=it.thread, history=HistoryMode.DELTA)
    run = await it.bridge.run(it.bridge.routes[0], request, caller=RunCaller(it.owner))
    for _ in range(want):
        await asyncio.wait_for(run.read(), 20)
    return run


@pytest.mark.parametrize("text", ["slow", "abort"])
async def test_a_client_that_leaves_cancels_the_prompt_and_the_next_waits_for_that(text: str) -> None:
    async with talk() as it:
        run = await start(it, text)
        await run.close()
        assert await it.says("remember") == f"2: {text} / remember"
        assert len(processes()) == 1


async def test_a_run_that_is_canceled_ends_as_canceled() -> None:
    async with talk() as it:
        run = await start(it, "slow")
        events = run.cancel()
        await run.close()
        assert events[-1].reason is FinishReason.CANCELED


async def test_an_agent_that_ignores_a_cancel_is_ended_and_its_other_sessions_go_on(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    async with agents(f"state={state}", "resume=yes", folder=tmp_path, cancel_timeout=0.3) as bridge:
        one, two = Talk(bridge, "one"), Talk(bridge, "two")
        pid = (await two.says("where")).split()[1]
        await (await start(one, "deaf")).close()
        await until(lambda: not psutil.pid_exists(int(pid)))
        assert await two.says("remember") == "2: where / remember"


@pytest.mark.parametrize("how", [("resume=yes",), ()])
async def test_a_conversation_goes_on_after_an_agent_ignored_the_cancel(tmp_path: Path, how: tuple[str, ...]) -> None:
    """In its session, if the agent can restore that; else in a new one with what was said."""
    state = tmp_path / "state"
    state.mkdir()
    async with talk(f"state={state}", *how, folder=tmp_path, cancel_timeout=0.3) as it:
        await it.says("say one")
        await (await start(it, "deaf")).close()
        told = "3: say one / deaf" if how else "1: user: say one\nassistant: one \nuser: deaf\nassistant: working  |"
        assert await it.says("remember") == f"{told}{' /' if how else ''} remember"


async def test_a_message_that_the_agent_never_got_is_told_in_the_next_prompt(tmp_path: Path) -> None:
    """The client leaves while the run before it goes on."""
    async with talk(folder=tmp_path) as it:
        await it.says("say one")
        session = next(iter(backend(it.bridge).pool.processes[0].sessions.values()))
        await session.lock.acquire()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(it.run("say two"), 0.2)
        session.lock.release()
        assert "say two" in await it.says("remember")


@pytest.mark.parametrize(("half", "same"), [("work", True), ("", True), ("another answer", False)])
async def test_half_an_answer_finds_its_conversation(half: str, same: bool, tmp_path: Path) -> None:
    """A client without ids for conversations has at most what was sent of a canceled answer."""
    async with agents(folder=tmp_path, dialect="openai-chat") as bridge:
        route = bridge.routes[0]
        run = await bridge.run(route, Request("slow"), RunCaller(capabilities=route.capabilities))
        while not any(isinstance(event, TextDelta) for event in await asyncio.wait_for(run.read(), 20)):
            pass
        await run.close()
        talked = [Message("user", [Text("slow")]), Message("assistant", [Text(half)]), Message("user", [Text("where")])]
        sessions = set(backend(bridge).pool.processes[0].sessions)
        assert ((await bridge.complete(Request(talked))).text.split()[2] in sessions) is same


async def test_what_is_said_before_the_bridge_notices_a_leaving_client(tmp_path: Path) -> None:
    """After an answer without content, which the client leaves out."""
    async with agents(folder=tmp_path, dialect="openai-chat", permissions="reject") as bridge:
        talked = [Message("user", [Text("refused")])]
        assert (await bridge.complete(Request(list(talked)))).text == ""
        talked.append(Message("user", [Text("slow")]))
        run = await bridge.run(bridge.routes[0], Request(list(talked)))
        while not any(isinstance(event, TextDelta) for event in await asyncio.wait_for(run.read(), 20)):
            pass
        talked.append(Message("user", [Text("remember")]))
        following = asyncio.create_task(bridge.complete(Request(list(talked))))
        await asyncio.sleep(0.2)
        await run.close()
        assert (await following).text == "3: refused / slow / remember"


# ---------------------------------------------------------------------- faults


async def test_an_agent_that_dies_says_its_last_words_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with talk() as it:
        answer = await it.run("die oh no")
        assert answer.failure is not None
        assert answer.failure.code is ErrorCode.BACKEND_UNAVAILABLE
        assert answer.text == "half "
        assert "oh no" not in answer.failure.message
        assert "status 3" in answer.failure.cause
        assert "boom: *** oh no" in answer.failure.cause
        await until(lambda: "boom: *** oh no" in caplog.text)
        assert await it.says("say again") == "again "


async def test_an_agent_that_dies_while_a_person_is_asked() -> None:
    async with talk() as it:
        asked = await it.run("diemid")
        await until(lambda: backend(it.bridge).pool.processes == [])
        failure = (await it.answers("yes", asked)).failure
        assert failure is not None
        assert failure.code is ErrorCode.CONFLICT
        assert await it.says("say on") == "on "


async def test_an_agent_that_does_not_start(caplog: pytest.LogCaptureFixture) -> None:
    async with talk("die=start") as it:
        for _ in range(3):
            failure = (await it.run("say hi")).failure
            assert failure is not None
            assert failure.code is ErrorCode.BACKEND_UNAVAILABLE
            assert "no configuration found" in failure.cause
        failure = (await it.run("say hi")).failure
        assert failure is not None
        assert "3 times within a minute" in failure.message
        assert int(failure.headers["retry-after"]) <= 60


async def test_a_program_that_is_not_there() -> None:
    config = configuration()
    config["backends"]["agent"]["command"] = "no-such-agent"
    async with Bridge.from_config(config) as bridge:
        failure = (await Talk(bridge).run("hi")).failure
        assert failure is not None
        assert failure.code is ErrorCode.BACKEND_UNAVAILABLE
        assert "cannot start 'no-such-agent'" in failure.cause
        with pytest.raises(BridgeError, match="not installed"):
            await backend(bridge).check()


async def test_an_agent_that_starts_too_slowly() -> None:
    async with talk("start=30", start_timeout=0.3) as it:
        failure = (await it.run("hi")).failure
        assert failure is not None
        assert failure.code is ErrorCode.BACKEND_TIMEOUT
        assert "0.3 s" in failure.message


async def test_an_agent_of_another_version() -> None:
    async with talk("version=2") as it:
        failure = (await it.run("hi")).failure
        assert failure is not None
        assert failure.code is ErrorCode.BACKEND_PROTOCOL
        assert "speaks version 2" in failure.message


@pytest.mark.parametrize("when", ["new", "prompt"])
async def test_an_agent_that_wants_a_login_says_what_to_do(when: str) -> None:
    async with talk(f"auth={when}") as it:
        failure = (await it.run("hi")).failure
        assert failure is not None
        assert failure.code is ErrorCode.BACKEND_AUTH
        assert "log in with its own command" in failure.message
        assert "Log in: Run `agent login` (auth_method: login)" in failure.cause
        assert "sk-secret" not in failure.message + failure.cause


async def test_what_is_no_message_is_ignored() -> None:
    async with talk() as it:
        assert await it.says("garbage") == "still here"


async def test_foreign_requests_are_refused_and_not_promised() -> None:
    async with talk() as it:
        assert await it.says("foreign") == "-32601 -32601 -32601"
        carrier = backend(it.bridge).pool.processes[0]._connection.carrier
        promised = carrier.stderr  # type: ignore[attr-defined]
        assert '"fs"' not in promised
        assert '"terminal"' not in promised
        assert '"elicitation": {"form": {}}' in promised


async def test_a_line_of_600_kilobytes() -> None:
    async with talk() as it:
        assert len(await it.says("large 600000")) == 600_000


async def test_a_flood_waits_for_its_reader() -> None:
    async with talk() as it:
        run = await start(it, "flood 20000")
        prompt = next(iter(backend(it.bridge).pool.processes[0].sessions.values())).prompt
        assert prompt is not None
        await until(lambda: prompt.floods)
        size = prompt._size
        await asyncio.sleep(0.2)
        assert prompt._size <= size + 100_000
        read = 0
        while not run.ended:
            read += sum(len(e.text) for e in await asyncio.wait_for(run.read(), 20) if isinstance(e, TextDelta))
        await run.close()
        assert read > 19_000_000
        assert await it.says("say on") == "on "


async def test_an_agent_that_floods_while_a_person_is_asked_is_canceled() -> None:
    async with talk() as it:
        asked = await it.run("floodask 20000")
        session = next(iter(backend(it.bridge).pool.processes[0].sessions.values()))
        await until(lambda: session.is_idle)
        failure = (await it.answers("yes", asked)).failure
        assert failure is not None
        assert failure.code is ErrorCode.CONFLICT
        assert await it.says("say on") == "on "


async def test_an_agent_that_floods_with_questions() -> None:
    """What the agent may leave unanswered has a bound; the rest is dismissed."""
    async with talk() as it:
        asked = await it.run("floodquestions 60 1000000")
        process = backend(it.bridge).pool.processes[0]
        prompt = next(iter(process.sessions.values())).prompt
        assert prompt is not None
        await until(lambda: "all were read" in process._connection.carrier.stderr)  # type: ignore[attr-defined]
        assert prompt._size + sum(each.size for each in prompt.asked.values()) < 12_000_000
        while asked.reason is FinishReason.INTERRUPTED:
            answers = [Resume(each.interrupt_id, "resolved", "yes") for each in asked.interrupts]
            asked = await it.run(resume=answers)
        assert asked.text == "all answered"
        assert await it.says("say on") == "on "


async def test_ids_of_an_agent_are_its_own() -> None:
    """They may be those of the bridge's requests; one that is in use is refused."""
    async with talk() as it:
        answer = await it.answers("yes", await it.run("ids"))
        assert (answer.failure, answer.text) == (None, "{-32601} -32600 yes")


async def test_two_prompts_at_once_take_turns() -> None:
    async with talk() as it:
        first, second = await asyncio.gather(it.run("slow 0.3"), Talk(it.bridge).run("remember"))
        assert first.text == "working done"
        assert second.text == "2: slow 0.3 / remember"


async def test_an_agent_that_never_answers_is_given_up() -> None:
    config = configuration()
    config["backends"]["agent"] |= {"timeouts": {"first_event": 1.5}, "options": {"cancel_timeout": 0.2}}
    async with Bridge.from_config(config) as bridge:
        failure = (await Talk(bridge).run("silent")).failure
        assert failure is not None
        assert failure.code is ErrorCode.BACKEND_TIMEOUT
        assert await Talk(bridge).says("say on") == "on "
    assert processes() == []


@pytest.mark.parametrize("error", ["-32603 no model", "-32602 bad"])
async def test_an_error_of_the_agent(error: str) -> None:
    async with talk() as it:
        failure = (await it.run(f"error {error}")).failure
        assert failure is not None
        assert failure.code is ErrorCode.BACKEND_ERROR
        assert failure.message == error.split(" ", 1)[1]


# ---------------------------------------------------------------------- processes


async def test_the_environment_is_short() -> None:
    os.environ["SECRET_OF_THE_SERVER"] = "x"
    try:
        async with talk(env={"AGENT_KEY": "sk-agent-key-123456"}) as it:
            names = set((await it.says("env")).split())
    finally:
        del os.environ["SECRET_OF_THE_SERVER"]
    assert "AGENT_KEY" in names
    assert names <= {"PATH", "HOME", "LANG", "TERM", "USER", "AGENT_KEY", "LC_CTYPE"}


async def test_children_of_agents_end_with_them() -> None:
    async with talk("spawn=yes") as it:
        await it.says("say hi")
        assert len(processes()) == 2
    assert processes() == []


async def test_an_idle_process_is_ended() -> None:
    async with talk(idle=0.2) as it:
        await it.says("say hi")
        await until(lambda: processes() == [])
        assert await it.says("say hi") == "hi "


async def test_a_process_that_waits_for_a_person_is_not_idle() -> None:
    async with talk(idle=0.1) as it:
        asked = await it.run("ask")
        await asyncio.sleep(0.5)
        assert (await it.answers("yes", asked)).text == "Chosen: id-allow_once"


async def test_sessions_of_a_process_are_limited() -> None:
    async with agents("close=yes", sessions_per_process=2, processes=2) as bridge:
        pids = [(await Talk(bridge, str(n)).says("where")).split()[1] for n in range(6)]
        assert pids[0] == pids[1]
        assert pids[2] == pids[3] != pids[0]
        assert len(processes()) == 2


async def test_the_process_of_another_owner_makes_room_unless_it_is_at_work() -> None:
    async with agents(processes=1) as bridge:
        await Talk(bridge, "t", "ann").says("say hi")
        await Talk(bridge, "t", "bob").says("say hi")
        assert [each.owner for each in backend(bridge).pool.processes] == ["bob"]
        run = await start(Talk(bridge, "t", "bob"), "slow")
        failure = (await Talk(bridge, "t", "ann").run("say hi")).failure
        assert failure is not None
        assert failure.code is ErrorCode.OVERLOADED
        await run.close()


async def test_closing_ends_open_prompts_and_their_processes() -> None:
    began = time.monotonic()
    async with agents() as bridge:
        await Talk(bridge, "asks").run("ask")
        await start(Talk(bridge, "works"), "slow")
    assert time.monotonic() - began < 15


# ---------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"command": None}, "command"), ({"url": "ws://127.0.0.1:1"}, "command"), ({"cwd": None}, "cwd"),
        ({"api_key": "k"}, "api_key"), ({"headers": {"a": "b"}}, "headers"), ({"env": {"a b": "c"}}, "env"),
        ({"options": {"permissions": "allow_always"}}, "permissions"), ({"options": {"idle": 0}}, "idle"),
        ({"dialect": "openai-chat", "url": "http://x"}, "command"),
    ],
)  # fmt: skip
def test_mistakes_in_a_configuration_name_their_key(change: dict[str, Any], key: str) -> None:
    config = configuration()
    config["backends"]["agent"] = {k: v for k, v in (config["backends"]["agent"] | change).items() if v is not None}
    with pytest.raises(ConfigError) as caught:
        Bridge.from_config(config)
    assert f"backends.agent.{'options.' if key in ('permissions', 'idle') else ''}{key}" in str(caught.value)


def test_sessions_need_one_worker() -> None:
    config = configuration() | {"server": {"workers": 2}}
    with pytest.raises(ConfigError, match=r"server\.workers"):
        Bridge.from_config(config)
