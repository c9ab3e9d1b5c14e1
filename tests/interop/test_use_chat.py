"""Pages with `useChat` of three versions of the AI SDK in a real browser, over backends of three dialects."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, Locator, Page, expect

from tests.browser import PATIENCE, browser, bundle, site
from tests.interop.conftest import node_client
from tests.pairs.agents import AGENTS, BREAKS, Agent, Ask, Fall, Hang, Heard, Ran, Say, Step, Think, Use
from tests.server.harness import fake_backend, serving

__all__ = ["browser"]

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]

FOLDER = Path(__file__).parent / "react"
VERSIONS = ("5", "6", "7")
BACKS = ("openai-chat", "ag-ui", "agentscope")
versions = pytest.mark.parametrize("version", VERSIONS)
backs = pytest.mark.parametrize("back", BACKS)
turns = pytest.mark.turns(3)
"""Of the builds of the library and the agents, each with some: what one side says is the same for any other side."""
HALF = "half of the answer"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def photo(name: str) -> FilePayload:
    return {"name": name, "mimeType": "image/png", "buffer": PIXEL}


def brain(heard: Heard) -> list[Step]:
    """Says what the last message of the user asks for."""
    if heard.resume is not None:
        return [Say("It was not done." if heard.refused or refused(heard.resume) else "It is done.")]
    if heard.last[0] == "result":
        return [Say(f"It came back: {heard.last[2]}")]
    turn = sum(entry[0] == "user" for entry in heard.conversation)
    match heard.last[-1]:
        case "think":
            return [Think("The user wants to see me think."), Say("The answer is 42.")]
        case "where":
            return [Use("call_1", "get_place", "{}")]
        case "time":
            return [Ran("call_2", "get_time", "{}", '{"time":"12:34"}'), Say("It is noon.")]
        case "delete":
            call = f"call of turn {turn}"
            return [
                Use(call, "delete", '{"path":"/"}'), Ask(f"question {turn}", {"message": "Sure?"}, "tool_call", call),
            ]  # fmt: skip
        case "ask":
            return [Ask(f"question {turn}", {"name": "delete", "arguments": "{}"})]
        case "break":
            return [Say(HALF), Fall()]
        case "wait":
            return [Say(HALF), Hang()]
    return [Say(f"answer {turn}")]


def refused(payload: Any) -> bool:
    return payload is False or (isinstance(payload, dict) and payload.get("approved") is False)


class Chat:
    """The page in a tab, and the agent behind the bridge."""

    def __init__(self, page: Page, agent: Agent) -> None:
        self.page = page
        self.agent = agent

    async def say(self, text: str, *files: FilePayload) -> None:
        await self.page.get_by_label("Message").fill(text)
        if files:
            await self.page.get_by_label("Files").set_input_files(list(files))
        await self.click("Send")

    async def click(self, button: str) -> None:
        await self.page.get_by_role("button", name=button, exact=True).click()

    @property
    def answer(self) -> Locator:
        """The last message of the assistant."""
        return self.page.locator("article.assistant").last

    @property
    def text(self) -> Locator:
        return self.answer.locator(".text").last

    async def reads(self, text: str) -> None:
        """Waits until the last answer is this text, and whole."""
        await expect(self.text).to_have_text(text)
        await self.status("ready")

    async def status(self, status: str) -> None:
        await expect(self.page.locator("main")).to_have_attribute("data-status", status)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def origin(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Where the application is served, one folder for each version; it is not where the bridge is."""
    node_client(FOLDER, "useChat in a browser")
    folder = tmp_path_factory.mktemp("pages")
    for version in VERSIONS:
        (folder / version).mkdir()
        await bundle(FOLDER, version, str(folder / version))
    async with site(folder) as url:
        yield url


@asynccontextmanager
async def chatting(
    browser: Browser, origin: str, version: str, back: str, folder: Path, **query: str
) -> AsyncIterator[Chat]:
    """The page over an agent. `query` is that of the page; `last` and `resume` need the bridge's route to allow it."""
    async with fake_backend() as backend:
        agent = AGENTS[back](backend)
        agent.brain = brain
        front = {"dialect": "ai-sdk-ui", "path": "/api/chat", "backend": "it", "durable": "resume" in query}
        options = {"ui_version": int(version), "last_message": "last" in query}
        config = {
            "server": {"cors": {"origins": [origin]}},
            "backends": {"it": {"dialect": agent.dialect, "url": agent.url, "options": agent.options}},
            "routes": [{**front, "options": options}],
            "stores": {"history": f"sqlite:///{folder}/chats.db"},
        }
        async with serving(config) as base:
            page = await browser.new_page()
            page.set_default_timeout(PATIENCE)
            broken: list[str] = []
            page.on("pageerror", lambda error: broken.append(str(error)))
            search = urlencode({"api": f"{base}/api/chat", "id": "chat-1", **query})
            await page.goto(f"{origin}/{version}/index.html?{search}")
            yield Chat(page, agent)
            await page.close()
            assert broken == []


expect.set_options(timeout=PATIENCE)


@turns
@versions
@backs
@pytest.mark.parametrize("bodies", ["whole", "last"])
async def test_a_talk(browser: Browser, origin: str, tmp_path: Path, version: str, back: str, bodies: str) -> None:
    """Reasoning, a tool of the page, one of the server, two photos, an error, and what the agent knows at the end."""
    query = {"last": "1"} if bodies == "last" else {}
    async with chatting(browser, origin, version, back, tmp_path, **query) as chat:
        await chat.say("think")
        await chat.reads("The answer is 42.")
        assert await chat.answer.locator(".reasoning").all_inner_texts() == ["The user wants to see me think."]
        await chat.say("where")
        await chat.reads('It came back: {"city":"Paris"}')
        await expect(chat.answer.locator(".call")).to_have_attribute("data-state", "output-available")
        if chat.agent.runs_tools:
            await chat.say("time")
            await chat.reads("It is noon.")
            assert await chat.answer.locator("samp").all_inner_texts() == ['{"time":"12:34"}']
        await chat.say("look", photo("one.png"), photo("two.png"))
        await expect(chat.page.locator("article.user").last.locator("img")).to_have_count(2)
        asked = await chat.page.locator("article.user").count()
        await chat.reads(f"answer {asked}")
        assert [i.startswith("data:image/png;base64,") for i in chat.agent.heard[-1].images] == [True] * 2
        await chat.say("break")
        await expect(chat.page.get_by_role("alert")).to_contain_text(BREAKS)
        await expect(chat.text).to_have_text(HALF)
        await chat.say("and now?")
        await chat.reads(f"answer {asked + 2}")
        said = [entry[1] for entry in chat.agent.heard[-1].conversation if entry[0] == "user"]
        assert said == ["think", "where", *(["time"] if chat.agent.runs_tools else []), "look", "break", "and now?"]
        results = [entry for entry in chat.agent.heard[-1].conversation if entry[0] == "result"]
        assert [r[2] for r in results] == ['{"city":"Paris"}', '{"time":"12:34"}'][: len(results)]
        assert len(results) == 1 + chat.agent.runs_tools


@turns
@versions
@backs
async def test_stop(browser: Browser, origin: str, tmp_path: Path, version: str, back: str) -> None:
    async with chatting(browser, origin, version, back, tmp_path) as chat:
        await chat.say("wait")
        await expect(chat.text).to_have_text(HALF)
        await chat.click("Stop")
        async with asyncio.timeout(PATIENCE / 1000):
            await chat.agent.left(0)
        await chat.status("ready")
        await chat.say("and now?")
        await chat.reads("answer 2")


@turns
@versions
@pytest.mark.parametrize(("back", "question"), [("ag-ui", "delete"), ("ag-ui", "ask"), ("agentscope", "ask")])
@pytest.mark.parametrize("bodies", ["whole", "last"])
async def test_an_approval(
    browser: Browser, origin: str, tmp_path: Path, version: str, back: str, question: str, bodies: str
) -> None:
    """Of a call where the agent names it and the version knows approvals; else a data part of the application."""
    query = {"last": "1"} if bodies == "last" else {}
    async with chatting(browser, origin, version, back, tmp_path, **query) as chat:
        for turn, (button, text) in enumerate((("Approve", "It is done."), ("Deny", "It was not done.")), 1):
            await chat.say(question)
            await expect(chat.page.locator("article.assistant")).to_have_count(turn)
            if question == "delete":
                state = "approval-requested" if version != "5" else "input-available"
                await expect(chat.answer.locator(".call")).to_have_attribute("data-state", state)
            await chat.answer.get_by_role("button", name=button, exact=True).click()
            await chat.reads(text)
            assert len(chat.agent.heard) == 2 * turn
            assert chat.agent.heard[-1].resumed == f"question {turn}"
            assert chat.agent.heard[-1].last[0] != "result", "nobody ran it yet"


@versions
async def test_another_answer(browser: Browser, origin: str, tmp_path: Path, version: str) -> None:
    for query in ({}, {"last": "1"}):
        folder = tmp_path / f"last{len(query)}"
        folder.mkdir()
        async with chatting(browser, origin, version, "openai-chat", folder, **query) as chat:
            await chat.say("hello")
            await chat.reads("answer 1")
            chat.agent.brain = lambda heard: [Say("another")]
            await chat.click("Again")
            await chat.reads("another")
            assert chat.agent.heard[-1].conversation == [("user", "hello")]


@turns
@versions
@backs
async def test_a_reload(browser: Browser, origin: str, tmp_path: Path, version: str, back: str) -> None:
    """The run goes on without its page, which has the whole answer when it is there again."""
    async with chatting(browser, origin, version, back, tmp_path, resume="1") as chat:
        goes_on = asyncio.Event()
        send, rest = chat.agent._play, "and the rest"
        chat.agent.brain = lambda heard: [Say(f"{HALF} {rest}")]

        async def in_two(exchange: Any) -> None:
            sending = exchange.send

            async def slowly(data: bytes) -> None:
                if rest.encode() in data and not goes_on.is_set():
                    await goes_on.wait()
                await sending(data)

            exchange.send = slowly
            await send(exchange)

        chat.agent.backend.plays(in_two)
        await chat.say("slowly")
        await expect(chat.text).to_contain_text(HALF[:9])
        await chat.page.reload()
        await expect(chat.text).to_contain_text(HALF[:9])
        await chat.status("streaming")
        goes_on.set()
        await chat.reads(f"{HALF} {rest}")
        assert await chat.page.locator("article.assistant").count() == 1
        assert len(chat.agent.heard) == 1
