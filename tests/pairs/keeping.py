"""Clients that send only what is new, whose conversations the bridge keeps: one message of each as a request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.server.harness import Reply, ask, post

Wire = dict[str, Any]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
KEEPING = ("agentscope", "ag-kit", "a2a", "ai-sdk-ui", "agent-runs")
"""Dialects of such clients."""


def route(dialect: str, **more: Any) -> Wire:
    """Return the route `/r` for such clients."""
    options = {"options": {"last_message": True}} if dialect == "ai-sdk-ui" else {}
    return {"dialect": dialect, "path": "/r", "backend": "it", **options, **more}


def run_input(text: str, number: int) -> Wire:
    messages = [{"id": f"m{number}", "role": "user", "content": text}]
    return {"threadId": "t", "runId": f"r{number}", "state": {}, "messages": messages, "tools": [], "context": [],
            "forwardedProps": {}}  # fmt: skip


def request(dialect: str, text: str, number: int) -> tuple[str, Wire, dict[str, str]]:
    """Return path, body and headers of message `number` in the conversation `t`."""
    match dialect:
        case "agentscope":
            said = [{"role": "user", "type": "message", "content": [{"type": "text", "text": text}]}]
            return "/process", {"input": said, "session_id": "t", "user_id": "u", "stream": True}, {}
        case "ag-kit":
            return "/send-message", {**run_input(text, number), "conversationId": "t"}, {}
        case "a2a":
            message = {"contextId": "t", "messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": text}]}
            return "/message:send", {"message": message}, {"A2A-Version": "1.0"}
        case "ai-sdk-ui":
            message = {"id": f"m{number}", "role": "user", "parts": [{"type": "text", "text": text}]}
            return "", {"id": "t", "message": message, "trigger": "submit-message"}, {}
        case "agent-runs":
            return "/runs", {**run_input(text, number), "forwardedProps": {"runtime_mode": "chat"}}, {}
    raise AssertionError(dialect)


@dataclass
class Client:
    """Sends its messages one after another; `turn` returns the whole answer."""

    dialect: str
    base: str
    sent: int = 0

    async def turn(self, text: str) -> Reply:
        self.sent += 1
        path, body, headers = request(self.dialect, text, self.sent)
        reply = await post(f"{self.base}/r{path}", body, **headers)
        if self.dialect != "agent-runs" or reply.status >= 300:
            return reply
        return await ask("GET", f"{self.base}/r/runs/t/events?runId=r{self.sent}")

    async def talk(self, texts: Sequence[str]) -> list[Reply]:
        async with asyncio.timeout(60):
            return [await self.turn(text) for text in texts]
