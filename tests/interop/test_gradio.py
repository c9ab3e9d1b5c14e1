"""Gradio's `load_chat`, unchanged, in a real browser: a conversation with two photos and a text file."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, FilePayload, Page, expect

from tests.browser import PATIENCE, browser
from tests.docs.helpers import environment
from tests.interop.test_open_webui import is_up
from tests.pairs.agents import Agent, Chat, Claude, Say, Scope
from tests.server.harness import fake_backend, free_port, serving

__all__ = ["browser"]

pytestmark = [pytest.mark.interop_all, pytest.mark.asyncio(loop_scope="module")]

PYTHON = Path(sys.prefix) / "gradio" / "bin" / "python"
STARTS = 120.0
PHOTO = 3_000_000
"""Bytes, as phones make them."""
PROGRAM = """
import sys
import gradio

chat = gradio.load_chat(sys.argv[1], model="m", token="key", file_types=["text_encoded", "image"])
chat.launch(quiet=True, server_name="127.0.0.1", server_port=int(sys.argv[2]))
"""


@asynccontextmanager
async def started(folder: Path, model: str) -> AsyncIterator[str]:
    assert PYTHON.exists(), "Gradio is not installed: make interop-all"
    port = free_port()
    variables = environment(GRADIO_ANALYTICS_ENABLED="False", GRADIO_TEMP_DIR=str(folder))
    log = folder / "log.txt"
    with log.open("wb") as out:
        command = [str(PYTHON), "-c", PROGRAM, model, str(port)]
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=variables, stdout=out, stderr=out)
        try:
            async with asyncio.timeout(STARTS):
                while not await is_up(f"http://127.0.0.1:{port}/"):
                    assert process.returncode is None, log.read_text()
                    await asyncio.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def photo(number: int) -> FilePayload:
    """A JPEG with a comment of its own."""
    head = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    return {"name": f"photo{number}.jpg", "mimeType": "image/jpeg", "buffer": head + bytes([number]) * PHOTO}


async def say(page: Page, text: str, *files: FilePayload) -> None:
    if files:
        await page.locator("input[type=file]").first.set_input_files(list(files))
        await page.locator(".thumbnail-item").first.wait_for()
    field = page.get_by_test_id("textbox").last
    await field.fill(text)
    await field.press("Enter")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [Chat, Claude, Scope])
async def test_photos(kind: type[Agent], browser: Browser, tmp_path: Path) -> None:
    note: FilePayload = {"name": "note.txt", "mimeType": "text/plain", "buffer": b"a note"}
    async with fake_backend() as backend:
        agent = kind(backend)
        agent.brain = lambda heard: [Say(f"answer {len(agent.heard)}")]
        config = {
            "backends": {"it": {"dialect": agent.dialect, "url": agent.url, "options": agent.options}},
            "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
            "stores": {"history": f"sqlite:///{tmp_path}/talks.db"},
        }
        async with serving(config) as base, started(tmp_path, f"{base}/v1") as url:
            page = await browser.new_page()
            page.set_default_timeout(5 * PATIENCE)
            await page.goto(url)
            turns = [("look", photo(1)), ("and now?",), ("another", photo(2)), ("last", note)]
            for number, (text, *files) in enumerate(turns, 1):
                await say(page, text, *files)
                await expect(page.locator(".bot.message").last).to_contain_text(f"answer {number}")
                await expect(page.get_by_test_id("stop-button")).to_have_count(0)
            await page.close()
    counts = [len(heard.images) for heard in agent.heard]
    assert counts == ([1, 0, 1, 0] if agent.remembers else [1, 1, 2, 2])
    assert all(url.startswith("data:image/jpeg;base64,/9j/") for heard in agent.heard for url in heard.images)
    assert min(len(url) for heard in agent.heard for url in heard.images) > PHOTO
    assert len({seen.json.get("session_id") for seen in backend.seen}) == 1
    assert [entry[1] for entry in agent.heard[-1].spoken] == [
        "look", "answer 1", "and now?", "answer 2", "another", "answer 3", "last\n## note.txt\na note",
    ]  # fmt: skip


expect.set_options(timeout=PATIENCE)
