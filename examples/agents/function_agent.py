"""A plain function as an agent."""

import asyncio
from collections.abc import AsyncIterator

from bridge import Request


def answer(question: str) -> str:
    """Your function. It may block: it runs in a thread."""
    return f"You said: {question}"


async def run(request: Request) -> AsyncIterator[str]:
    yield await asyncio.to_thread(answer, request.messages[-1].text)
