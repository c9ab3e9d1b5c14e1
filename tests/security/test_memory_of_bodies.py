"""Resident memory of a server that many clients leave with half a body each: it is what `limits.bodies` says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.helpers import serve
from tests.server.harness import post

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc"),
]

MIB = 2**20
BUDGET, CLIENTS, SENT = 128 * MIB, 60, 15 * MIB
PATHS = {"/v1/chat/completions": 503, "/claude/v1/messages": 529}


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


async def half_a_body(port: int, path: str, answers: list[tuple[str, bytes]]) -> None:
    """Sends a part of a body, waits for an answer, and goes away."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {16 * MIB}\r\n\r\n".encode())

    async def send() -> None:
        for _ in range(SENT // 65536):
            writer.write(b"x" * 65536)
            await writer.drain()

    sending = asyncio.create_task(send())
    try:
        answers.append((path, await reader.readuntil(b"\r\n\r\n")))
    finally:
        sending.cancel()
        writer.transport.abort()
        await asyncio.gather(sending, return_exceptions=True)


async def test_it_stays_within_the_limit_and_is_given_back(tmp_path: Path) -> None:
    config = {
        "server": {"limits": {"bodies": f"{BUDGET // MIB}MiB"}},
        "backends": {"it": {"dialect": "demo"}},
        "routes": [
            {"dialect": "openai-chat", "path": "/v1", "backend": "it"},
            {"dialect": "anthropic-messages", "path": "/claude/v1", "backend": "it"},
        ],
        "stores": {"history": "off"},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with serve(tmp_path, tmp_path / "config.yaml") as server:
        before, most = resident(server.process.pid), 0
        for _ in range(3):
            answers: list[tuple[str, bytes]] = []
            clients = [
                asyncio.create_task(half_a_body(server.port, path, answers))
                for path in list(PATHS) * (CLIENTS // len(PATHS))
            ]
            stay = BUDGET // SENT
            async with asyncio.timeout(60):
                while len(answers) < CLIENTS - stay:
                    await asyncio.sleep(0.05)
                    most = max(most, resident(server.process.pid) - before)
            told = sorted({(path, int(head.split()[1])) for path, head in answers})
            assert told == sorted(PATHS.items())
            small = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            assert (await post(f"{server.url}/v1/chat/completions", small)).status == 200
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
        large = {**small, "user": "x" * 900_000}
        async with asyncio.timeout(60):
            while (await post(f"{server.url}/v1/chat/completions", large)).status != 200:
                await asyncio.sleep(0.05)
        left = resident(server.process.pid) - before
    assert BUDGET / 2 < most < 2 * BUDGET
    assert left < BUDGET
