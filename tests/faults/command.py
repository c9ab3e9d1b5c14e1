"""The command `dialect-bridge serve` in a process of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.docs.helpers import COMMAND, environment


@asynccontextmanager
async def serving_process(
    folder: Path, port: int, config: dict[str, Any], *options: str, shell: str = ""
) -> AsyncIterator[str]:
    """Serve this configuration; yields the base URL. The output is in `folder / "log"`. `shell` runs before it."""
    file = folder / "config.yaml"
    file.write_text(json.dumps(config))
    command = [COMMAND, "serve", str(file), *options]
    if shell:
        # Not by `preexec_fn`: the child of a process with threads (gRPC's) must not run Python before that.
        command = ["sh", "-c", f'{shell} && exec "$@"', "sh", *command]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, cwd=folder, env=environment())
    try:
        await _listening(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def _listening(process: asyncio.subprocess.Process, port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            assert process.returncode is None
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
