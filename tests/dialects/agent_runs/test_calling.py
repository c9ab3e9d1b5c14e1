"""Such an API as a backend (section 9): what is asked, in which order, and what of a broken stream arrives."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from bridge.contract import Context, registry
from bridge.dialects.agent_runs import dialect
from bridge.errors import BridgeError, ErrorCode, Failure, RequestError
from bridge.model import Event, FileRef, Inline, Media, MediaKind, RunFailed, Text, Url, fold
from bridge.run.backend import Timeouts
from bridge.run.backends.demo_backend import PICTURE
from bridge.translation.framing import sse

from .helpers import THREAD, blocks, request_in, response_in
from .upstream import calling, dead, empty, events_of, nothing_more, question, refuses, silent, upstream

pytestmark = pytest.mark.usefixtures("each_http_client")

RECORDED = response_in("runs-events")[2]
SAID = "turn 1: you said “hello world” 你好 🌍"
SQUARE = Media(MediaKind.IMAGE, Inline(PICTURE), "image/png", "a.png")


def at_fronts(events: list[Event]) -> list[bytes]:
    """What clients of two dialects see."""
    out = []
    for name in ("ag-ui", "openai-chat"):
        front = registry.get(name)
        encoder = front.encoder(Context("run", THREAD, options=front.front_options()))
        out.append(sse.join(encoder.encode(events)))
    return out


def failure_in(events: list[Event]) -> Failure:
    last = events[-1]
    assert isinstance(last, RunFailed)
    return last.error


# ---------------------------------------------------------------------- what is asked


async def test_it_asks_as_recorded_clients_do() -> None:
    async with upstream() as server, calling(server.url) as backend:
        asked = question(Text("What is this?"), SQUARE)
        assert fold(await events_of(backend, asked)).text == SAID
        uploaded, started, read = server.backend.seen
        for seen, name in ((uploaded, "runs-attachment"), (started, "runs-create"), (read, "runs-events")):
            method, path, headers, _ = request_in(name)
            assert (seen.method, seen.path.partition("?")[0]) == (method, path.partition("?")[0])
            assert seen.headers["authorization"] == headers["authorization"]
        wanted = set(orjson.loads(request_in("runs-create")[3]))
        assert wanted <= set(started.json)
        assert started.json["forwardedProps"]["runtime_mode"] == "chat"
        assert (started.json["threadId"], read.headers["accept"]) == (THREAD, "text/event-stream")
        assert urlsplit(read.path).query == f"runId={server.run}"
        assert not server.canceled.is_set()


async def test_an_image_is_uploaded_once_and_named_by_its_url() -> None:
    url = orjson.loads(response_in("runs-attachment")[2])["attachment"]["url"]
    async with upstream() as server, calling(server.url) as backend:
        await events_of(backend, question(SQUARE, Text("and"), replace(SQUARE, filename=None)))
        content = server.asked("/runs")[0].json["messages"][0]["content"]
        named = {"type": "binary", "mimeType": "image/png", "filename": "a.png", "url": url}
        assert content == [named, {"type": "text", "text": "and"}, {k: named[k] for k in named if k != "filename"}]
        form = server.asked("/attachments")
        assert len(form) == 1
        assert SQUARE.source.bytes in form[0].body  # type: ignore[union-attr]
        assert b'name="threadId"\r\n\r\nthread-r1\r\n' in form[0].body


async def test_the_id_of_a_message_does_not_depend_on_where_its_image_lies() -> None:
    """URLs are signed anew each time; by the id the server knows what it has."""
    asked = question(SQUARE)
    asked.messages[0].id = None
    async with upstream() as server, calling(server.url) as backend:
        await events_of(backend, asked)
        await events_of(backend, asked)
        first, second = (seen.json["messages"][0]["id"] for seen in server.asked("/runs"))
        assert first == second


async def test_media_in_the_words_of_1_0_by_option() -> None:
    url = orjson.loads(response_in("runs-attachment")[2])["attachment"]["url"]
    film = Media(MediaKind.VIDEO, Url("https://example.com/a.mp4"), "video/mp4")
    sound = Media(MediaKind.AUDIO, Inline("AAAA"), "audio/wav")
    page = Media(MediaKind.FILE, FileRef("file-1"), "application/pdf")
    async with upstream() as server, calling(server.url, options={"part_style": "media"}) as backend:
        await events_of(backend, question(SQUARE, film, sound, page))
        content = server.asked("/runs")[0].json["messages"][0]["content"]
    assert [(p["type"], p["source"]["type"], p["source"]["value"]) for p in content] == [
        ("image", "url", url),
        ("video", "url", "https://example.com/a.mp4"),
        ("audio", "data", "AAAA"),
        ("document", "file", "file-1"),
    ]
    assert content[0]["metadata"] == {"filename": "a.png"}


async def test_an_image_that_is_none_is_refused_with_its_place() -> None:
    async with upstream() as server, calling(server.url) as backend:
        with pytest.raises(RequestError, match="base64") as caught:
            await events_of(backend, question(Text("x"), replace(SQUARE, source=Inline("no base64"))))
        assert caught.value.failure.param == "messages[0].content[1]"
        assert server.backend.seen == []


@pytest.mark.parametrize(
    ("status", "word", "code"),
    [
        (413, "AGENT_ATTACHMENT_TOO_LARGE", ErrorCode.TOO_LARGE),
        (422, "AGENT_ATTACHMENT_UNSUPPORTED_TYPE", ErrorCode.INVALID_REQUEST),
        (401, "UNAUTHORIZED", ErrorCode.BACKEND_AUTH),
    ],
)
async def test_an_upload_that_is_refused_is_the_error(status: int, word: str, code: ErrorCode) -> None:
    async with upstream() as server, calling(server.url) as backend:
        server.uploads = [refuses(status, word)]
        with pytest.raises(BridgeError) as caught:
            await events_of(backend, question(SQUARE))
        assert caught.value.code is code
        assert not server.asked("/runs")


async def test_an_upload_that_is_answered_with_something_else_is_an_error() -> None:
    async with upstream() as server, calling(server.url) as backend:
        server.uploads = [server.queues]
        with pytest.raises(BridgeError, match="names no URL"):
            await events_of(backend, question(SQUARE))


@pytest.mark.parametrize(
    ("mode", "said", "sent"),
    [(None, None, "chat"), ("automation", None, "automation"), (None, "automation", "automation")],
)
def test_the_mode_is_that_of_the_options_or_of_the_client(mode: str | None, said: str | None, sent: str) -> None:
    asked = question()
    if said:
        asked.extras = {"ag-ui": {"forwardedProps": {"runtime_mode": said}}}
    context = Context("run", THREAD, options=dialect.back_options.model_validate({"runtime_mode": mode}))
    body = orjson.loads(dialect.encode_request(asked, context).body)
    assert body["forwardedProps"] == {"runtime_mode": sent}


@pytest.mark.parametrize("name", ["thread 1", "ä", "x" * 129, "..", "a/../b"])
def test_a_thread_whose_name_is_forbidden_gets_another_always_the_same(name: str) -> None:
    def sent() -> str:
        wire = dialect.encode_request(question(), Context("run", name, options=dialect.back_options()))
        return str(orjson.loads(wire.body)["threadId"])

    assert sent() == sent()
    assert sent() != name
    assert sent().removeprefix("id-").isalnum()


@pytest.mark.parametrize(
    ("status", "word", "code"),
    [
        (401, "UNAUTHORIZED", ErrorCode.BACKEND_AUTH),
        (403, "FORBIDDEN", ErrorCode.BACKEND_AUTH),
        (404, "", ErrorCode.BACKEND_ERROR),
        (409, "AGENT_RUN_CONFLICT", ErrorCode.CONFLICT),
        (413, "AGENT_RUN_INPUT_INVALID", ErrorCode.TOO_LARGE),
        (422, "AGENT_RUN_MESSAGES_INVALID", ErrorCode.INVALID_REQUEST),
        (500, "INTERNAL", ErrorCode.BACKEND_ERROR),
    ],
)
async def test_a_run_that_is_refused_was_none(status: int, word: str, code: ErrorCode) -> None:
    async with upstream() as server, calling(server.url) as backend:
        server.starts = [refuses(status, word)]
        with pytest.raises(BridgeError) as caught:
            await events_of(backend)
        assert caught.value.code is code
        assert caught.value.failure.details["backend_status"] == status
    assert [seen.path for seen in server.backend.seen] == ["/runs"]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_asked_again_when_it_says_when(status: int) -> None:
    async with upstream() as server, calling(server.url) as backend:
        server.starts = [refuses(status, "AGENT_QUEUE_UNAVAILABLE", retry_after="0"), server.queues]
        assert fold(await events_of(backend)).text == SAID
        first, second = server.asked("/runs")
        assert first.body == second.body
        server.starts = [refuses(status, "AGENT_QUEUE_UNAVAILABLE", retry_after="60")]
        with pytest.raises(BridgeError) as caught:
            await events_of(backend)
        assert caught.value.failure.headers == {"retry-after": "60"}


async def test_a_start_without_an_answer_is_repeated_as_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.run.backends.queued_backend._ASK_AGAIN", (0.0,))
    async with upstream() as server, calling(server.url, timeouts=Timeouts(first_event=0.4)) as backend:
        server.starts = [silent, server.queues]
        assert fold(await events_of(backend)).text == SAID
        first, second = server.asked("/runs")
        assert first.body == second.body
        server.starts = [silent]
        with pytest.raises(BridgeError) as caught:
            await events_of(backend)
        assert caught.value.code is ErrorCode.BACKEND_TIMEOUT
        async with asyncio.timeout(40):
            await server.canceled.wait()  # it may have been queued all the same


async def test_each_try_is_a_run_of_its_own() -> None:
    async with upstream() as server, calling(server.url) as backend:
        await events_of(backend)
        await events_of(backend)
        first, second = (seen.json["runId"] for seen in server.asked("/runs"))
        assert first != second


# ---------------------------------------------------------------------- streams that break


async def test_after_a_cut_anywhere_every_event_comes_once(each_http_client: str) -> None:
    """Where the second client's stream ends is of no concern to what resumes it: it is cut at some places."""
    async with upstream() as server, calling(server.url) as backend:
        whole = await events_of(backend)
        expected = at_fronts(whole)
        own = server.own(RECORDED)
        for place in range(0, len(own), 1 if each_http_client == "aiohttp" else 9):
            how = "close" if place % 2 else "end"
            server.reads = [server.sends(RECORDED, place, how), server.sends(RECORDED)]
            server.backend.seen.clear()
            events = await events_of(backend)
            assert events == whole, place
            assert at_fronts(events) == expected, place
            complete = blocks(own[:place] if own[:place].endswith(b"\n\n") else own[:place].rpartition(b"\n\n")[0])
            ids = [block.split(b"\n")[0][4:].decode() for block in complete if block != b"\n\n"]
            assert server.cursors == [None, ids[-1] if ids else None], place


async def test_resets_lose_nothing_either() -> None:
    async with upstream() as server, calling(server.url) as backend:
        whole = await events_of(backend)
        for place in range(0, len(RECORDED), 7):
            server.reads = [server.sends(RECORDED, place, "reset"), dead, server.sends(RECORDED)]
            assert await events_of(backend) == whole, place


async def test_the_recorded_reader_who_was_dropped() -> None:
    async with upstream() as server, calling(server.url) as backend:
        dropped, resumed = response_in("runs-events-dropped")[2], response_in("runs-events-resumed")[2]
        server.reads = [server.streams(dropped), server.streams(resumed)]
        assert fold(await events_of(backend)).text == "".join(f"w{n} " for n in range(12))
        assert server.cursors == [None, "1795242297449-16"]


async def test_repeated_frames_and_those_of_other_runs_are_left_out() -> None:
    async with upstream() as server, calling(server.url) as backend:
        whole = await events_of(backend)
        own = blocks(RECORDED)
        foreign = own[3].replace(b'"runId":"run-1"', b'"runId": "other"').replace(b"-4\n", b"-3.5\n")
        doubled = b"".join(block + block for block in own[:-1]) + foreign + own[2] + own[-1]
        server.reads = [server.streams(doubled)]
        assert await events_of(backend) == whole


async def test_events_may_have_names_and_comments_between_them() -> None:
    async with upstream() as server, calling(server.url) as backend:
        whole = await events_of(backend)
        named = b"".join(b": keep-alive\n\nevent: X\r\n" + block for block in blocks(RECORDED))
        server.reads = [server.streams(named)]
        assert await events_of(backend) == whole


async def test_streams_that_close_at_their_idle_limit_are_opened_again_and_again() -> None:
    async with upstream() as server, calling(server.url, options={"reconnect": [0], "idle_limit": 3}) as backend:
        idle = server.streams(b": keep-alive\n\n")
        server.reads = [*[idle] * 8, server.sends(RECORDED)]
        assert fold(await events_of(backend)).text == SAID
        assert all("idle_limit=3" in seen.path for seen in server.asked("/events"))


async def test_each_event_gives_new_patience() -> None:
    async with upstream() as server, calling(server.url, options={"reconnect": [0]}) as backend:
        whole = await events_of(backend)
        frames = len(blocks(RECORDED))
        sizes = [len(block) for block in blocks(server.own(RECORDED))]
        server.reads = [server.sends(RECORDED, size, "close") for size in sizes]
        assert await events_of(backend) == whole
        assert len(server.cursors) == 1 + frames


@pytest.mark.parametrize("trouble", [dead, refuses(500, ""), refuses(429, "AGENT_SSE_CONNECTION_LIMIT")])
async def test_what_cannot_be_read_on_is_given_up_and_cancelled(trouble: Any, each_http_client: str) -> None:
    async with upstream() as server, calling(server.url) as backend:
        server.reads = [server.sends(RECORDED, 700, "close"), trouble]
        events = await events_of(backend)
        failure = failure_in(events)
        assert failure.code is ErrorCode.TRUNCATED_STREAM
        assert "could not be read to their end" in failure.message
        assert fold(events).text.startswith("turn 1")
        # A connection that dies at once is tried a second time by aiohttp itself.
        assert len(server.cursors) == 1 + (6 if trouble is dead and each_http_client == "aiohttp" else 3)
        async with asyncio.timeout(1):
            await server.canceled.wait()


async def test_a_full_server_says_when_there_is_a_place() -> None:
    async with upstream() as server, calling(server.url) as backend:
        server.reads = [refuses(429, "AGENT_SSE_CONNECTION_LIMIT", retry_after="0"), server.sends(RECORDED)]
        assert fold(await events_of(backend)).text == SAID


@pytest.mark.parametrize(
    ("status", "word", "code"),
    [
        (410, "AGENT_EVENTS_EXPIRED", ErrorCode.TRUNCATED_STREAM),
        (404, "AGENT_THREAD_NOT_FOUND", ErrorCode.RUN_LOST),
        (422, "AGENT_INVALID_LAST_EVENT_ID", ErrorCode.INVALID_REQUEST),
        (401, "UNAUTHORIZED", ErrorCode.BACKEND_AUTH),
    ],
)
async def test_a_refusal_to_go_on_is_final(status: int, word: str, code: ErrorCode) -> None:
    async with upstream() as server, calling(server.url) as backend:
        server.reads = [server.sends(RECORDED, 700, "close"), refuses(status, word)]
        assert failure_in(await events_of(backend)).code is code
        assert len(server.cursors) == 2


@pytest.mark.parametrize(("over", "reads"), [(nothing_more, 1), (empty, 2)])
async def test_nothing_more_before_the_end_is_no_end(over: Any, reads: int) -> None:
    async with upstream() as server, calling(server.url) as backend:
        server.reads = [server.sends(RECORDED, 700, "close"), over]
        assert failure_in(await events_of(backend)).code is ErrorCode.TRUNCATED_STREAM
        assert len(server.cursors) == 1 + reads
    assert not server.canceled.is_set()


async def test_events_without_ids_cannot_be_gone_on_from() -> None:
    bare = b"".join(block.partition(b"\n")[2] for block in blocks(RECORDED))
    async with upstream() as server, calling(server.url) as backend:
        server.reads = [server.streams(bare)]
        assert fold(await events_of(backend)).text == SAID
        server.reads = [server.streams(bare[:700])]
        failure = failure_in(await events_of(backend))
        assert "have no ids to resume from" in failure.message
        assert len(server.cursors) == 2


async def test_an_event_beyond_the_limit_is_an_error() -> None:
    async with upstream() as server, calling(server.url, max_event=120) as backend:
        assert failure_in(await events_of(backend)).code is ErrorCode.BACKEND_PROTOCOL
