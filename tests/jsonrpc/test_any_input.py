"""Lines cut anywhere, recordings with damage in them, and garbage between good messages, through pipes and by hand."""

from __future__ import annotations

import asyncio
import json
import os
import random
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.jsonrpc import CarrierEnded, Ignored, RpcConnection, RpcNotification, RpcPeer, RpcRequest, RpcResponse
from bridge.jsonrpc.carrier import FrameTooLong, LineReader, joined
from tests.fuzz.mutate import mutate

from .helpers import conversations, joined_carriers

pieces = st.sampled_from(
    [b"\n", b"\r\n", b"\r", b" ", b"\xef\xbb\xbf", b"{}", b'{"a":"\xc3\xa9"}', b"\xff", b"\x00", b"x" * 40]
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(st.lists(pieces, max_size=30).map(b"".join), st.lists(st.integers(0, 2000), max_size=20))
def test_lines_are_the_same_wherever_they_are_cut(data: bytes, places: list[int]) -> None:
    reader = LineReader()
    frames = [frame for piece in cut(data, places) for frame in reader.feed(piece)] + reader.close()
    assert frames == [
        line for raw in data.split(b"\n") if (line := raw.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n\x1e"))
    ]


@given(st.lists(pieces, max_size=30).map(b"".join), st.lists(st.integers(0, 2000), max_size=20), st.integers(1, 60))
def test_lines_before_one_that_is_too_long_are_read_wherever_they_are_cut(
    data: bytes, places: list[int], limit: int
) -> None:
    reader = LineReader(limit)
    lines = data.split(b"\n")
    fits = [line for n, line in enumerate(lines) if all(len(before) <= limit for before in lines[: n + 1])]
    frames: list[bytes] = []
    failed = False
    try:
        for piece in cut(data, places):
            frames += reader.feed(piece)
            assert len(reader._splitter._rest) <= limit + len(piece)  # type: ignore[attr-defined]
        frames += reader.close()
    except FrameTooLong:
        failed = True
    assert failed is (len(fits) < len(lines))
    whole = LineReader()
    assert frames == whole.feed(b"".join(line + b"\n" for line in fits))


@given(st.lists(st.text(max_size=20), max_size=10))
def test_what_is_sent_is_read_as_it_was(texts: list[str]) -> None:
    frames = [RpcNotification.of("m", [text]).encode() for text in texts]
    assert LineReader().feed(joined(frames)) == frames


@pytest.mark.parametrize("seed", range(40))
def test_damaged_recordings(seed: int) -> None:
    """Whatever is broken in them, nothing raises, and all that is whole has its answer."""
    chance = random.Random(seed)
    conversation = chance.choice(list(conversations().values()))
    lines = [line.frame for line in conversation if line.sender == "agent"]
    data = joined([mutate(line, chance) if chance.random() < 0.3 else line for line in lines])
    reader, peer = LineReader(), RpcPeer({"session/request_permission"}, batches=bool(seed % 2))
    for _ in range(20):
        peer.request("m")
    peer.take()
    opened, answered, ignored = 0, 0, 0
    places = [chance.randrange(len(data) + 1) for _ in range(10)]
    frames = [frame for piece in cut(data, places) for frame in reader.feed(piece)] + reader.close()
    for frame in frames:
        for event in peer.receive(frame):
            opened += isinstance(event, RpcRequest)
            answered += isinstance(event, RpcResponse)
            ignored += isinstance(event, Ignored)
    assert len(peer.open) == opened
    assert len(peer.pending) == 20 - answered
    for each in list(peer.open):
        assert peer.respond(each, {})
    for frame in peer.take():
        json.loads(frame)


class Asked:
    """A conversation with somebody who sends anything, in pieces, and asks something now and then."""

    def __init__(self, noise: list[bytes], places: list[int]) -> None:
        self.asked = [RpcRequest.of(f"ask-{n}", "echo", [n]).encode() for n in range(len(noise))]
        lines = [line for pair in zip(noise, self.asked, strict=True) for line in pair]
        self.reads = cut(joined(lines), places)

    async def answers(self) -> list[Any]:
        async def echo(request: RpcRequest) -> Any:
            return request.params

        with joined_carriers() as (raw, carrier):
            async with asyncio.timeout(60), RpcConnection(carrier, requests={"echo": echo}, linger=30) as connection:
                for read in self.reads:
                    os.write(raw._stdio.output, read)
                    await asyncio.sleep(0)
                os.close(raw._stdio.output)
                raw._stdio.output = os.dup(2)
                frames: list[bytes] = []
                with suppress(CarrierEnded):
                    while True:
                        frames += await raw.receive()
                await connection.wait()
        return [json.loads(frame) for frame in frames]


@settings(max_examples=30)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60).filter(lambda b: b"\n" not in b),
            st.sampled_from(
                [b"[]", b"null", b"7", b'{"id":1}', b'{"id":"ask-0","result":1}', b"\xff\xfe", b"x" * 3000]
            ),
        ),
        max_size=8,
    ),
    st.lists(st.integers(0, 20_000), max_size=20),
)
def test_good_requests_are_answered_amid_garbage(noise: list[bytes], places: list[int]) -> None:
    answers = asyncio.run(Asked(noise, places).answers())
    found = [answer for answer in answers if str(answer["id"]).startswith("ask-")]
    assert found == [{"jsonrpc": "2.0", "id": f"ask-{n}", "result": [n]} for n in range(len(noise))]
    assert all("error" in answer for answer in answers if answer not in found)


def test_a_long_line_in_small_pieces_takes_no_more_memory_than_in_one() -> None:
    """A list of its pieces would: each of them is an object."""
    reader = LineReader()
    tracemalloc.start()
    for _ in range(60_000):
        reader.feed(b"x")
    [frame] = reader.feed(b"\n")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(frame) == 60_000
    assert most < 3 * 60_000
