"""CopilotKit's chat in a real browser, with an agent of AG-UI itself and through CopilotKit's own server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, Locator, Page, expect

from tests.browser import PATIENCE, browser, bundle, site
from tests.docs.helpers import environment
from tests.interop.conftest import node_client
from tests.interop.test_use_chat import HALF, brain, photo
from tests.pairs.agents import AGENTS, BREAKS, Agent, Heard, Say, Step, Use
from tests.server.harness import fake_backend, free_port, serving

__all__ = ["browser"]

pytestmark = [pytest.mark.interop_all, pytest.mark.asyncio(loop_scope="module")]

FOLDER = Path(__file__).parent / "copilotkit"
BACKS = ("openai-chat", "agentscope", "ag-ui")
backs = pytest.mark.parametrize("back", BACKS)
ways = pytest.mark.parametrize("way", ["direct", "runtime"])


def human(heard: Heard) -> list[Step]:
    """As `brain`, and asks the user by a tool of the page."""
    if heard.last == ("user", "confirm"):
        return [Use("call_9", "confirm", '{"what":"Sure?"}')]
    return brain(heard)


class Chat:
    """The page in a tab, and the agent behind the bridge."""

    def __init__(self, page: Page, agent: Agent) -> None:
        self.page = page
        self.agent = agent

    async def say(self, text: str, *files: FilePayload) -> None:
        for file in [list(files)] if files else []:
            await self.page.locator("input[type=file]").set_input_files(file)
            await expect(self.page.get_by_test_id("copilot-attachment-queue").locator("img")).to_have_count(len(files))
        await self.page.get_by_test_id("copilot-chat-textarea").fill(text)
        await self.page.get_by_test_id("copilot-send-button").click()

    async def click(self, button: str) -> None:
        await self.page.get_by_role("button", name=button, exact=True).click()

    @property
    def answer(self) -> Locator:
        return self.page.get_by_test_id("copilot-assistant-message").last

    async def reads(self, text: str) -> None:
        await expect(self.answer).to_contain_text(text)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def origin(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    node_client(FOLDER, "CopilotKit")
    folder = tmp_path_factory.mktemp("copilotkit")
    await bundle(FOLDER, str(folder))
    async with site(folder) as url:
        yield url


@asynccontextmanager
async def runtime(agent: str) -> AsyncIterator[str]:
    """CopilotKit's server; its address."""
    port, piped = free_port(), asyncio.subprocess.PIPE
    quiet = environment(COPILOTKIT_TELEMETRY_DISABLED="true")
    process = await asyncio.create_subprocess_exec(
        "node", "runtime.mjs", str(port), agent, cwd=FOLDER, env=quiet, stdout=piped
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
        yield f"http://127.0.0.1:{port}/api/copilotkit"
    finally:
        process.kill()
        await process.communicate()


@asynccontextmanager
async def bridged(origin: str, way: str, back: str, folder: Path) -> AsyncIterator[tuple[Agent, str]]:
    """An agent behind the bridge, and the address of the page for it."""
    async with fake_backend() as backend:
        agent = AGENTS[back](backend)
        agent.brain = human
        config = {
            "server": {"cors": {"origins": [origin]}},
            "backends": {"it": {"dialect": agent.dialect, "url": agent.url, "options": agent.options}},
            "routes": [{"dialect": "ag-ui", "path": "/agent", "backend": "it"}],
            "stores": {"history": f"sqlite:///{folder}/chats.db"},
        }
        async with serving(config) as base:
            if way == "direct":
                yield agent, f"{origin}/index.html?{urlencode({'agent': f'{base}/agent'})}"
                return
            async with runtime(f"{base}/agent") as url:
                yield agent, f"{origin}/index.html?{urlencode({'runtime': url})}"


@asynccontextmanager
async def chatting(browser: Browser, origin: str, way: str, back: str, folder: Path) -> AsyncIterator[Chat]:
    async with bridged(origin, way, back, folder) as (agent, address):
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE)
        await page.goto(address)
        yield Chat(page, agent)
        await page.close()


expect.set_options(timeout=PATIENCE)


@ways
@backs
async def test_a_talk(browser: Browser, origin: str, tmp_path: Path, way: str, back: str) -> None:
    """Reasoning, tools on both sides, a person asked by a tool, two photos, an error, and what the agent knows."""
    async with chatting(browser, origin, way, back, tmp_path) as chat:
        await chat.say("think")
        await chat.reads("The answer is 42.")
        await expect(chat.page.get_by_text("The user wants to see me think.")).to_have_count(1)
        await chat.say("where")
        await chat.reads('It came back: {"city":"Paris"}')
        offered = {"get_place", "confirm"}
        assert offered <= set(chat.agent.heard[-1].tools) or chat.agent.remembers
        if chat.agent.runs_tools:
            await chat.say("time")
            await chat.reads("It is noon.")
            await expect(chat.page.locator(".call[data-name=get_time] samp")).to_have_text('{"time":"12:34"}')
        await chat.say("confirm")
        await chat.click("Deny")
        await chat.reads("It came back: no")
        await chat.say("look", photo("one.png"), photo("two.png"))
        await expect(chat.page.get_by_test_id("copilot-user-message").last.locator("img")).to_have_count(2)
        asked = await chat.page.get_by_test_id("copilot-user-message").count()
        await chat.reads(f"answer {asked}")
        assert [i.startswith("data:image/png;base64,") for i in chat.agent.heard[-1].images] == [True] * 2
        await chat.say("break")
        await expect(chat.page.locator("#wrong")).to_contain_text(BREAKS)
        await chat.say("and now?")
        await chat.reads(f"answer {asked + 2}")
        said = [entry[1] for entry in chat.agent.heard[-1].conversation if entry[0] == "user"]
        assert [s for s in said if s != "time"] == ["think", "where", "confirm", "look", "break", "and now?"]


@ways
@backs
async def test_stop(browser: Browser, origin: str, tmp_path: Path, way: str, back: str) -> None:
    async with chatting(browser, origin, way, back, tmp_path) as chat:
        await chat.say("wait")
        await chat.reads(HALF)
        await chat.page.get_by_test_id("copilot-send-button").click()
        async with asyncio.timeout(PATIENCE / 1000):
            await chat.agent.left(0)
        await chat.say("and now?")
        await chat.reads("answer 2")


@ways
@pytest.mark.parametrize("back", ["agentscope", "ag-ui"])
async def test_an_approval(browser: Browser, origin: str, tmp_path: Path, way: str, back: str) -> None:
    async with chatting(browser, origin, way, back, tmp_path) as chat:
        for turn, (button, text) in enumerate((("Approve", "It is done."), ("Deny", "It was not done.")), 1):
            await chat.say("ask")
            await chat.page.locator(".interrupt").wait_for()
            await chat.click(button)
            await chat.reads(text)
            assert len(chat.agent.heard) == 2 * turn
            assert chat.agent.heard[-1].resumed == f"question {turn}"


@ways
async def test_twenty_at_once(browser: Browser, origin: str, tmp_path: Path, way: str) -> None:
    """Twenty tabs, each with a conversation of its own."""
    async with bridged(origin, way, "openai-chat", tmp_path) as (agent, address):
        agent.brain = lambda heard: [Say(f"echo of {heard.last[1]}")]
        context = await browser.new_context()

        async def talk(number: int) -> None:
            page = await context.new_page()
            page.set_default_timeout(5 * PATIENCE)
            await page.goto(address)
            chat = Chat(page, agent)
            for turn in range(2):
                await chat.say(f"word {number} {turn}")
                await expect(chat.answer).to_contain_text(f"echo of word {number} {turn}", timeout=5 * PATIENCE)

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(talk(number))
        await context.close()
        last = sorted(h.conversation for h in agent.heard if len(h.conversation) == 3)
        assert len(last) == 20
        assert all(said[0][1].split()[1] == said[2][1].split()[1] for said in last), "no talk has words of another"
