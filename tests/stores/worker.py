"""Another process on the same store: `python worker.py URL LEASE append NAME COUNT` or `... hold`.

It says `ready` when it is connected and begins when a line comes in.
"""

from __future__ import annotations

import asyncio
import sys

from bridge.model import Message, Text
from bridge.stores import ConversationStore, open_conversations


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def append(history: ConversationStore, name: str, count: int) -> None:
    """Each turn is two commits with a look at the loop between them: whoever came between them would be seen."""
    for n in range(count):
        async with history.turn("o", "s", "shared") as held:
            await history.commit("o", "s", held.conversation, [Message("user", [Text(f"{name} {n}")])])
            await asyncio.sleep(0)
            await held.commit([Message("assistant", [Text(f"{name} {n}")])])


async def main() -> None:
    url, lease, what, *rest = sys.argv[1:]
    history = open_conversations(url, lease=float(lease))
    await history.open()
    say("ready")
    sys.stdin.readline()
    if what == "append":
        await append(history, rest[0], int(rest[1]))
    else:
        async with history.turn("o", "s", "shared"):
            say("holds")
            await asyncio.to_thread(sys.stdin.readline)
    await history.close()


if __name__ == "__main__":
    asyncio.run(main())
