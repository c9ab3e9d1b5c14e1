#!/usr/bin/env python3
"""`load.py` for AIP: sessions with an agent over gRPC, in a closed loop, checked in the same way.

    python bench/load_grpc.py --url grpc://127.0.0.1:50051/bridge --concurrency 32 --requests 500 --expect-tokens 100

Each session asks once and says goodbye at once (START_QUEST, STOP_QUEST); the answer is everything before the
STOP_RESPONSE. Takes the options of load.py; `?register=HOST:PORT` in the URL registers the agent at that address first,
so that its sessions are relayed to it. All workers share one connection, as programs do.

Checked on every reply: status OK, at least one delta, a STOP_RESPONSE at the end; on one in --sample, and the first of
all: the joined text is that of the mock upstream. Prints one JSON line; the exit status is 1 when a reply was wrong or
missing.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc
import grpc.aio
from load import STAMP, Load, main

from bridge.dialects.aip.wire import AgentInfo, AgentMessage, ContentItem, SessionStatus, TaskInfo

_GATEWAY = "/grpc_service.GatewayService/"


class GrpcLoad(Load):
    """The same figures of other requests."""

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        url = urlsplit(args.url)
        self.agent = url.path.strip("/")
        self.register = parse_qs(url.query).get("register", [""])[0]
        self.channel = grpc.aio.insecure_channel(f"{self.host}:{self.port}")
        self.call = self.channel.stream_stream(f"{_GATEWAY}RouteAgentCalling")

    async def run(self) -> dict[str, Any]:
        if self.register:
            await self.registered()
        async with self.channel:
            return await super().run()

    async def registered(self) -> None:
        info = AgentInfo(self.agent, self.register, self.agent, "default").to_bytes()
        try:
            await self.channel.unary_unary(f"{_GATEWAY}RegisterAgent")(info, timeout=10)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
                raise

    async def connect(self) -> None:
        """A worker: sessions one after the other."""
        while self.take():
            try:
                async with asyncio.timeout(self.args.timeout):
                    await self.session()
            except TimeoutError:
                self.fail("timeout")
            except grpc.aio.AioRpcError as error:
                self.fail(f"status {error.code().name}", error.details() or "")
        self.worker_over()

    async def session(self) -> None:
        name, sent = os.urandom(16).hex(), time.perf_counter()
        call = self.call()
        for status, text in ((SessionStatus.START_QUEST, "hi"), (SessionStatus.STOP_QUEST, "bye")):
            # The agent's own name: a session counts as a beat of its sender, so that a registered mock stays known.
            message = AgentMessage(
                self.agent, self.agent, name, status, TaskInfo(name), name, "", [ContentItem(text=text)]
            )
            await call.write(message.to_bytes())
        await call.done_writing()
        came: list[tuple[int, bytes]] = []
        first = None
        while (body := await call.read()) is not grpc.aio.EOF:
            first = first or time.perf_counter()
            came.append((time.monotonic_ns(), body))
        self.ended([AgentMessage.from_bytes(body) for _, body in came], came, sent, first)

    def ended(
        self, answers: list[AgentMessage], came: list[tuple[int, bytes]], sent: float, first: float | None
    ) -> None:
        """One reply is over."""
        held = [m.text for m in answers if m.session_status == SessionStatus.HOLD_RESPONSE and m.text]
        if not held or first is None:
            return self.fail("no text", repr(answers))
        if answers[-1].session_status != SessionStatus.STOP_RESPONSE:
            return self.fail("no terminal marker", repr(answers[-1]))
        self.deltas += len(held)
        self.bytes += sum(len(body) for _, body in came)
        self.total.append(time.perf_counter() - sent)
        self.ttfb.append(first - sent)
        self.ttft.append(first - sent)
        if self.args.stamped:
            self.lags(came)
        if self.expect and self.serial % self.args.sample == 0:
            self.checked += 1
            if fault := self.text_fault("".join(held)):
                self.fail("wrong content", fault)
        self.serial += 1
        return None

    def text_fault(self, text: str) -> str:
        if not self.args.stamped:
            return "" if text == self.expect else f"the text differs: {text[:60]!r}"
        stamps = STAMP.findall(text.encode())
        in_order = len(stamps) == self.args.expect_tokens and stamps == sorted(stamps)
        return "" if in_order else f"{len(stamps)} stamps, or not in order"


if __name__ == "__main__":
    main(GrpcLoad)
