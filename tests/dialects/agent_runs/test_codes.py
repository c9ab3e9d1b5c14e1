"""Which test provokes which code (section 8), and those that are provoked here."""

from __future__ import annotations

import asyncio
import inspect
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Context
from bridge.model import Event, TextDelta
from bridge.stores import open_attachments
from tests.runs.servers import Server, machines
from tests.server.harness import Exchange, ask, fake_backend, free_port, serving

from . import test_errors as errors
from . import test_runs as runs
from .helpers import BASE, CHUNK, END, Client, config, events_in, llm, run_input, served, types_in
from .test_errors import image, problem

PAGE = Path(__file__).parents[3] / "docs" / "dialects" / "agent-runs.md"


async def breaks_off(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.send(CHUNK % b"half")
    exchange.reset()


async def stops_short(exchange: Exchange) -> None:
    await exchange.stream(CHUNK % b"half")


async def is_no_stream(exchange: Exchange) -> None:
    await exchange.answer(200, b"<html>", "text/html")


async def is_silent(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.left()


async def refuses(exchange: Exchange) -> None:
    await exchange.answer(503, b"{}")


async def raises(exchange: Exchange) -> None:
    await exchange.stream(CHUNK % b"break", END)


def stage(context: Context) -> Any:
    """One that has a fault."""

    def work(events: list[Event]) -> list[Event]:
        if any(isinstance(event, TextDelta) and event.text == "break" for event in events):
            raise RuntimeError("a secret of the stage")
        return events

    return work


@pytest.mark.parametrize(
    ("script", "backend", "code"),
    [
        (breaks_off, {}, "UPSTREAM_INCOMPLETE"),
        (stops_short, {}, "UPSTREAM_INCOMPLETE"),
        (is_no_stream, {}, "UPSTREAM_PROTOCOL_ERROR"),
        (is_silent, {"timeouts": {"first_event": "100ms"}}, "UPSTREAM_TIMEOUT"),
        (is_silent, {"timeouts": {"total": "100ms"}}, "RUN_TIMEOUT"),
        (refuses, {}, "UPSTREAM_HTTP_503"),
        (raises, {}, "INTERNAL"),
    ],
)
async def test_how_a_run_may_fail(tmp_path: Path, script: Any, backend: dict[str, Any], code: str) -> None:
    async with fake_backend() as it:
        it.plays(script)
        setup = config(tmp_path, {**llm(it), **backend})
        setup["routes"][0]["stages"] = ["tests.dialects.agent_runs.test_codes:stage"]
        async with serving(setup) as url:
            body = await Client(url).run()
            assert (types_in(body)[0], types_in(body)[-1]) == ("RUN_STARTED", "RUN_ERROR")
            assert events_in(body)[-1]["code"] == code
            assert b"secret" not in body


async def test_the_code_of_an_agent_stays_its_own(tmp_path: Path) -> None:
    failed = b'data: {"type":"RUN_ERROR","message":"no","code":"OUT_OF_INK"}\n\n'
    async with fake_backend() as it:
        it.streams(b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n', failed)
        async with served(tmp_path, {"dialect": "ag-ui", "url": it.url}) as url:
            assert events_in(await Client(url).run())[-1]["code"] == "OUT_OF_INK"


@pytest.mark.parametrize("what", ["history", "attachments"])
async def test_a_store_of_many_machines_that_is_gone(tmp_path: Path, what: str) -> None:
    """What it alone holds is refused with its code; the message names neither host nor password."""
    port = free_port()
    nowhere = {
        "history": f"postgresql://u:s3cr3t@127.0.0.1:{port}/d",
        "attachments": f"s3://bucket?endpoint=http://127.0.0.1:{port}&access_key_id=a&secret_access_key=s3cr3t"
        "&region=us-east-1",
    }
    async with served(tmp_path, stores={what: nowhere[what]}) as url:
        alice = Client(url)
        if what == "history":
            replies = {
                "AGENT_QUEUE_UNAVAILABLE": await alice.start(run_input()),
                "AGENT_STORAGE_UNAVAILABLE": await alice.get("/history"),
            }
        else:
            path = f"alice/t/{uuid.UUID(int=0)}.png"
            replies = {
                "AGENT_STORAGE_UNAVAILABLE": await alice.get(f"/attachments/signed-url?bucket=bucket&path={path}")
            }
            assert types_in(await alice.run())[-1] == "RUN_FINISHED", "runs need no images"
        for code, reply in replies.items():
            problem(reply, 503, code)
            assert b"s3cr3t" not in reply.body
            assert str(port).encode() not in reply.body


# ---------------------------------------------------------------------- images


async def test_whose_a_thread_is_that_was_made_by_an_upload(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice, bob = Client(url), Client(url, "bob")
        await alice.send("/attachments", image("t9"))
        problem(await bob.start(run_input(threadId="t9")), 403, "FORBIDDEN")
        problem(await bob.events(thread="t9"), 403, "FORBIDDEN")
        problem(await bob.get("/history?threadId=t9"), 403, "FORBIDDEN")
        assert (await alice.start(run_input(threadId="t9"))).json["created"] is True


async def test_links_that_are_wrong(tmp_path: Path) -> None:
    """Tampered with, moved to another image, another bucket or another life, or over: nothing is given."""
    async with served(tmp_path, server={"secret": "a secret of the server"}) as url:
        alice, bob = Client(url), Client(url, "bob")
        mine = (await alice.send("/attachments", image())).json["attachment"]
        theirs = (await bob.send("/attachments", image("bobs"))).json["attachment"]
        store = open_attachments(f"file:///{tmp_path}/attachments", secret="a secret of the server")
        kept = await store.stat("alice", mine["bucket"], mine["path"])
        over, other = await store.sign(kept, url + BASE, -1), await store.sign(kept, url + BASE, 60)
        await store.close()
        assert (await ask("GET", other)).status == 200, "it is the time that was wrong"
        link: str = mine["url"]
        sig = link.rpartition("=")[2]
        for wrong in (
            over,
            link.replace("expires=", "expires=9"),
            link.replace(sig, sig[::-1]),
            link.replace(sig, ""),
            link.replace(mine["path"], theirs["path"]),
            link.replace("/content/attachments/", "/content/uploads/"),
            f"{link.partition('sig=')[0]}sig={other.rpartition('=')[2]}",
            link.partition("?")[0],
        ):
            assert wrong != link
            problem(await ask("GET", wrong), 403, "FORBIDDEN")
        missing = f"/attachments/signed-url?bucket=attachments&path=alice/t/{uuid.UUID(int=0)}.png"
        problem(await alice.get(missing), 404, "AGENT_ATTACHMENT_NOT_FOUND")


HUGE = 200 * 2**20
PIECE = b"x" * 2**16
FIELD = b'--B\r\ncontent-disposition: form-data; name="threadId"\r\n\r\nt\r\n'
FILE = b'--B\r\ncontent-disposition: form-data; name="file"; filename="a.png"\r\n\r\n\x89PNG\r\n\x1a\n'


async def sent_until_answered(server: Server, parts: bytes, length: bool) -> tuple[int, bytes]:
    """Sends an image that is far too large; how much of it had gone when the answer came, and the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    kind = f"content-length: {HUGE}" if length else "transfer-encoding: chunked"
    head = f"POST {BASE}/attachments HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alice-token\r\n{kind}\r\n"
    writer.write(head.encode() + b"content-type: multipart/form-data; boundary=B\r\n\r\n")
    answer = asyncio.create_task(reader.readuntil(b"}"))
    sent, piece = 0, parts
    while sent < HUGE and not answer.done():
        writer.write(piece if length else b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
        sent, piece = sent + len(piece), PIECE
    told = await answer
    writer.transport.abort()
    return sent, told


def peak(server: Server) -> int:
    """Bytes of the most memory that the process ever had."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


async def test_two_hundred_mebibytes_are_stopped_at_the_limit(tmp_path: Path) -> None:
    """Whether their length is said or not, whichever field comes first; the server does not grow with them."""
    async with machines(tmp_path, config(tmp_path), "a") as (server,):
        await server.start()
        before = peak(server)
        for parts in (FIELD + FILE, FILE):
            for length in (False, True):
                sent, told = await sent_until_answered(server, parts, length)
                assert told.startswith(b"HTTP/1.1 413 ")
                assert b"AGENT_ATTACHMENT_TOO_LARGE" in told
                assert sent < HUGE / 2, "what lay in the buffers of the sockets is not read"
        assert peak(server) - before < 32 * 2**20
        assert not [path for path in (tmp_path / "attachments").rglob("*") if path.is_file() and path.suffix == ".png"]


# ---------------------------------------------------------------------- the table

PROVOKED: dict[str, Callable[..., Any]] = {
    "AGENT_RUN_INPUT_INVALID": errors.test_what_is_wrong_with_a_run,
    "AGENT_RUN_MESSAGES_INVALID": errors.test_what_is_wrong_with_a_run,
    "AGENT_INVALID_RUN_ID": errors.test_what_is_wrong_with_a_run,
    "AGENT_INVALID_LAST_EVENT_ID": errors.test_what_is_wrong_with_a_reader,
    "AGENT_SSE_CONNECTION_LIMIT": errors.test_places_of_readers,
    "AGENT_ATTACHMENT_EMPTY": errors.test_images_that_are_not_taken,
    "AGENT_ATTACHMENT_TOO_LARGE": test_two_hundred_mebibytes_are_stopped_at_the_limit,
    "AGENT_ATTACHMENT_UNSUPPORTED_TYPE": errors.test_images_that_are_not_taken,
    "AGENT_ATTACHMENT_NOT_FOUND": test_links_that_are_wrong,
    "AGENT_AUDIO_UNSUPPORTED_FORMAT": errors.test_recordings_that_are_not_taken,
    "AGENT_AUDIO_TOO_LARGE": errors.test_recordings_that_are_not_taken,
    "AGENT_AUDIO_EMPTY": errors.test_recordings_that_are_not_taken,
    "AGENT_ASR_UNAVAILABLE": errors.test_a_service_of_speech_that_fails,
    "UNAUTHORIZED": errors.test_nobody_comes_in_without_a_key,
    "FORBIDDEN": errors.test_what_is_another_users,
    "AGENT_THREAD_NOT_FOUND": errors.test_threads_that_are_not_there,
    "AGENT_RUN_CONFLICT": errors.test_the_same_run_with_another_body,
    "AGENT_EVENTS_EXPIRED": errors.test_events_that_are_not_kept_any_more,
    "AGENT_QUEUE_UNAVAILABLE": test_a_store_of_many_machines_that_is_gone,
    "AGENT_STORAGE_UNAVAILABLE": test_a_store_of_many_machines_that_is_gone,
}
ENDED: dict[str, Callable[..., Any]] = {
    "RUN_CANCELLED": runs.test_a_running_run_is_cancelled,
    "RUN_LOST": runs.test_a_server_that_stops_ends_its_runs,
    "RUN_TIMEOUT": test_how_a_run_may_fail,
    "UPSTREAM_HTTP_503": test_how_a_run_may_fail,
    "UPSTREAM_TIMEOUT": test_how_a_run_may_fail,
    "UPSTREAM_INCOMPLETE": test_how_a_run_may_fail,
    "UPSTREAM_PROTOCOL_ERROR": test_how_a_run_may_fail,
    "INTERNAL": test_how_a_run_may_fail,
}
"""What stands in the `RUN_ERROR` of a run."""


@pytest.mark.parametrize("code", [*PROVOKED, *ENDED])
def test_each_code_is_provoked(code: str) -> None:
    assert f'"{code}"' in inspect.getsource({**PROVOKED, **ENDED}[code]), "its parameters count"


def test_no_code_is_left_out() -> None:
    told = PAGE.read_text().partition("## Errors")[2]
    assert set(re.findall(r"`([A-Z_]{6,})`", told)) == set(PROVOKED)
