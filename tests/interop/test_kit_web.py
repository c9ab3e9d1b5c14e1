"""The React client of AG-Kit in a real browser: it sends its answers as JSON in a string, and skips error events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser import PATIENCE, browser, bundle, site
from tests.interop.conftest import node_client
from tests.interop.test_use_chat import HALF, Chat, brain
from tests.pairs.agents import AGENTS, BREAKS, Agent, Heard, Say, Step
from tests.server.harness import fake_backend, serving

__all__ = ["browser"]

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]

FOLDER = Path(__file__).parent / "kit-web"
backs = pytest.mark.parametrize("back", ["openai-chat", "anthropic-messages", "agentscope", "ag-ui"])


def listening(heard: Heard) -> list[Step]:
    """As `brain`, and takes a word for an answer."""
    return [Say("It was not done.")] if heard.resume == "no" else brain(heard)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def origin(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    node_client(FOLDER, "AG-Kit's client")
    folder = tmp_path_factory.mktemp("kit")
    await bundle(FOLDER, str(folder))
    async with site(folder) as url:
        yield url


@asynccontextmanager
async def chatting(browser: Browser, origin: str, back: str, folder: Path) -> AsyncIterator[Chat]:
    async with fake_backend() as backend:
        agent: Agent = AGENTS[back](backend)
        agent.brain = listening
        config = {
            "server": {"cors": {"origins": [origin]}},
            "backends": {"it": {"dialect": agent.dialect, "url": agent.url, "options": agent.options}},
            "routes": [{"dialect": "ag-kit", "path": "/kit", "backend": "it", "options": {"errors": "text"}}],
            "stores": {"history": f"sqlite:///{folder}/chats.db"},
        }
        async with serving(config) as base:
            page: Page = await browser.new_page()
            page.set_default_timeout(PATIENCE)
            await page.goto(f"{origin}/index.html?{urlencode({'url': f'{base}/kit/send-message'})}")
            yield Chat(page, agent)
            await page.close()


expect.set_options(timeout=PATIENCE)


@backs
async def test_a_talk(browser: Browser, origin: str, tmp_path: Path, back: str) -> None:
    """Several turns, tools on both sides, and a failure, which is shown after the half of the answer."""
    async with chatting(browser, origin, back, tmp_path) as chat:
        await chat.say("hello")
        await chat.reads("answer 1")
        await chat.say("where")
        await chat.reads('It came back: {"city":"Paris"}')
        await expect(chat.answer.locator(".call b")).to_have_text("get_place")
        assert "get_place" in chat.agent.heard[-1].tools or chat.agent.remembers
        if chat.agent.runs_tools:
            await chat.say("time")
            await chat.reads("It is noon.")
            await expect(chat.answer.locator(".call samp")).to_have_text('{"time":"12:34"}')
        await chat.say("break")
        await expect(chat.text).to_contain_text(HALF)
        await expect(chat.text).to_contain_text(BREAKS)
        await chat.status("ready")
        await chat.say("and now?")
        await expect(chat.text).to_have_text(re.compile(r"^answer \d$"))
        said = [entry[1] for entry in chat.agent.heard[-1].conversation if entry[0] == "user"]
        assert [s for s in said if s != "time"] == ["hello", "where", "break", "and now?"]


@backs
async def test_stop(browser: Browser, origin: str, tmp_path: Path, back: str) -> None:
    async with chatting(browser, origin, back, tmp_path) as chat:
        await chat.say("wait")
        await expect(chat.text).to_have_text(HALF)
        await chat.click("Stop")
        async with asyncio.timeout(PATIENCE / 1000):
            await chat.agent.left(0)
        await chat.say("and now?")
        await chat.reads("answer 2")


@pytest.mark.parametrize("back", ["agentscope", "ag-ui"])
async def test_an_approval(browser: Browser, origin: str, tmp_path: Path, back: str) -> None:
    """Answered with an object and with a word, yes and no. A question with no text before it is shown too."""
    async with chatting(browser, origin, back, tmp_path) as chat:
        answers = {"Approve": "It is done.", "Deny": "It was not done.", "Yes": "It is done.", "No": "It was not done."}
        for turn, (button, text) in enumerate(answers.items(), 1):
            await chat.say("ask")
            await chat.page.locator(".interrupt").wait_for()
            await chat.click(button)
            await chat.reads(text)
            assert chat.agent.heard[-1].resumed == f"question {turn}"
            assert len(chat.agent.heard) == 2 * turn
