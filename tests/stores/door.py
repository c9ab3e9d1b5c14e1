"""A door in front of a server: what comes in is passed on, until the door is shut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Door:
    """`enter` is the handler of an asyncio server; `connect` reaches the server behind."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._inside: set[asyncio.Task[None]] = set()
        self.is_open = True

    async def shut(self) -> None:
        """Who is inside is cut off, and who knocks is sent away."""
        self.is_open = False
        for task in self._inside:
            task.cancel()
        await asyncio.gather(*self._inside, return_exceptions=True)

    async def enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        ends = [writer]
        self._inside.add(task)
        try:
            if not self.is_open:
                return  # knocked just when the door was shut
            answers, there = await self._connect()
            ends.append(there)
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, there))
                both.create_task(_copy(answers, writer))
        except asyncio.CancelledError:
            pass
        finally:
            self._inside.discard(task)
            for end in ends:
                end.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()
