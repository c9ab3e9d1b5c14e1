"""Server-sent events: bytes <-> frames, cut anywhere, however sloppy the sender."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import KEEPALIVE, Frame, FrameLike
from bridge.errors import BackendError, ErrorCode
from bridge.translation.framing.sse import Splitter, is_stream, join
from tests.strategies import splits

BOM = b"\xef\xbb\xbf"


def whole(data: bytes, **options: int) -> list[FrameLike]:
    splitter = Splitter(**options)
    return splitter.feed(data) + splitter.close()


def pieces(parts: list[bytes], **options: int) -> list[FrameLike]:
    splitter = Splitter(**options)
    return [frame for part in parts for frame in splitter.feed(part)] + splitter.close()


@pytest.mark.parametrize(
    ("data", "frames"),
    [
        (b"", []),
        (b"\n\n\n", []),
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data:\n\n", [b""]),
        (b"data: \n\n", [b""]),
        (b"data\n\n", [b""]),
        (b"data: a\ndata: b\ndata:c\n\n", [Frame(b"a\nb\nc")]),
        (b"data\ndata\n\n", [Frame(b"\n")]),
        (b"data: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data: a\r", [b"a"]),
        (b"data: a\r\n", [b"a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\ndata: b\rdata: c\n\r\n", [Frame(b"a\nb\nc")]),
        (b"data: a\n\r\ndata: b\r\n\n", [b"a", b"b"]),
        (b": comment\n\n", []),
        (b":\n: x\ndata: a\n: y\n\n", [b"a"]),
        (b"event: ping\n\n", []),
        (b"event: delta\ndata: a\n\ndata: b\n\n", [Frame(b"a", "delta"), b"b"]),
        (b"event:delta\nid:7\ndata:a\n\n", [Frame(b"a", "delta", "7")]),
        (b"id: 7\ndata: a\n\n", [Frame(b"a", None, "7")]),
        (b"id\ndata: a\n\n", [Frame(b"a", None, "")]),
        (b"event\ndata: a\n\n", [b"a"]),
        (b"event: x\nevent:\ndata: a\n\n", [b"a"]),
        (b"event: \xc3\xbc\xff\ndata: a\n\n", [Frame(b"a", "\xfc\ufffd")]),
        (b"retry: 100\ndata: a\n\n", [b"a"]),
        (b"unknown: x\nDATA: no\ndatax: no\n data: no\ndata: a\n\n", [b"a"]),
        (b"data: a: b:c\n\n", [b"a: b:c"]),
        (BOM + b"data: a\n\n", [b"a"]),
        (BOM, []),
        (BOM + BOM + b"data: a\n\n", []),
        (b"\xef\xbb", []),
        (b"\xef\xbbdata: a\n\n", []),
        (b"data: a\n\n" + BOM + b"data: b\n\n", [b"a"]),
        ("data: a\u2028b\x85c\x00\n\n".encode(), ["a\u2028b\x85c\x00".encode()]),
        (b"data: \xff\xfe\n\n", [b"\xff\xfe"]),
    ],
)
def test_what_bytes_mean(data: bytes, frames: list[FrameLike]) -> None:
    assert whole(data) == frames
    assert pieces([data[i : i + 1] for i in range(len(data))]) == frames
    assert pieces([b"", *[p for i in range(len(data)) for p in (data[i : i + 1], b"")]]) == frames


_LINES = st.sampled_from(
    (b"", b"", b"data: a", b"data:b", b"data", b"event: e", b"id: 1", b": c", b"retry: 5", b"data: \xe2\x80\xa8", b"x")
)
_ENDS = st.sampled_from((b"\n", b"\r\n", b"\r"))


@given(st.data())
def test_any_cut_gives_the_same_frames(data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.tuples(_LINES, _ENDS), max_size=15))
    body = data.draw(st.sampled_from((b"", BOM))) + b"".join(line + end for line, end in lines)
    body = body[: len(body) - data.draw(st.integers(0, min(3, len(body))))]
    assert pieces(data.draw(splits(body))) == whole(body)


def test_frames_come_as_soon_as_they_are_complete() -> None:
    splitter = Splitter()
    assert splitter.feed(b"data: a\n") == []
    assert splitter.feed(b"\nda") == [b"a"]
    assert splitter.feed(b"ta: b\r") == []
    assert splitter.feed(b"\n\r") == [b"b"], "a lone CR ends the line without waiting for what may follow"
    assert splitter.feed(b"\ndata: c\n\n") == [b"c"]
    assert splitter.close() == []


def test_closing_twice_gives_nothing_more() -> None:
    splitter = Splitter()
    splitter.feed(b"data: a")
    assert splitter.close() == [b"a"]
    assert splitter.close() == []


class TestLimit:
    MESSAGE = "An event of the backend's stream is longer than the limit of 20 bytes."

    @pytest.mark.parametrize(
        "data",
        [
            b"data: 123456789012345\n\n",
            b"data: 123456789012345",
            b"data:1234567890123456\r\n\r\n",
            b"event: 12345678901234",
            b": 1234567890123456789\n",
            b"data: a\ndata: b\ndata: c\n\n",
            b"data: 1234\n: x\ndata: 1234\n",
            b"data\ndata\ndata\ndata\ndata\n",
            BOM + b"data: 123456789012345",
        ],
    )
    def test_beyond(self, data: bytes) -> None:
        for parts in ([data], [data[:9], data[9:]], [data[i : i + 1] for i in range(len(data))]):
            with pytest.raises(BackendError) as caught:
                pieces(parts, max_event=20)
            assert str(caught.value) == self.MESSAGE
            assert caught.value.code is ErrorCode.BACKEND_PROTOCOL

    @pytest.mark.parametrize(
        ("data", "count"),
        [
            (b"data: 12345678901234\n\n", 1),
            (b"data: 12345678901234", 1),
            (b"data: a\ndata: b\n\n" * 9, 9),
            (b"data: 1234567890\n\n" * 9, 9),
            (b": 12345678901234567\n" * 9 + b"data: a\n\n", 1),
        ],
    )
    def test_within(self, data: bytes, count: int) -> None:
        for parts in ([data], [data[:9], data[9:]], [data[i : i + 1] for i in range(len(data))]):
            assert len(pieces(parts, max_event=20)) == count

    def test_after_a_close_call_the_next_event_counts_anew(self) -> None:
        splitter = Splitter(max_event=20)
        assert splitter.feed(b"data: a\ndata: bcd\n\n") == [Frame(b"a\nbcd")]
        assert splitter.feed(b"data: a\ndata: bcd\n\n") == [Frame(b"a\nbcd")]


def test_a_long_line_is_joined_once() -> None:
    """20 MiB in reads of 64 KiB: the bytes that calls look at grow with the line, not with its square."""
    size, read = 20 * 1024 * 1024, 64 * 1024
    data = b"data: " + b"x" * size + b"\n\n"
    looked_at = {"split": 0, "join": 0, "replace": 0}

    def count(_: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and isinstance(getattr(called, "__self__", None), bytes) and called.__name__ in looked_at:
            looked_at[called.__name__] += 1 if called.__name__ == "join" else len(called.__self__)

    splitter = Splitter()
    parts = [data[i : i + read] for i in range(0, len(data), read)]
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        frames = [frame for part in parts for frame in splitter.feed(part)]
    finally:
        sys.setprofile(before)
    assert [len(f) for f in frames if isinstance(f, bytes)] == [size]
    assert looked_at["join"] <= 2
    assert 0 < looked_at["split"] <= 2 * len(data)
    assert looked_at["replace"] == 0


class TestJoin:
    def test_bytes(self) -> None:
        assert join([]) == b""
        assert join([b"a"]) == b"data: a\n\n"
        assert join([b"a", b"", b"b"]) == b"data: a\n\ndata: \n\ndata: b\n\n"

    def test_frames(self) -> None:
        frames = [b"a", Frame(b"b", "delta"), Frame(b"c\nd", "e", "7"), Frame(b"", None, ""), KEEPALIVE]
        assert join(frames) == (
            b"data: a\n\nevent: delta\ndata: b\n\nid: 7\nevent: e\ndata: c\ndata: d\n\nid: \ndata: \n\n: keep-alive\n\n"
        )

    @given(st.data())
    def test_what_was_read_can_be_written_and_read_again(self, data: st.DataObject) -> None:
        lines = data.draw(st.lists(st.tuples(_LINES, _ENDS), max_size=15))
        frames = whole(b"".join(line + end for line, end in lines))
        assert whole(join(frames)) == frames

    @given(st.data())
    def test_what_was_written_is_read_as_it_was(self, data: st.DataObject) -> None:
        line = st.binary(max_size=8).filter(lambda b: b"\n" not in b and b"\r" not in b)
        word = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1, max_size=5)
        named = st.builds(Frame, line, word, st.none() | word) | st.builds(Frame, line, st.none(), word)
        several = st.lists(line, min_size=2, max_size=3).map(b"\n".join).map(Frame)
        frames = data.draw(st.lists(line | named | several, max_size=5))
        body = join([f for frame in frames for f in (frame, KEEPALIVE)])
        assert pieces(data.draw(splits(body))) == frames


@pytest.mark.parametrize(
    ("start", "stream"),
    [
        (b"data: x", True),
        (b": comment", True),
        (b"\xef\xbb\xbfdata: x", True),
        (b"\n\nid: 1", True),
        (b'{"a": 1}', False),
        (b" \r\n[1]", False),
        (b"\xef\xbb\xbf <html>", False),
        (b"", None),
        (b" \n", None),
        (b"\xef\xbb", None),
        (b"\xef\xbb\xbf", None),
    ],
)
def test_a_body_tells_by_its_start_whether_it_is_a_stream(start: bytes, stream: bool | None) -> None:
    assert is_stream(start) is stream


@pytest.mark.parametrize(
    "excess", [b"data: " + b"x" * 40, b"data: " + b"x" * 40 + b"\n\n", b"data: abcdefgh\ndata: abcdefgh\n\n"]
)
def test_what_is_complete_before_an_excess_comes_first(excess: bytes) -> None:
    splitter = Splitter(max_event=20)
    assert splitter.feed(b"data: a\n\ndata: b\n\n" + excess) == [b"a", b"b"]
    for ask in (lambda: splitter.feed(b"\n\n"), splitter.close):
        with pytest.raises(BackendError, match="limit of 20 bytes"):
            ask()
