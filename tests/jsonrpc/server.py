"""A program that is spoken to over its standard input and output, and writes there by accident: `server.py [LOOP]`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from bridge.jsonrpc.stdio import StdioCarrier, claim_stdio

early = sys.stdout
stdio = claim_stdio()

import asyncio  # noqa: E402

import uvloop  # noqa: E402

from bridge.jsonrpc import RpcConnection, RpcRequest  # noqa: E402


async def echo(request: RpcRequest) -> Any:
    return request.params


async def noise(request: RpcRequest) -> Any:
    return make_noise()


def make_noise() -> Any:
    """Write and read as programs and libraries do."""
    print("printed")  # noqa: T201
    print("printed to the early stream", file=early, flush=True)
    os.write(1, b"written\n")
    subprocess.run(["echo", "of a child"], check=True)
    subprocess.run(["cat"], check=True)
    return {"input": sys.stdin.read()}


async def main() -> None:
    async with RpcConnection(StdioCarrier(stdio), requests={"echo": echo, "noise": noise}, linger=10) as connection:
        print("ended:", await connection.wait())  # noqa: T201


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if sys.argv[1:] == ["uvloop"] else None) as runner:
        runner.run(main())
    print("at the exit")  # noqa: T201
