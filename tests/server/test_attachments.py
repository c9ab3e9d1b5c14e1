"""Uploads over real sockets: forms read as they come, images taken, signed, and served to whoever holds the URL."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge.engine.assembly import attachments_for
from bridge.engine.config import parse
from bridge.errors import BridgeError
from bridge.server.operations.attachment_service import CONTENT, AttachmentService
from bridge.server.operations.forms import read_form
from bridge.server.requests.http_messages import error_of
from tests.server.harness import Reply, ask, bound_socket

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4000
LIMIT = 2 * 2**20


class Desk:
    """What a dialect with uploads does with the pieces; `read` counts the bytes of files that were read."""

    def __init__(self, service: AttachmentService, seconds: float = 30) -> None:
        self.service = service
        self.seconds = seconds
        self.read = 0
        self.done = asyncio.Event()

    async def upload(self, http: web.Request) -> web.StreamResponse:
        try:
            async with read_form(http, "file", limit=LIMIT, seconds=self.seconds, needs=("threadId",)) as form:
                thread = form.fields.get("threadId")
                if form.file is None or thread is None:
                    return web.json_response({}, status=422)
                kept = await self.service.upload(
                    http.query.get("user", "alice"), thread, self._counted(form.file), self.service.base(http)
                )
        finally:
            self.done.set()
        return web.json_response({"bucket": kept.bucket, "path": kept.path, "mime": kept.mime, "url": kept.url})

    async def _counted(self, data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in data:
            self.read += len(piece)
            yield piece

    async def sign(self, http: web.Request) -> web.StreamResponse:
        query = http.query
        signed = await self.service.sign(query["user"], query["bucket"], query["path"], self.service.base(http))
        return web.json_response({"url": signed.url})


def told(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
    async def handle(http: web.Request) -> web.StreamResponse:
        try:
            return await handler(http)
        except BridgeError as error:
            return error_of(None, error.failure)

    return handle


@contextlib.asynccontextmanager
async def served(folder: Path, seconds: float = 30, **service: Any) -> AsyncIterator[tuple[str, Desk]]:
    config = parse(
        {
            "server": {"secret": "a secret"},
            "stores": {"attachments": f"file:///{folder}/attachments"},
            "backends": {"it": {"dialect": "demo"}},
            "routes": [{"dialect": "openai-chat", "path": "/api", "backend": "it"}],
        }
    )
    store = attachments_for(config)
    desk = Desk(AttachmentService(store, "/api", limit=LIMIT, **service), seconds)
    app = web.Application(client_max_size=1024)
    app.router.add_post("/api/attachments", told(desk.upload))
    app.router.add_get("/api/attachments/signed-url", told(desk.sign))
    app.router.add_get(f"/api{CONTENT}", told(desk.service.content))
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    listening = bound_socket()
    try:
        await web.SockSite(runner, listening).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/api", desk
    finally:
        await runner.cleanup()


def files(folder: Path) -> set[str]:
    return {p.name for p in folder.rglob("*") if p.is_file()}


def form(*order: tuple[str, Any]) -> aiohttp.FormData:
    made = aiohttp.FormData()
    for name, value in order:
        if name == "file":
            made.add_field(name, io.BytesIO(value), filename="x.svg", content_type="image/svg+xml")
        else:
            made.add_field(name, value)
    return made


async def send(base: str, data: Any, query: str = "", **more: Any) -> Reply:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{base}/attachments{query}", data=data, **more) as answer,
    ):
        return Reply(answer.status, {k.lower(): v for k, v in answer.headers.items()}, await answer.read())


@pytest.mark.parametrize("order", [("threadId", "file"), ("file", "threadId"), ("x", "threadId", "file", "y")])
async def test_what_is_uploaded_is_served_by_its_url(tmp_path: Path, order: tuple[str, ...]) -> None:
    values: dict[str, Any] = {"threadId": "t1", "x": "1", "y": "2", "file": PNG}
    async with served(tmp_path) as (base, _):
        kept = await send(base, form(*((name, values[name]) for name in order)))
        assert (kept.status, kept.json["mime"]) == (200, "image/png")
        assert kept.json["path"].startswith("alice/t1/")
        assert kept.json["url"].startswith(f"{base}/attachments/content/attachments/alice/t1/")
        served_back = await ask("GET", kept.json["url"])
    assert (served_back.status, served_back.body) == (200, PNG)
    assert served_back.headers["content-type"] == "image/png"
    assert served_back.headers["content-length"] == str(len(PNG))
    assert served_back.headers["x-content-type-options"] == "nosniff"
    assert served_back.headers["content-disposition"] == "inline"


async def test_a_url_that_was_changed_gives_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as (base, _):
        url = (await send(base, form(("threadId", "t1"), ("file", PNG)))).json["url"]
        other = (await send(base, form(("threadId", "t1"), ("file", PNG)))).json["path"]
        where, _, query = url.partition("?")
        expires = query.partition("&")[0]
        for changed in (
            where,
            f"{where}?{expires}",
            f"{where}?{expires}&sig=",
            f"{where}?{expires}&sig={'0' * 64}",
            f"{url[:-1]}{'0' if url[-1] != '0' else '1'}",
            f"{where}?{query.replace('expires=', 'expires=9')}",
            f"{base}/attachments/content/attachments/{other}?{query}",
            f"{base}/attachments/content/other/{where.partition('/attachments/content/attachments/')[2]}?{query}",
            f"{base}/attachments/content/attachments/..%2f.secret?{query}",
        ):
            refused = await ask("GET", changed)
            assert refused.status == 403, changed
            assert refused.json["error"]["code"] == "forbidden"


async def test_a_url_that_has_expired_is_forbidden_and_can_be_signed_again(tmp_path: Path) -> None:
    async with served(tmp_path, life=-2.0) as (base, desk):
        kept = (await send(base, form(("threadId", "t1"), ("file", PNG)))).json
        assert (await ask("GET", kept["url"])).status == 403
        desk.service._life = 60
        again = f"{base}/attachments/signed-url?bucket={kept['bucket']}&path={kept['path']}&user="
        fresh = (await ask("GET", f"{again}alice")).json["url"]
        assert (await ask("GET", fresh)).body == PNG
        assert (await ask("GET", f"{again}bob")).status == 403
        gone = again.replace(kept["path"][-8:], "aaaa.png")
        assert (await ask("GET", f"{gone}alice")).status == 404


async def test_the_public_url_is_how_clients_reach_us(tmp_path: Path) -> None:
    async with served(tmp_path, public_url="https://bridge.example/x/") as (base, _):
        url = (await send(base, form(("threadId", "t1"), ("file", PNG)))).json["url"]
    assert url.startswith("https://bridge.example/x/api/attachments/content/attachments/alice/t1/")


# ---------------------------------------------------------------------- uploads that are not taken


async def test_a_huge_upload_is_stopped_at_the_limit(tmp_path: Path) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        head = b'--b\r\ncontent-disposition: form-data; name="threadId"\r\n\r\nt1\r\n'
        yield head + b'--b\r\ncontent-disposition: form-data; name="file"; filename="x.png"\r\n\r\n' + PNG
        while sent < 200 * 2**20:
            sent += 2**16
            yield b"x" * 2**16

    async with served(tmp_path) as (base, desk):
        refused = await send(base, endless(), headers={"content-type": "multipart/form-data; boundary=b"})
        assert (refused.status, refused.json["error"]["code"]) == (413, "too_large")
        assert LIMIT < desk.read <= LIMIT + 2**18
        assert sent < 100 * 2**20
    assert files(tmp_path) == set()


async def test_a_body_that_says_it_is_too_long_is_refused_unread(tmp_path: Path) -> None:
    async with served(tmp_path) as (base, desk):
        refused = await send(base, form(("threadId", "t1"), ("file", PNG.ljust(LIMIT * 2))))
        assert refused.status == 413
        assert desk.read == 0


async def test_a_file_before_its_thread_is_bounded_as_well(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="x.png"\r\n\r\n' + PNG
        for _ in range(64):
            yield b"x" * 2**16
        yield b'\r\n--b\r\ncontent-disposition: form-data; name="threadId"\r\n\r\nt1\r\n--b--\r\n'

    async with served(tmp_path) as (base, desk):
        refused = await send(base, body(), headers={"content-type": "multipart/form-data; boundary=b"})
    assert (refused.status, desk.read) == (413, 0)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([("threadId", "t1"), ("file", b"")], 400),
        ([("threadId", "t1"), ("file", b"<svg/>")], 400),
        ([("threadId", "t1"), ("x", "y" * 5000), ("file", PNG)], 400),
        ([("threadId", "t1")], 422),
        ([("file", PNG)], 422),
        ([(f"f{n}", "") for n in range(40)], 400),
    ],
)
async def test_forms_that_are_not_taken(tmp_path: Path, fields: list[tuple[str, Any]], status: int) -> None:
    async with served(tmp_path) as (base, _):
        made = form(*fields)
        made.add_field("z", b"", filename="makes-it-multipart")
        answer = await send(base, made)
    assert answer.status == status
    assert files(tmp_path) == set()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"--b--"),
        ("multipart/form-data; boundary=b", b""),
        ("multipart/form-data; boundary=b", b"nonsense"),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nno name\r\n--b--\r\n"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\ncontent-disposition: form-data; name="\x0e"\r\n\r\nx\r\n--b--\r\n',
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\ncontent-disposition: form-data; name="x"\r\n\r\n\xff\r\n--b--\r\n',
        ),
        ("multipart/form-data; boundary=b", b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\nx'),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\ncontent-disposition: form-data; name="threadId"\r\n\r\nt\r\n'
            b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\n' + PNG,
        ),
    ],
)
async def test_bodies_that_are_no_form(tmp_path: Path, kind: str, body: bytes) -> None:
    async with served(tmp_path) as (base, _):
        answer = await send(base, body, headers={"content-type": kind})
    assert answer.status in (400, 422), answer.body
    assert files(tmp_path) == set()


async def test_an_upload_that_stands_still_is_given_up(tmp_path: Path) -> None:
    async def still() -> AsyncIterator[bytes]:
        yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="x.png"\r\n\r\n' + PNG
        await asyncio.Event().wait()

    async with served(tmp_path, seconds=0.2) as (base, _):
        answer = await send(base, still(), headers={"content-type": "multipart/form-data; boundary=b"})
    assert answer.status == 408


async def test_a_client_that_leaves_leaves_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as (base, desk):
        host, port = base.removeprefix("http://").removesuffix("/api").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        fields = b'--b\r\ncontent-disposition: form-data; name="threadId"\r\n\r\nt1\r\n'
        head = b'--b\r\ncontent-disposition: form-data; name="file"; filename="x.png"\r\n\r\n'
        writer.write(
            b"POST /api/attachments HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2000000\r\n"
            b"content-type: multipart/form-data; boundary=b\r\n\r\n" + fields + head + PNG
        )
        await writer.drain()
        writer.transport.abort()
        await asyncio.wait_for(desk.done.wait(), 40)
    assert files(tmp_path) == set()
