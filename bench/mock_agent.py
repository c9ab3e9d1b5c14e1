"""The mock upstream over gRPC: an AIP agent that answers with the same deltas, each a message made in advance.

`mock_upstream.py --grpc-port` serves it in its own process, by its own settings (`tokens`, `delay_ms`, `first_ms`,
`stamp`). It answers the first inquiry of a session, and says goodbye behind the second message.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import grpc.aio
from mock_replies import STAMP_HOLE, Settings

from bridge.dialects.aip.wire import AgentMessage, ContentItem, SessionStatus, TaskInfo, TaskStatus

AGENT = "mock"
METHOD = "/grpc_service.AgentService/CallAgent"


def _message(status: SessionStatus, text: str) -> bytes:
    task = TaskInfo("task_bench", [], TaskStatus.CREATE)
    return AgentMessage(AGENT, "bench", "session", status, task, "msg_bench", "", [ContentItem(text=text)]).to_bytes()


class MockAgent(grpc.GenericRpcHandler):
    """`settings` are read at the beginning of each session."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.made: tuple[list[str], list[bytes]] = ([], [])
        self.goodbye = _message(SessionStatus.STOP_RESPONSE, "bye")

    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self.answer) if details.method == METHOD else None

    def messages(self) -> list[bytes]:
        texts = self.settings.texts
        if texts != self.made[0]:
            self.made = (texts, [_message(SessionStatus.HOLD_RESPONSE, text) for text in texts])
        return self.made[1]

    async def answer(self, _: Any, rpc: Any) -> None:
        if await rpc.read() is grpc.aio.EOF:
            return
        settings, loop = self.settings, asyncio.get_running_loop()
        delay, stamp = settings["delay_ms"] / 1000.0, settings["stamp"]
        due = loop.time() + settings["first_ms"] / 1000.0
        for message in self.messages():
            if (left := due - loop.time()) > 0:
                await asyncio.sleep(left)
            due += delay
            await rpc.write(message.replace(STAMP_HOLE, b"T%020d" % time.monotonic_ns()) if stamp else message)
        await rpc.read()  # STOP_QUEST: whoever asks here says it right behind the inquiry
        await rpc.write(self.goodbye)


async def serve(settings: Settings, host: str, port: int) -> grpc.aio.Server:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((MockAgent(settings),))
    server.add_insecure_port(f"{host}:{port}")
    await server.start()
    return server
