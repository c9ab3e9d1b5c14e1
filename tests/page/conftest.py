"""A real Chromium for the page, started once, and a bridge that serves it over the demo and over a wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Error, Locator, Page

from bridge.contract import registry
from tests.browser import PATIENCE, browser
from tests.server.harness import free_port, serving

__all__ = ["browser"]

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
_DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
PROGRAMS = ("mcp", "acp")
"""Dialects whose clients are programs: these have no client on the page."""
DIALECTS = [name for name in registry.over_http() if registry.get(name).called and name not in PROGRAMS]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Every dialect over the demo at `/<its name>`; `/v1` over an agent on a wire; `/down` over nobody."""
    port, folder = free_port(), tmp_path_factory.mktemp("page")
    config: dict[str, Any] = {
        "server": {"port": port},
        "backends": {
            "demo": {"dialect": "demo"},
            "mine": {"dialect": "python", "target": "examples.agent:run"},
            "agent": {"dialect": "agentscope", "url": f"http://127.0.0.1:{port}/mine"},
            "llm": {"dialect": "openai-chat", "url": f"http://127.0.0.1:{free_port()}/v1"},
        },
        "routes": [
            {"dialect": "openai-chat", "path": "/v1", "backend": "agent"},
            *({"dialect": name, "path": f"/{name}", "backend": "demo"} for name in DIALECTS),
            {"dialect": "agentscope", "path": "/mine", "backend": "mine"},
            {"dialect": "ag-ui", "path": "/down", "backend": "llm"},
            *({"dialect": name, "path": f"/{name}", "backend": "demo"} for name in PROGRAMS),
        ],
        "stores": {"history": f"sqlite:///{folder}/history.db", "runs": f"sqlite:///{folder}/runs.db"},
    }
    async with serving(config) as url:
        yield url


class Tab:
    """The page in a tab of its own. `problems` is what the browser complained about, broken CSP rules included."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.problems: list[str] = []
        self._turns = 0
        page.set_default_timeout(PATIENCE)
        page.on("console", self._said)
        page.on("pageerror", self._broke)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _broke(self, error: Error) -> None:
        self.problems.append(str(error))

    async def anew(self) -> None:
        """Forgets the talk that was."""
        await self.page.get_by_role("button", name="New chat").click()
        self.problems.clear()
        self._turns = 0

    async def open(self, query: str = "?lang=en") -> None:
        await self.page.goto(f"{self.base}/{query}")
        await self.page.locator("#routes input:checked").wait_for(state="attached")

    async def choose(self, path: str) -> None:
        """The route that is mounted there."""
        await self.page.locator(".card", has=self.page.get_by_text(f"{path} →")).locator("input").check(force=True)
        self._turns = await self.page.locator(".answer").count()  # another route begins a new chat

    async def say(self, text: str) -> Locator:
        """Types it and presses Enter; the answer, which may be going on."""
        field = self.page.locator("#say")
        await field.fill(text)
        await field.press("Enter")
        self._turns += 1
        return self.page.locator(".answer").nth(self._turns - 1)

    async def ask(self, text: str, state: str = "done") -> Locator:
        """The same, waiting for the end, which is this one."""
        answer = await self.say(text)
        await self.page.locator(".answer[data-state]").nth(self._turns - 1).wait_for()
        assert await answer.get_attribute("data-state") == state, await answer.inner_text()
        await self.drawn()
        return answer

    async def drawn(self) -> None:
        """Until the screen shows what came: what came within one frame of it is drawn with the next."""
        await self.page.evaluate(_DRAWN)

    async def column(self, name: str) -> str:
        """What stands in the column front, events or back, opened or not, once the last of it is drawn."""
        await self.drawn()
        place = ("front", "events", "back").index(name)
        told = "(list) => [...list.children].map((item) => item.textContent).join('\\n')"
        return str(await self.page.locator(".column ol").nth(place).evaluate(told))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(browser: Browser, base: str) -> AsyncIterator[Tab]:
    """English, on a desk; opened once, since that takes longer than most talks."""
    context = await browser.new_context(viewport={"width": 1360, "height": 850}, locale="en-US")
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab = Tab(await context.new_page(), base)
    await tab.open()
    yield tab
    await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def tab(desk: Tab) -> AsyncIterator[Tab]:
    """With nothing said yet; what the browser complains about fails the test."""
    await desk.anew()
    yield desk
    assert desk.problems == []
