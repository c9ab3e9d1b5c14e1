"""A real Chromium, started once for a module: for the bridge's own page and for those of other projects."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, async_playwright

from tests.server.harness import bound_socket

PATIENCE = 20_000
"""Milliseconds: far more than anything in a page takes on a machine that is not stuck."""


def chromium() -> str:
    """The browser. A machine without one skips its tests, loudly; CI has it."""
    found = (
        shutil.which("chromium-headless-shell")
        or shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if found is None and not os.environ.get("CI"):
        pytest.skip("CHROMIUM IS NOT INSTALLED: the page was not tried in a browser")
    assert found is not None, "CI must have Chromium"
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    path = chromium()
    async with async_playwright() as playwright:
        # Containers give /dev/shm too little room, and have no graphics.
        browser = await playwright.chromium.launch(
            executable_path=path, args=["--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield browser
        await browser.close()


async def bundle(folder: Path, *arguments: str) -> None:
    """Runs the script `build.mjs` of a page's folder."""
    piped = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("node", "build.mjs", *arguments, cwd=folder, stderr=piped)
    _, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()


@contextlib.asynccontextmanager
async def site(folder: Path) -> AsyncIterator[str]:
    """The files of a page, served as by an application of its own: its origin."""
    app = web.Application()
    app.router.add_static("/", folder)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = bound_socket()
    await web.SockSite(runner, listening).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        await runner.cleanup()
