"""The search of the documentation, in a real browser: what people type finds the page that answers it."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.page.conftest import browser  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

FIRST = 3  # pages among which the right one is

WANTED = {
    "proxy": "cookbook/deployment",
    "nginx buffering": "cookbook/deployment",
    "LangGraph": "dialects/langgraph",
    "Open WebUI": "faq",
    "API key": "cookbook/users",
    "base URL": "quickstart",
    "CORS": "configuration",
    "docker": "operations",
    "kubernetes": "operations",
    "Prometheus": "operations",
    "timeout": "faq",
    "first_event": "configuration",
    "rate limit": "errors/rate_limited",
    "502": "faq",
    "MCP": "faq",
    "Gemini": "dialects/gemini",
    "Claude Code": "connect/claude-code",
    "FastAPI": "cookbook/python",
    "cancel": "errors/canceled",
    "reconnect": "cookbook/conversations",
    "thinking": "dialects/anthropic-messages",
    "images": "faq",
    "streaming not working": "faq",
    "session": "dialects/agentscope",
    "tool calls": "faq",
    "install": "quickstart",
    "logging": "operations",
    "OpenTelemetry": "operations",
    "authentication": "configuration",
    "human in the loop": "compatibility",
    "vLLM": "dialects/openai-chat",
    "health check": "operations",
    "reverse proxy": "cookbook/deployment",
    "load balancing": "cookbook/routing",
    "reload config": "operations",
    "OIDC": "cookbook/users",
    "SSO": "cookbook/users",
    "retry": "configuration",
    "resume stream": "cookbook/conversations",
    "conversation history": "cookbook/conversations",
    "agent forgets": "faq",
    "LiteLLM": "performance",
    "benchmark": "performance",
    "memory usage": "scale",
    "Ollama": "dialects/openai-chat",
    "Vertex AI": "dialects/gemini",
    "custom protocol": "extending",
    "write your own dialect": "extending",
    "environment variables": "configuration",
    "port already in use": "faq",
    "token usage zero": "faq",
    "SSRF": "threat-model",
    "upload file": "dialects/agent-runs",
    "license": "index",
}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Tests print nothing."""


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(browser: Browser, served: str) -> AsyncIterator[Page]:  # noqa: F811
    page = await browser.new_page()
    await page.goto(f"{served}/index.html?q=bridge")
    yield page
    await page.close()


async def found(reader: Page, words: str) -> list[str]:
    """Return the pages that the search lists, best first."""
    field, meta = reader.get_by_role("textbox", name="Search"), reader.locator(".md-search-result__meta")
    # Every answer, also an empty one, says how many documents match.
    for typed, told in (("", "Type to start searching"), (words, re.compile("match|No "))):
        await field.fill(typed)
        await field.dispatch_event("keyup")
        await expect(meta).to_contain_text(told)
    links = await reader.locator(".md-search-result__item > a").evaluate_all("(all) => all.map((a) => a.href)")
    return list(dict.fromkeys(urlsplit(link).path.strip("/").removesuffix(".html") for link in links))


@pytest.mark.parametrize("words", WANTED)
async def test_what_people_type_finds_the_page(reader: Page, words: str) -> None:
    assert WANTED[words] in (await found(reader, words))[:FIRST]


async def test_words_that_are_nowhere_find_nothing(reader: Page) -> None:
    assert await found(reader, "xylophone") == []
