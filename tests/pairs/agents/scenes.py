"""What an agent of any dialect does, and hears: no dialect is named here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.server.harness import Exchange, FakeBackend

Wire = dict[str, Any]


# ---------------------------------------------------------------------- what an agent does, in no dialect


@dataclass
class Say:
    text: str


@dataclass
class Think:
    text: str


@dataclass
class Use:
    """A call of a tool that the client offered."""

    id: str
    name: str
    arguments: str


@dataclass
class Ran:
    """A tool that the agent ran itself."""

    id: str
    name: str
    arguments: str
    result: str


@dataclass
class Ask:
    """An interrupt."""

    id: str
    payload: Any
    reason: str = "confirmation"
    call_id: str | None = None


@dataclass
class Fall:
    """The run breaks, and says so."""


@dataclass
class Hang:
    """Nothing more comes until the bridge leaves."""


Step = Say | Think | Use | Ran | Ask | Fall | Hang


@dataclass
class Heard:
    """One request. `conversation` is all that the agent knows.

    Its entries: (role, text), ("call", id, name, arguments), ("result", id, text). `resume` is the answer to its
    interrupt, `tools` are the names that were offered, `thread` is the id by which an agent of AG-UI keeps its state.
    """

    conversation: list[tuple[Any, ...]]
    tools: list[str]
    resume: Any = None
    resumed: str | None = None
    refused: bool = False
    images: list[str] = field(default_factory=list)
    thread: str = ""

    @property
    def last(self) -> tuple[Any, ...]:
        return self.conversation[-1]

    @property
    def spoken(self) -> list[tuple[Any, ...]]:
        """The texts alone."""
        return [entry for entry in self.conversation if entry[0] in ("system", "user", "assistant")]


Brain = Callable[[Heard], list[Step]]
BREAKS = "the model fell over"


class Agent:
    """`brain` decides; `heard` holds the requests in order.

    `remembers`: it keeps the talk by an id. `remembered`: somebody in front of it does, and tells it all.
    """

    dialect: str
    remembers = False
    remembered = False
    interrupts = True
    runs_tools = True
    takes_images = True
    options: Wire = {}  # noqa: RUF012

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.heard: list[Heard] = []
        self.brain: Brain = lambda heard: [Say("ok")]
        self.hanging = asyncio.Event()
        backend.plays(self._play)

    @property
    def url(self) -> str:
        return self.backend.url

    @asynccontextmanager
    async def served(self, folder: Path) -> AsyncIterator[str]:
        """Where it is called while the block runs."""
        yield self.url

    async def left(self, number: int) -> None:
        """Waits until its caller has left this run."""
        await self.backend.seen[number].gone.wait()

    def hear(self, body: Wire) -> Heard:
        """What the request means to this agent, with its memory."""
        raise NotImplementedError

    def remember(self, body: Wire, steps: list[Step]) -> None:
        """The run came to its end."""

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        raise NotImplementedError

    async def _play(self, exchange: Exchange) -> None:
        body = exchange.seen.json
        heard = self.hear(body)
        self.heard.append(heard)
        steps = self.brain(heard)
        await exchange.head()
        for event in self.wire(steps):
            data = event if isinstance(event, bytes) else orjson.dumps(event)
            await exchange.send(b"data: " + data + b"\n\n")
        if any(isinstance(s, Hang) for s in steps):
            self.hanging.set()
            await exchange.left()
            return
        self.remember(body, steps)
        await exchange.end()


def halves(text: str) -> list[str]:
    return [piece for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece]


def said(steps: list[Step]) -> list[tuple[Any, ...]]:
    """What an agent that remembers keeps of its own answer."""
    out: list[tuple[Any, ...]] = []
    for step in steps:
        match step:
            case Say(text):
                out.append(("assistant", text))
            case Use(call_id, name, arguments):
                out.append(("call", call_id, name, arguments))
            case Ran(call_id, name, arguments, result):
                out += [("call", call_id, name, arguments), ("result", call_id, result)]
    return out
