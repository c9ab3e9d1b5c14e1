"""Open WebUI, unchanged, in a real browser over a backend of OpenAI chat."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, FilePayload, Locator, Page, expect

from tests.browser import PATIENCE, browser
from tests.docs.helpers import environment
from tests.interop.test_use_chat import HALF, brain, photo
from tests.pairs.agents import BREAKS, Chat, Heard, Say, Step, Use
from tests.server.harness import Exchange, ask, fake_backend, free_port, post, serving

__all__ = ["browser"]

pytestmark = [pytest.mark.interop_all, pytest.mark.asyncio(loop_scope="module")]

PROGRAM = Path(sys.prefix) / "open-webui" / "bin" / "open-webui"
STARTS = 240.0
"""Seconds that it may take to start, for the first time with a new database."""
SETTINGS = {
    "WEBUI_AUTH": "False",
    "WEBUI_SECRET_KEY": "secret",
    "ENABLE_OLLAMA_API": "False",
    "OFFLINE_MODE": "True",
    "ENABLE_VERSION_UPDATE_CHECK": "False",
    # The answers in the browser are all that the model is asked for, and no embeddings are made.
    "ENABLE_TITLE_GENERATION": "False",
    "ENABLE_TAGS_GENERATION": "False",
    "ENABLE_FOLLOW_UP_GENERATION": "False",
    "ENABLE_AUTOCOMPLETE_GENERATION": "False",
    "RAG_EMBEDDING_ENGINE": "openai",
}


def modelled(heard: Heard) -> list[Step]:
    """As `brain`, with a tool that Open WebUI itself offers to models and runs."""
    if heard.last == ("user", "time"):
        return [Use("call_1", "get_current_timestamp", "{}")]
    return brain(heard)


class Model(Chat):
    """Lists itself, as Open WebUI asks for the models first."""

    async def _play(self, exchange: Exchange) -> None:
        if exchange.seen.method == "GET":
            await exchange.answer(200, b'{"object":"list","data":[{"id":"m-1","object":"model"}]}')
        else:
            await super()._play(exchange)

    async def left(self, number: int) -> None:
        """Of the requests for answers."""
        answers = [seen for seen in self.backend.seen if seen.method == "POST"]
        await answers[number].gone.wait()


class Tab:
    """A conversation in a tab."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def say(self, text: str, *files: FilePayload) -> None:
        field = self.page.locator("#chat-input")
        if files:
            await self.page.locator("input[type=file][multiple]").set_input_files(list(files))
            await expect(self.page.locator("#message-input-container img")).to_have_count(len(files))
        await field.click()
        await self.page.keyboard.insert_text(text)
        await expect(field).to_have_text(text)
        await self.page.keyboard.press("Enter")

    @property
    def answer(self) -> Locator:
        return self.page.locator(".chat-assistant").last

    async def reads(self, text: str) -> None:
        """Waits until the last answer has this text, and nothing more comes."""
        await expect(self.answer).to_contain_text(text)
        await expect(self.page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Model, str]]:
    """The model behind the bridge, and the address of Open WebUI in front of it, its news read and gone."""
    assert PROGRAM.exists(), "Open WebUI is not installed: make interop-all"
    folder = tmp_path_factory.mktemp("open-webui")
    async with fake_backend() as backend:
        model = Model(backend)
        model.brain = modelled
        config = {
            "backends": {"it": {"dialect": "openai-chat", "url": model.url}},
            "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
        }
        async with serving(config) as base, started(folder, f"{base}/v1") as url:
            async with tab(browser, url) as first:
                await first.page.get_by_role("button", name="Okay, Let's Go!").click()
                await first.page.get_by_role("dialog").wait_for(state="detached")
            yield model, url


@asynccontextmanager
async def started(folder: Path, models: str) -> AsyncIterator[str]:
    url = f"http://127.0.0.1:{(port := free_port())}"
    variables = environment(**SETTINGS, DATA_DIR=str(folder), OPENAI_API_BASE_URL=models, OPENAI_API_KEY="key")
    log = folder / "log.txt"
    with log.open("wb") as out:
        command = [str(PROGRAM), "serve", "--host", "127.0.0.1", "--port", str(port)]
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=variables, stdout=out, stderr=out)
        try:
            async with asyncio.timeout(STARTS):
                while not await is_up(f"{url}/health"):
                    assert process.returncode is None, log.read_text()
                    await asyncio.sleep(0.5)
            yield url
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def is_up(url: str) -> bool:
    try:
        return (await ask("GET", url)).status == 200
    except OSError:
        return False


async def opened(context: BrowserContext, url: str) -> Tab:
    """A tab with a new conversation, ready to be typed into."""
    page = await context.new_page()
    page.set_default_timeout(5 * PATIENCE)
    await page.goto(url, wait_until="domcontentloaded")
    await page.locator("#chat-input").wait_for()
    return Tab(page)


@asynccontextmanager
async def tab(browser: Browser, url: str) -> AsyncIterator[Tab]:
    """One tab of a browser of its own."""
    context = await browser.new_context()
    yield await opened(context, url)
    await context.close()


expect.set_options(timeout=PATIENCE)


@pytest.mark.timeout(600)
async def test_a_talk(browser: Browser, running: tuple[Model, str]) -> None:
    model, url = running
    model.heard.clear()
    async with tab(browser, url) as chat:
        await chat.say("hello")
        await chat.reads("answer 1")
        assert "get_current_timestamp" in model.heard[-1].tools
        await chat.say("think")
        await chat.reads("The answer is 42.")
        await expect(chat.answer).to_contain_text("Thought for")
        await chat.say("time")
        await chat.reads("It came back:")
        assert "current_iso" in model.heard[-1].last[2]
        await chat.say("look", photo("one.png"), photo("two.png"))
        await chat.reads("answer 4")
        assert [i.startswith("data:image/png;base64,") for i in model.heard[-1].images] == [True] * 2
        await chat.say("break")
        await chat.reads(BREAKS)
        await expect(chat.answer).to_contain_text(HALF)
        await chat.say("and now?")
        await chat.reads("answer 6")
        spoken = [entry[1] for entry in model.heard[-1].conversation if entry[0] == "user"]
        words = ["hello", "think", "time", "look", "break", "and now?"]  # photos have a text before theirs
        assert [said.endswith(word) for said, word in zip(spoken, words, strict=True)] == [True] * 6


@pytest.mark.timeout(600)
async def test_stop(browser: Browser, running: tuple[Model, str]) -> None:
    model, url = running
    async with tab(browser, url) as chat:
        before = sum(seen.method == "POST" for seen in model.backend.seen)
        await chat.say("wait")
        await expect(chat.answer).to_contain_text(HALF)
        await chat.page.get_by_role("button", name="Stop", exact=True).click()
        async with asyncio.timeout(PATIENCE / 1000):
            await model.left(before)
        await chat.say("and now?")
        await chat.reads("answer 2")


@pytest.mark.timeout(600)
async def test_twenty_at_once(browser: Browser, running: tuple[Model, str]) -> None:
    """Through its server, as the page asks it: twenty pages would measure the browser."""
    model, url = running
    model.brain = lambda heard: [Say(f"echo of {heard.last[1]}")]
    async with tab(browser, url) as chat:
        token = await chat.page.evaluate("localStorage.token")

    async def talk(number: int) -> None:
        messages: list[dict[str, str]] = []
        for turn in range(2):
            messages.append({"role": "user", "content": f"word {number} {turn}"})
            body = {"model": "m-1", "messages": messages, "stream": True}
            reply = await post(f"{url}/api/chat/completions", body, authorization=f"Bearer {token}")
            chunks = [orjson.loads(line[6:]) for line in reply.body.splitlines() if line.startswith(b"data: {")]
            text = "".join(choice["delta"].get("content") or "" for c in chunks for choice in c.get("choices") or ())
            assert text == f"echo of word {number} {turn}"
            messages.append({"role": "assistant", "content": text})

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(talk(number))
