"""Every code of the error table (section 8), provoked; and who may not see what."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.contract import WireResponse
from bridge.dialects.agent_runs import dialect
from bridge.errors import ErrorCode, Failure
from bridge.stores import open_runs
from tests.server.harness import Reply, ask, fake_backend

from .helpers import BASE, Client, llm, run_input, served

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 40
WAV = b"RIFF\x24\0\0\0WAVEfmt " + b"\0" * 28


def problem(reply: Reply, status: int, code: str) -> dict[str, Any]:
    """The reply is this problem, and looks as problems look."""
    assert (reply.status, reply.json["code"]) == (status, code), reply.body
    assert reply.headers["content-type"].partition(";")[0] == "application/problem+json"
    assert reply.json["type"] == "about:blank"
    assert reply.json["status"] == status
    assert reply.json["title"]
    assert reply.json["detail"]
    return reply.json


def image(thread: str | None = "thread-r1", data: bytes | None = PNG, name: str = "file") -> aiohttp.FormData:
    form = aiohttp.FormData()
    form.add_field("other", "x")
    if thread is not None:
        form.add_field("threadId", thread)
    if data is not None:
        form.add_field(name, data, filename="a.png", content_type="image/png")
    return form


def sound(data: bytes = WAV, kind: str = "audio/wav", name: str = "audio") -> aiohttp.FormData:
    form = aiohttp.FormData()
    form.add_field(name, io.BytesIO(data), filename="a.wav", content_type=kind)
    return form


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        ({"runId": "a b"}, "AGENT_INVALID_RUN_ID", ["runId"]),
        ({"runId": ""}, "AGENT_INVALID_RUN_ID", ["runId"]),
        ({"runId": "r" * 129}, "AGENT_INVALID_RUN_ID", ["runId"]),
        ({"runId": None}, "AGENT_INVALID_RUN_ID", ["runId"]),
        ({"threadId": "ä"}, "AGENT_RUN_INPUT_INVALID", ["threadId"]),
        ({"threadId": None}, "AGENT_RUN_INPUT_INVALID", ["threadId"]),
        ({"forwardedProps": {}}, "AGENT_RUN_INPUT_INVALID", ["forwardedProps", "runtime_mode"]),
        ({"forwardedProps": {"runtime_mode": "x"}}, "AGENT_RUN_INPUT_INVALID", ["forwardedProps", "runtime_mode"]),
        ({"forwardedProps": {"runtime_mode": 1}}, "AGENT_RUN_INPUT_INVALID", ["forwardedProps", "runtime_mode"]),
        ({"messages": []}, "AGENT_RUN_MESSAGES_INVALID", ["messages"]),
        ({"messages": [{"id": "1", "role": "assistant", "content": "x"}]}, "AGENT_RUN_MESSAGES_INVALID", ["messages"]),
        (
            {"messages": [{"id": "1", "role": "tool", "toolCallId": "nobody", "content": "x"}]},
            "AGENT_RUN_MESSAGES_INVALID",
            ["messages", 0],
        ),
        (
            {"messages": [{"id": "1", "role": "king", "content": "x"}]},
            "AGENT_RUN_INPUT_INVALID",
            ["messages", 0, "role"],
        ),
    ],
)
async def test_what_is_wrong_with_a_run(tmp_path: Path, change: dict[str, Any], code: str, place: list[Any]) -> None:
    async with served(tmp_path) as url:
        told = problem(await Client(url).start({**run_input(), **change}), 422, code)
        assert told["errors"][0]["loc"] == place
        assert told["instance"] == f"{BASE}/runs"


@pytest.mark.parametrize("body", [b"{", b"", b"[]"])
async def test_a_body_that_is_no_run(tmp_path: Path, body: bytes) -> None:
    async with served(tmp_path) as url:
        problem(await Client(url).start(body), 422, "AGENT_RUN_INPUT_INVALID")


async def test_a_body_that_is_too_long(tmp_path: Path) -> None:
    async with served(tmp_path, server={"max_body": 1000}) as url:
        problem(await Client(url).start(run_input("x" * 2000)), 413, "AGENT_RUN_INPUT_INVALID")


async def test_the_same_run_with_another_body(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        await alice.run("text")
        problem(await alice.start(run_input("image")), 409, "AGENT_RUN_CONFLICT")
        assert len((await alice.get("/history")).json["messages"]) == 2, "nothing of it was kept"


@pytest.mark.parametrize(
    ("query", "last", "code"),
    [
        ("", "", "AGENT_INVALID_RUN_ID"),
        ("?runId=", "", "AGENT_INVALID_RUN_ID"),
        ("?runId=a%20b", "", "AGENT_INVALID_RUN_ID"),
        *(
            ("?runId=run-1", text, "AGENT_INVALID_LAST_EVENT_ID")
            for text in ("abc", "12", "$", "-", "1-2-3", "18446744073709551616-0", "1-" + "9" * 21)
        ),
        *((f"?runId=run-1&idle_limit={n}", "", "AGENT_RUN_INPUT_INVALID") for n in ("0", "3601", "x", "1.5", "-1")),
    ],
)
async def test_what_is_wrong_with_a_reader(tmp_path: Path, query: str, last: str, code: str) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        await alice.run()
        headers = {**alice.headers, "last-event-id": last}
        problem(await ask("GET", f"{alice.base}/runs/thread-r1/events{query}", headers=headers), 422, code)


async def test_cancels_and_days_that_are_ill_formed(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        await alice.run()
        problem(await alice.send("/runs/thread-r1/cancel", b""), 422, "AGENT_INVALID_RUN_ID")
        for before in ("", "yesterday", "2026-02-30", "20260201", "2026-1-1"):
            problem(await alice.get(f"/history?before={before}"), 422, "AGENT_RUN_INPUT_INVALID")


async def test_nobody_comes_in_without_a_key(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        for endpoint in dialect.surface:
            if endpoint.public:
                continue
            path = endpoint.path.replace("{thread_id}", "!")
            for headers in ({}, {"authorization": "Bearer nope"}):
                reply = await ask(endpoint.method, f"{url}{BASE}{path}", headers=headers)
                problem(reply, 401, "UNAUTHORIZED")
                assert reply.headers["www-authenticate"] == "Bearer"


async def test_what_is_another_users(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice, bob = Client(url), Client(url, "bob")
        await alice.run()
        stored = (await alice.send("/attachments", image())).json["attachment"]
        problem(await bob.start(run_input(run="run-2")), 403, "FORBIDDEN")
        problem(await bob.events(), 403, "FORBIDDEN")
        problem(await bob.cancel(), 403, "FORBIDDEN")
        problem(await bob.get("/history?threadId=thread-r1"), 403, "FORBIDDEN")
        problem(await bob.send("/attachments", image()), 403, "FORBIDDEN")
        where = f"bucket={stored['bucket']}&path={stored['path']}"
        problem(await bob.get(f"/attachments/signed-url?{where}"), 403, "FORBIDDEN")
        assert (await bob.get("/history")).json["threadId"] is None
        # What is wrong comes before whose it is.
        problem(await bob.events("a b"), 422, "AGENT_INVALID_RUN_ID")


async def test_threads_that_are_not_there(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        problem(await alice.events(), 404, "AGENT_THREAD_NOT_FOUND")
        problem(await alice.cancel(), 404, "AGENT_THREAD_NOT_FOUND")
        problem(await alice.get("/history?threadId=thread-r1"), 404, "AGENT_THREAD_NOT_FOUND")


async def test_places_of_readers(tmp_path: Path) -> None:
    async def silent(exchange: Any) -> None:
        await exchange.head()
        await exchange.left()

    async with fake_backend() as backend, served(tmp_path, llm(backend), connection_limit=2) as url:
        backend.plays(silent)
        alice = Client(url)
        await alice.start(run_input())
        async with aiohttp.ClientSession(headers=alice.headers) as session:
            open_streams = [await session.get(f"{alice.base}/runs/thread-r1/events?runId=run-1") for _ in range(2)]
            assert [stream.status for stream in open_streams] == [200, 200]
            refused = await alice.events()
            problem(refused, 429, "AGENT_SSE_CONNECTION_LIMIT")
            assert refused.headers["retry-after"] == "1"
            # What is wrong, and whose it is, come before.
            problem(await alice.events("a b"), 422, "AGENT_INVALID_RUN_ID")
            problem(await alice.events(thread="other"), 404, "AGENT_THREAD_NOT_FOUND")
            open_streams[0].close()
            async with asyncio.timeout(40):
                while (await alice.events(query="&idle_limit=1")).status != 200:
                    pass
            open_streams[1].close()


async def test_events_that_are_not_kept_any_more(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        await alice.run()
        store = open_runs(f"sqlite:///{tmp_path}/bridge.db")
        assert await store.sweep(-1, 1000) == 1
        await store.close()
        problem(await alice.events(), 410, "AGENT_EVENTS_EXPIRED")
        problem(await alice.events(last="1-0"), 410, "AGENT_EVENTS_EXPIRED")


async def test_images_that_are_not_taken(tmp_path: Path) -> None:
    async with served(tmp_path, max_attachment=1000) as url:
        alice = Client(url)
        problem(await alice.send("/attachments", image(data=b"")), 422, "AGENT_ATTACHMENT_EMPTY")
        problem(await alice.send("/attachments", image(data=b"hello" * 9)), 422, "AGENT_ATTACHMENT_UNSUPPORTED_TYPE")
        problem(await alice.send("/attachments", image(data=PNG * 100)), 413, "AGENT_ATTACHMENT_TOO_LARGE")
        problem(await alice.send("/attachments", image(None)), 422, "AGENT_RUN_INPUT_INVALID")
        problem(await alice.send("/attachments", image(data=None)), 422, "AGENT_RUN_INPUT_INVALID")
        problem(await alice.send("/attachments", b"{}"), 422, "AGENT_RUN_INPUT_INVALID")
        problem(await alice.get("/attachments/signed-url?bucket=attachments"), 422, "AGENT_RUN_INPUT_INVALID")
        problem(
            await alice.get("/attachments/signed-url?bucket=attachments&path=../x"), 404, "AGENT_ATTACHMENT_NOT_FOUND"
        )


async def test_recordings_that_are_not_taken(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        problem(await alice.send("/transcribe", sound()), 503, "AGENT_ASR_UNAVAILABLE")
        problem(await alice.send("/transcribe", sound(b"")), 422, "AGENT_AUDIO_EMPTY")
        problem(await alice.send("/transcribe", sound(name="other")), 422, "AGENT_AUDIO_EMPTY")
        problem(await alice.send("/transcribe", sound(b"ID3" * 20)), 422, "AGENT_AUDIO_UNSUPPORTED_FORMAT")
        problem(await alice.send("/transcribe", sound(kind="audio/mpeg")), 422, "AGENT_AUDIO_UNSUPPORTED_FORMAT")
        problem(await alice.send("/transcribe", sound(WAV + b"x" * 10 * 2**20)), 413, "AGENT_AUDIO_TOO_LARGE")


async def test_a_large_file_in_another_field(tmp_path: Path) -> None:
    """What is wrong is the name of the field, not the size of what it holds."""
    large = PNG + b"x" * 200_000
    async with served(tmp_path) as url:
        reply = await Client(url).send("/attachments", image(data=large, name="picture"))
        problem(reply, 422, "AGENT_RUN_INPUT_INVALID")
        assert reply.json["detail"] == "file: required, expected the image; got the fields: other, threadId, picture."
        problem(await Client(url).send("/transcribe", sound(large, name="speech")), 422, "AGENT_AUDIO_EMPTY")


async def test_a_service_of_speech_that_fails(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        backend.answers(500, b"{}")
        async with served(tmp_path, speech={"url": backend.url}) as url:
            problem(await Client(url).send("/transcribe", sound()), 503, "AGENT_ASR_UNAVAILABLE")


async def test_stores_that_are_gone(tmp_path: Path) -> None:
    nowhere = {"runs": "postgresql://127.0.0.1:1/none"}
    async with served(tmp_path, stores=nowhere) as url:
        alice = Client(url)
        away = await alice.start(run_input())
        problem(away, 503, "AGENT_QUEUE_UNAVAILABLE")
        assert away.headers["retry-after"] == "1"
        problem(await alice.events(), 503, "AGENT_QUEUE_UNAVAILABLE")
        problem(await alice.send("/attachments", image()), 503, "AGENT_STORAGE_UNAVAILABLE")


async def test_paths_that_are_not_there(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        problem(await Client(url).get("/nothing"), 404, "NOT_FOUND")
        problem(await Client(url).get("/runs"), 405, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "body",
    [
        b'{"code":"AGENT_QUEUE_UNAVAILABLE","detail":"busy"}',
        b'{"error":{"code":"AGENT_QUEUE_UNAVAILABLE"}}',
        b'{"detail":{"code":"AGENT_QUEUE_UNAVAILABLE"}}',
        b'{"detail":"AGENT_QUEUE_UNAVAILABLE"}',
    ],
)
def test_a_caller_finds_the_code(body: bytes) -> None:
    failure = dialect.decode_error(WireResponse(503, {"content-type": "application/problem+json"}, body))
    assert (failure.code, failure.backend_code) == (ErrorCode.OVERLOADED, "AGENT_QUEUE_UNAVAILABLE")


def test_nothing_leaks() -> None:
    wire = dialect.encode_error(Failure(ErrorCode.INTERNAL, "key sk-abcdefghijklmnopqrstuvwxyz123456 broke"))
    assert b"abcdefghijkl" not in wire.body
