"""One suite over all callers of a translation: whatever goes wrong, each of them gets the same well-formed end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bridge import Bridge, BridgeError, Message, Request, Text, Translator, decode, fold
from bridge.model import Answer, Event, MessageEnded, PartEnded, RunFailed, RunFinished, TextDelta, verify
from bridge.translation.policies.stages import StageContext
from bridge.translation.stage import Stage
from tests.server.harness import fake_backend, post, serving

HELLO = b"".join(
    b'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text
    for text in (b"Hel", b"lo")
)
END = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


# ---------------------------------------------------------------------- stages, as a configuration names them


def swallows_ends(context: StageContext) -> Stage:
    """Drops everything that closes anything."""

    def stage(events: list[Event]) -> list[Event]:
        return [event for event in events if not isinstance(event, CLOSING)]

    return stage


def raises(context: StageContext) -> Stage:
    """Fails in the middle of the answer."""

    def stage(events: list[Event]) -> list[Event]:
        if any(isinstance(event, TextDelta) and event.text == "lo" for event in events):
            raise LookupError("a bug in a stage")
        return events

    return stage


def raises_at_the_end(context: StageContext) -> Stage:
    def stage(events: list[Event]) -> list[Event]:
        if any(isinstance(event, RunFinished | RunFailed) for event in events):
            raise LookupError("a bug in a stage")
        return events

    return stage


CLOSING = RunFinished | RunFailed | MessageEnded | PartEnded

# ---------------------------------------------------------------------- what may happen

FINISHED, FAILED = "finished", "failed"
CASES: dict[str, tuple[Sequence[bytes], str | None, str]] = {
    "nothing": ((HELLO, END), None, FINISHED),
    "a stage swallows the end": ((HELLO, END), "swallows_ends", FINISHED),
    "a stage raises": ((HELLO, END), "raises", FAILED),
    "a stage raises at the end": ((HELLO, END), "raises_at_the_end", FAILED),
    "the backend stops early": ((HELLO,), None, FAILED),
    "the backend stops early, and a stage swallows that": ((HELLO,), "swallows_ends", FAILED),
    "bytes that are no protocol": ((HELLO, b'data: {"choices": [\n\n', END), None, FAILED),
    "an error in the stream": ((HELLO, b'data: {"error":{"message":"no"}}\n\n'), None, FAILED),
}


class Caller:
    """One backend answer and one stage, given to any of the callers."""

    def __init__(self, pieces: Sequence[bytes], stage: str | None, folder: Path) -> None:
        self.pieces = pieces
        self.stage = stage
        self.folder = folder

    def config(self, url: str, **route: Any) -> dict[str, Any]:
        stages = [f"{__name__}:{self.stage}"] if self.stage else []
        return {
            "backends": {"it": {"dialect": "openai-chat", "url": url}},
            "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it", "stages": stages, **route}],
            "stores": {"history": "off", "runs": f"sqlite:///{self.folder}/runs.db"},
        }

    def translator(self) -> Translator:
        return Translator("openai-chat", "ag-ui", stages=[globals()[self.stage]] if self.stage else [])


async def translator(caller: Caller) -> list[Event]:
    one = caller.translator()
    return decode(b"".join([*(one.feed(piece) for piece in caller.pieces), one.close()]), "ag-ui")


async def translator_whole(caller: Caller) -> list[Event] | BridgeError:
    try:
        body = Translator(
            "openai-chat", "openai-chat", stages=[globals()[caller.stage]] if caller.stage else []
        ).response(b"".join(caller.pieces), headers={"content-type": "text/event-stream"})
    except BridgeError as error:
        return error
    return decode(body, "openai-chat")


async def stream(caller: Caller) -> list[Event]:
    async with fake_backend() as backend, Bridge.from_config(caller.config(backend.url)) as bridge:
        backend.streams(*caller.pieces)
        request = Request([Message("user", [Text("hi")])], stream=True)
        return [event async for event in bridge.stream(request)]


async def complete(caller: Caller) -> Answer | BridgeError:
    async with fake_backend() as backend, Bridge.from_config(caller.config(backend.url)) as bridge:
        backend.streams(*caller.pieces)
        try:
            return await bridge.complete(Request([Message("user", [Text("hi")])]))
        except BridgeError as error:
            return error


async def _served(caller: Caller, streamed: bool, **route: Any) -> list[Event]:
    async with fake_backend() as backend, serving(caller.config(backend.url, **route)) as base:
        backend.streams(*caller.pieces)
        reply = await post(f"{base}/v1/chat/completions", {**ASK, "stream": streamed})
        return decode(reply.body, "openai-chat")


async def server(caller: Caller) -> list[Event]:
    return await _served(caller, True)


async def server_whole(caller: Caller) -> list[Event]:
    return await _served(caller, False)


async def durable(caller: Caller) -> list[Event]:
    return await _served(caller, True, durable=True)


async def durable_whole(caller: Caller) -> list[Event]:
    return await _served(caller, False, durable=True)


CALLERS: list[Callable[[Caller], Awaitable[list[Event] | Answer | BridgeError]]] = [
    *(translator, translator_whole, stream, complete, server, server_whole, durable, durable_whole)
]


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.__name__)
@pytest.mark.parametrize("case", CASES)
async def test_every_caller_gets_the_same_end(
    caller: Callable[[Caller], Awaitable[list[Event] | Answer | BridgeError]], case: str, tmp_path: Path
) -> None:
    pieces, stage, end = CASES[case]
    came = await caller(Caller(pieces, stage, tmp_path))
    if isinstance(came, BridgeError):
        assert end == FAILED
        return
    answer = came if isinstance(came, Answer) else fold(verify(came))
    assert (FAILED if answer.failure else FINISHED) == end
    if end == FINISHED:
        assert answer.text == "Hello"


# ---------------------------------------------------------------------- agents in this process


async def agent(request: Request) -> AsyncIterator[str]:
    yield "Hel"
    yield "lo"


async def broken_agent(request: Request) -> AsyncIterator[str]:
    yield "Hel"
    raise LookupError("a bug in an agent")


@pytest.mark.parametrize(
    ("target", "stage", "end"),
    [
        ("agent", None, FINISHED),
        ("agent", "swallows_ends", FINISHED),
        ("agent", "raises", FAILED),
        ("broken_agent", None, FAILED),
        ("broken_agent", "swallows_ends", FAILED),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_an_agent_in_this_process_ends_well(target: str, stage: str | None, end: str, streamed: bool) -> None:
    route = {"dialect": "openai-chat", "path": "/v1", "backend": "it"}
    config = {
        "backends": {"it": {"dialect": "python", "target": f"{__name__}:{target}"}},
        "routes": [{**route, "stages": [f"{__name__}:{stage}"] if stage else []}],
        "stores": {"history": "off"},
    }
    async with serving(config) as base:
        reply = await post(f"{base}/v1/chat/completions", {**ASK, "stream": streamed})
    answer = fold(verify(decode(reply.body, "openai-chat")))
    assert (FAILED if answer.failure else FINISHED) == end
