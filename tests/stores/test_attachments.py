"""Stores of uploaded images: one suite for every engine, and what each engine has of its own."""

from __future__ import annotations

import asyncio
import hmac
import os
import stat
import tracemalloc
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from bridge.errors import BridgeError, ConfigError, ErrorCode
from bridge.stores import Attachments, StoreUnavailable, describe, open_attachments
from bridge.stores.attachments import EMPTY, UNSUPPORTED_TYPE, content_of, content_path, new_path
from bridge.stores.folder import FolderAttachments
from bridge.stores.object_storage import ObjectAttachments
from bridge.stores.reasons import explain
from bridge.stores.signing import kept_secret
from tests.server.harness import free_port
from tests.stores.clouds import ACCOUNT_KEY, Azure, Cloud, Google, running
from tests.stores.s3 import SECRET, bucket

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
JPEG = b"\xff\xd8\xff\xe0" + b"j" * 100
GIF = b"GIF89a" + b"g" * 100
WEBP = b"RIFF\x10\n\x00\x00WEBP" + b"w" * 100
BASE = "http://bridge.example/api"


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Upload:
    """A stream of `total` bytes that begins with `head`; counts what was asked of it."""

    def __init__(self, head: bytes = PNG, total: int | None = None, piece: int = 2**16) -> None:
        self.head = head
        self.total = len(head) if total is None else total
        self.piece = piece
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.read < self.total:
            size = min(self.piece, self.total - self.read)
            piece = self.head[self.read : self.read + size].ljust(size, b"x")
            self.read += size
            yield piece


CLOUDS = {"gs": Google, "az": Azure}


@pytest.fixture(params=["folder", "s3", "gs", "az"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Attachments]:
    async with AsyncExitStack() as stack:
        if request.param == "folder":
            made = open_attachments(f"file:///{tmp_path}/attachments", secret=SECRET)
        elif request.param == "s3":
            made = open_attachments(await bucket(request.getfixturevalue("s3_url"), "pictures"))
        else:
            cloud = await stack.enter_async_context(running(CLOUDS[request.param]()))
            made = open_attachments(cloud.url(tmp_path_factory.mktemp("account")))
        await made.open()
        yield made
        await made.close()
        await made.close()


@pytest.fixture(params=CLOUDS)
async def cloud(request: pytest.FixtureRequest) -> AsyncIterator[Cloud]:
    async with running(CLOUDS[request.param]()) as made:
        yield made


async def content(store: Attachments, where: str, path: str) -> bytes:
    _, pieces = await store.fetch(where, path)
    return b"".join([piece async for piece in pieces])


async def refusal(awaitable: object) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        await awaitable  # type: ignore[misc]
    assert SECRET not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("mime", "extension", "served"),
    [
        ("audio/mpeg", "mp3", "audio/mpeg"),
        ("application/pdf", "pdf", "application/pdf"),
        ("text/html", "bin", "application/octet-stream"),
        ("image/svg+xml", "bin", "application/octet-stream"),
        ("x/y", "bin", "application/octet-stream"),
    ],
)
async def test_media_of_answers_have_the_type_that_is_said(
    store: Attachments, mime: str, extension: str, served: str
) -> None:
    made = await store.put("ann", "t", aiter(Upload(b"anything")), mime=mime)
    assert (made.path.rpartition(".")[2], made.mime) == (extension, served)
    assert (await store.stat("ann", made.bucket, made.path)).mime == served
    assert await content(store, made.bucket, made.path) == b"anything"


# ---------------------------------------------------------------------- every engine


@pytest.mark.parametrize(
    ("data", "mime", "extension"),
    [(PNG, "image/png", "png"), (JPEG, "image/jpeg", "jpg"), (GIF, "image/gif", "gif"), (WEBP, "image/webp", "webp")],
)
async def test_an_image_is_kept(store: Attachments, data: bytes, mime: str, extension: str) -> None:
    kept = await store.put("alice", "t1", Upload(data))
    assert (kept.mime, kept.size, kept.url) == (mime, len(data), "")
    user, thread, name = kept.path.split("/")
    assert (user, thread, name.rpartition(".")[2]) == ("alice", "t1", extension)
    assert str(uuid.UUID(name.rpartition(".")[0])) == name.rpartition(".")[0]
    assert await store.stat("alice", kept.bucket, kept.path) == kept
    assert await content(store, kept.bucket, kept.path) == data


async def test_the_files_of_a_thread_are_deleted(store: Attachments) -> None:
    assert await store.delete("dana", "nothing") == 0
    mine = [await store.put("dana", "t", Upload()) for _ in range(3)]
    others = [await store.put(*whose, Upload()) for whose in (("dana", "t2"), ("danaa", "t"), ("", "t"))]
    assert await store.delete("dana", "t", older_than=3600.0) == 3
    assert await content(store, mine[0].bucket, mine[0].path) == PNG
    assert await store.delete("dana", "t", older_than=-5.0) == 0
    for gone in mine:
        assert (await refusal(store.stat("dana", gone.bucket, gone.path))).code is ErrorCode.NOT_FOUND
    for kept in others:
        assert await content(store, kept.bucket, kept.path) == PNG
    again = await store.put("dana", "t", Upload())
    assert await content(store, again.bucket, again.path) == PNG


async def test_a_url_of_its_own_is_found_again(store: Attachments) -> None:
    for owner in ("", "alice", "auth0|42"):
        kept = await store.put(owner, "t:1", Upload())
        url = await store.sign(kept, BASE, 60)
        assert store.find(url) == (kept.bucket, kept.path)
        assert store.find(url.partition("?")[0] + "x") is None
    for url in ("", "http://[", "data:image/png;base64,AAAA", f"https://else.example/other/{kept.path}"):
        assert store.find(url) is None, url


async def test_reads_of_any_size_give_the_same(store: Attachments) -> None:
    for size in (1, 7, 11, 12, 13, 10_000):
        kept = await store.put("alice", "t1", Upload(PNG, piece=size))
        assert await content(store, kept.bucket, kept.path) == PNG


async def test_a_large_image_is_kept_whole(store: Attachments) -> None:
    kept = await store.put("alice", "t1", Upload(PNG, 9 * 2**20))
    assert kept.size == 9 * 2**20
    assert await content(store, kept.bucket, kept.path) == PNG.ljust(9 * 2**20, b"x")


async def test_exactly_the_limit_is_taken_and_one_byte_more_is_not(store: Attachments) -> None:
    assert (await store.put("alice", "t1", Upload(PNG, 20_000), limit=20_000)).size == 20_000
    assert (await refusal(store.put("alice", "t1", Upload(PNG, 20_001), limit=20_000))).code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize(
    "head", [b"<svg xmlns=", b"BM" + b"\0" * 20, b"%PDF-1.7 ....", b"\x89PNG", b"RIFF0000WAVE", b"x"]
)
async def test_what_is_no_image_is_refused_by_its_first_bytes(store: Attachments, head: bytes) -> None:
    upload = Upload(head, max(len(head), 5 * 2**20 if len(head) >= 12 else 0))
    error = await refusal(store.put("alice", "t1", upload))
    assert (error.code, error.failure.details["reason"]) == (ErrorCode.INVALID_REQUEST, UNSUPPORTED_TYPE)
    assert upload.read <= 2**16


async def test_an_empty_file_is_refused(store: Attachments) -> None:
    error = await refusal(store.put("alice", "t1", Upload(b"")))
    assert (error.code, error.failure.details["reason"]) == (ErrorCode.INVALID_REQUEST, EMPTY)


async def test_a_huge_upload_is_stopped_at_the_limit_and_never_in_memory(store: Attachments) -> None:
    upload = Upload(PNG, 200 * 2**20)
    tracemalloc.start()
    try:
        error = await refusal(store.put("alice", "t1", upload, limit=4 * 2**20))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.code is ErrorCode.TOO_LARGE
    assert upload.read <= 4 * 2**20 + upload.piece
    # The test's S3 server lives in this process, too, and keeps what it gets.
    assert peak < (2 if isinstance(store, FolderAttachments) else 32) * 2**20


async def test_what_the_stream_raises_goes_through_and_nothing_is_kept(store: Attachments, tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield PNG
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        await store.put("alice", "t1", broken())
    assert files(tmp_path) == set()


async def test_a_cancelled_upload_leaves_nothing(store: Attachments, tmp_path: Path) -> None:
    began = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield PNG.ljust(2**20, b"x")
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(store.put("alice", "t1", stuck()))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert files(tmp_path) == set()


async def test_another_users_image_is_forbidden(store: Attachments) -> None:
    kept = await store.put("alice", "t1", Upload())
    assert (await refusal(store.stat("bob", kept.bucket, kept.path))).code is ErrorCode.FORBIDDEN
    assert (await refusal(store.stat("", kept.bucket, kept.path))).code is ErrorCode.FORBIDDEN
    missing = f"alice/t1/{uuid.UUID(int=0)}.png"
    assert (await refusal(store.stat("bob", kept.bucket, missing))).code is ErrorCode.FORBIDDEN
    assert (await refusal(store.stat("alice", kept.bucket, missing))).code is ErrorCode.NOT_FOUND
    assert (await refusal(store.stat("alice", "other", kept.path))).code is ErrorCode.NOT_FOUND


async def test_paths_that_were_not_made_here_lead_nowhere(store: Attachments, tmp_path: Path) -> None:
    kept = await store.put("alice", "t1", Upload())
    name = kept.path.rpartition("/")[2]
    (tmp_path / name).write_bytes(PNG)
    for path in (
        "", "/", ".", "..", "../secret.png", f"../{name}", f"alice/../{name}", f"alice/t1/../t1/{name}",
        f"/{kept.path}", kept.path[:-1], f"alice//{name}", f"alice/./{name}", f"alice/t1/{name}/", f"alice/t1\0/{name}",
        f"alice/t1/{name}\n", f"al\u0131ce/t1/{name}",
        f"alice/t1/{name.upper()}", f"alice/t1/{name[:-3]}svg", ".secret", f".parts/t1/{name}", f"alice/..%2f/{name}",
        f"{tmp_path}/{name}", "alice\\t1\\" + name,
    ):  # fmt: skip
        for ask in (store.stat("alice", kept.bucket, path), store.fetch(kept.bucket, path)):
            assert (await refusal(ask)).code is ErrorCode.NOT_FOUND, path


ODD = ["", ".", "..", "...", ".hidden", "a/b", "../../etc", "a\\b", "a b", "ü", "=", "=2E", "=h", "auth0|42", "a\0b",
       "\udcff", "a@b.example", "x" * 200, "x" * 201, "ü" * 256, "~", "%2e%2e", "con:1", "C:", "-",
       "a+b?c#d&e"]  # fmt: skip


async def test_any_name_is_a_step_of_its_own(store: Attachments) -> None:
    paths = {}
    for name in ODD:
        kept = await store.put(name, name, Upload())
        assert await store.stat(name, kept.bucket, kept.path) == kept
        assert await content(store, kept.bucket, kept.path) == PNG
        user, thread, _ = kept.path.split("/")
        assert user == thread
        paths[user] = name
    assert len(paths) == len(ODD)
    assert not {".", ".."} & paths.keys()


@pytest.mark.parametrize("name", ["alice", "user_1", "a@b.example", "t-1:x.y", "0"])
def test_plain_names_stay_as_they_are(name: str) -> None:
    assert new_path(name, name, "png").startswith(f"{name}/{name}/")


# ---------------------------------------------------------------------- URLs that are signed by ourselves


@pytest.fixture
async def folder(tmp_path: Path) -> FolderAttachments:
    return FolderAttachments(f"{tmp_path}/attachments", secret=SECRET, clock=Clock())


async def test_the_signature_is_the_one_that_is_documented(folder: FolderAttachments) -> None:
    kept = await folder.put("", "t1", Upload())
    url = urlsplit(await folder.sign(kept, f"{BASE}/", 3600))
    assert f"{url.scheme}://{url.netloc}{url.path}" == f"{BASE}/attachments/content/attachments/{kept.path}"
    query = {name: value for name, (value,) in parse_qs(url.query).items()}
    assert query["expires"] == "1800003600"
    text = f"GET\nattachments\n{kept.path}\n1800003600"
    assert query["sig"] == hmac.new(SECRET.encode(), text.encode(), "sha256").hexdigest()
    folder.verify("attachments", kept.path, query["expires"], query["sig"])


async def test_a_url_of_ours_is_known_again(folder: FolderAttachments) -> None:
    for owner in ("", "alice", "auth0|42"):
        kept = await folder.put(owner, "t:1", Upload())
        assert content_of(await folder.sign(kept, BASE, 60)) == (kept.bucket, kept.path)
        assert content_of(f"http://elsewhere{content_path(kept.bucket, kept.path)}") == (kept.bucket, kept.path)
    path = content_path(kept.bucket, kept.path)
    for url in (
        "",
        "http://[",
        "data:image/png;base64,AAAA",
        f"{BASE}{path}x",
        f"{BASE}/?{path}",
        f"{BASE}{path[:-5]}/../x.png",
    ):
        assert content_of(url) is None, url


async def test_wrong_missing_moved_and_expired_signatures(folder: FolderAttachments) -> None:
    kept, other = await folder.put("alice", "t1", Upload()), await folder.put("alice", "t1", Upload())
    query = parse_qs(urlsplit(await folder.sign(kept, BASE, 60)).query)
    (expires,), (sig,) = query["expires"], query["sig"]
    folder.verify(kept.bucket, kept.path, expires, sig)
    wrong = [
        (kept.bucket, other.path, expires, sig),
        ("other", kept.path, expires, sig),
        (kept.bucket, kept.path, str(int(expires) + 1), sig),
        (kept.bucket, kept.path, f"0{expires}", sig),
        (kept.bucket, kept.path, "", sig),
        (kept.bucket, kept.path, "x", sig),
        (kept.bucket, kept.path, expires, ""),
        (kept.bucket, kept.path, expires, sig[:-1]),
        (kept.bucket, kept.path, expires, sig.upper()),
        (kept.bucket, kept.path, expires, "ü\udcff"),
    ]
    told = set()
    for case in wrong:
        with pytest.raises(BridgeError) as caught:
            folder.verify(*case)
        assert caught.value.code is ErrorCode.FORBIDDEN
        told.add(caught.value.message)
    folder._clock.now += 60  # type: ignore[attr-defined]
    folder.verify(kept.bucket, kept.path, expires, sig)
    folder._clock.now += 1  # type: ignore[attr-defined]
    with pytest.raises(BridgeError) as caught:
        folder.verify(kept.bucket, kept.path, expires, sig)
    assert told == {caught.value.message}


async def test_the_secret_lives_through_a_restart_and_is_shared(tmp_path: Path) -> None:
    stores = [open_attachments(f"file:///{tmp_path}/a") for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    kept = await stores[0].put("alice", "t1", Upload())
    url = await stores[0].sign(kept, BASE, 60)
    query = parse_qs(urlsplit(url).query)
    for store in (*stores[1:], open_attachments(f"file:///{tmp_path}/a")):
        await store.open()
        store.verify(kept.bucket, kept.path, query["expires"][0], query["sig"][0])
    secret = tmp_path / "a" / ".secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert len(secret.read_bytes()) == 64
    assert secret.read_text() not in url
    assert {p.name for p in (tmp_path / "a").iterdir()} == {".parts", ".secret", "alice"}


def test_a_file_that_holds_no_secret_is_told(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("short")
    with pytest.raises(ConfigError, match="contains no secret"):
        kept_secret(tmp_path / "s")


# ---------------------------------------------------------------------- the folder


def files(place: Path) -> set[str]:
    return {p.name for p in place.rglob("*") if p.is_file() and p.name != ".secret"}


async def test_images_are_only_ours_to_read(folder: FolderAttachments, tmp_path: Path) -> None:
    kept = await folder.put("alice", "t1", Upload())
    where = tmp_path / "attachments" / kept.path
    assert stat.S_IMODE(where.stat().st_mode) == 0o600
    assert stat.S_IMODE(where.parent.stat().st_mode) == 0o700


async def test_empty_folders_go_with_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderAttachments(str(tmp_path / "a"))
    for thread in ("t1", "t2"):
        await store.put("ann", thread, Upload())
    assert await store.delete("ann", "t1") == 0
    assert [p.name for p in (tmp_path / "a" / "ann").iterdir()] == ["t2"]
    await store.delete("ann", "t2")
    assert not (tmp_path / "a" / "ann").exists()
    # It may go between the moment it is made and the moment the file is moved into it.
    rename, lost = Path.rename, [True]

    def renamed(self: Path, target: Path) -> Path:
        if lost:
            lost.pop()
            target.parent.rmdir()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)
    kept = await store.put("ann", "t1", Upload())
    assert await content(store, kept.bucket, kept.path) == PNG


async def test_what_a_crash_left_behind_is_taken_out(tmp_path: Path) -> None:
    parts = tmp_path / "a" / ".parts"
    parts.mkdir(parents=True)
    (parts / "old").write_bytes(PNG)
    os.utime(parts / "old", (0, 0))
    (parts / "new").write_bytes(PNG)
    await FolderAttachments(str(tmp_path / "a")).open()
    assert [p.name for p in parts.iterdir()] == ["new"]


async def test_a_folder_that_cannot_be_used_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    store = open_attachments(f"file:///{tmp_path}/a", secret=SECRET)
    for ask in (store.open(), store.put("alice", "t1", Upload())):
        error = await refusal(ask)
        assert error.code is ErrorCode.STORE_UNAVAILABLE
        assert str(tmp_path) not in error.message


async def test_a_relative_folder_is_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_attachments("file:data/attachments")
    monkeypatch.chdir("/")
    await store.put("alice", "t1", Upload())
    assert len(files(tmp_path / "data" / "attachments" / "alice")) == 1


@pytest.mark.parametrize("url", ["file://{}/a", "file:///{}/a"])
async def test_three_slashes_begin_an_absolute_path(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As everywhere; a fourth one changes nothing."""
    monkeypatch.chdir("/")
    await open_attachments(url.format(tmp_path)).put("alice", "t1", Upload())
    assert len(files(tmp_path / "a" / "alice")) == 1


# ---------------------------------------------------------------------- S3


async def test_a_presigned_url_gives_the_image_to_anybody(s3_url: str) -> None:
    store = open_attachments(await bucket(s3_url, "pictures"))
    kept = await store.put("a|b", "t1", Upload())
    url = await store.sign(kept, BASE, 3600)
    assert url.startswith(f"{s3_url}/pictures/a%3D7Cb/t1/")
    assert parse_qs(urlsplit(url).query)["X-Amz-Expires"] == ["3600"]
    assert SECRET not in url
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert (answer.status, answer.content_type, await answer.read()) == (200, "image/png", PNG)
    with pytest.raises(BridgeError) as caught:
        store.verify(kept.bucket, kept.path, "1800003600", "x")
    assert caught.value.code is ErrorCode.FORBIDDEN


async def test_a_bucket_that_is_not_there_and_a_server_that_is_not(s3_url: str) -> None:
    lost = (await bucket(s3_url, "pictures")).replace("s3://pictures", "s3://nowhere")
    dead = (await bucket(s3_url, "pictures")).replace(s3_url, f"http://127.0.0.1:{free_port()}")
    path = new_path("alice", "t1", "png")
    for store in (open_attachments(lost), open_attachments(dead)):
        error = await refusal(store.put("alice", "t1", Upload()))
        assert error.code is ErrorCode.STORE_UNAVAILABLE
        assert "127.0.0.1" not in error.message
    for ask in (store.stat("alice", "pictures", path), store.fetch("pictures", path)):
        assert (await refusal(ask)).code is ErrorCode.STORE_UNAVAILABLE


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3://A", "s3://pictures/prefix", "s3://pictures?secret=" + SECRET, "file://", "file:///", "file://host/x",
     "file:", "ftp://x/" + SECRET],
)  # fmt: skip
def test_urls_that_name_no_store(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_attachments(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_an_object_store_without_its_package_is_a_clear_mistake(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"pip install 'dialect-bridge\[objects\]'"):
        ObjectAttachments(scheme, "pictures", {})


async def test_a_link_of_another_cloud_gives_the_image_to_anybody(cloud: Cloud, tmp_path: Path) -> None:
    store = open_attachments(cloud.url(tmp_path))
    kept = await store.put("alice", "t1", Upload())
    url = await store.sign(kept, BASE, 3600)
    assert ACCOUNT_KEY not in url
    assert store.find(url) == ("pictures", kept.path)
    own = url if url.startswith(cloud.base) else cloud.base + "/" + url.partition("://")[2].partition("/")[2]
    async with aiohttp.ClientSession() as session, session.get(own) as answer:
        assert (answer.status, answer.content_type, await answer.read()) == (200, "image/png", PNG)


async def test_a_large_file_reaches_another_cloud_in_parts(cloud: Cloud, tmp_path: Path) -> None:
    store = open_attachments(cloud.url(tmp_path))
    whole = b"".join([piece async for piece in Upload(total=11 * 2**20)])
    kept = await store.put("alice", "t1", Upload(total=11 * 2**20), limit=2**24)
    assert (await content(store, kept.bucket, kept.path), kept.size) == (whole, len(whole))
    assert cloud.objects[kept.path][1] == "image/png"


async def test_files_of_a_thread_that_are_old_enough_are_deleted_there(cloud: Cloud, tmp_path: Path) -> None:
    store = open_attachments(cloud.url(tmp_path))
    for thread in ("t1", "t1", "t1x"):
        await store.put("alice", thread, Upload())
    cloud.age(3600)
    new = await store.put("alice", "t1", Upload())
    assert await store.delete("alice", "t1", 60) == 1
    assert {path.split("/")[1] for path in cloud.objects} == {"t1", "t1x"}
    assert new.path in cloud.objects
    assert await store.delete("alice", "t1") == 0
    assert [path.split("/")[1] for path in cloud.objects] == ["t1x"]


async def test_what_is_wrong_with_an_object_store_is_said(cloud: Cloud, tmp_path: Path) -> None:
    url = cloud.url(tmp_path)
    store = open_attachments(url)
    await store.probe()
    assert cloud.objects == {}, "the probe leaves nothing"
    wrong = [(403, "may not write"), (401, "credentials are wrong"), (404, "no such bucket")]
    for status, words in wrong:
        cloud.refuses = status
        for probed in (open_attachments(url), store):
            error = await refusal(probed.probe())
            assert isinstance(error, StoreUnavailable)
            assert words in explain(error.reason)
    dead = open_attachments(url.replace(cloud.base, f"http://127.0.0.1:{free_port()}"))
    error = await refusal(dead.put("alice", "t1", Upload()))
    assert isinstance(error, StoreUnavailable)
    assert "cannot be reached" in explain(error.reason)
    assert "127.0.0.1" not in error.message


@pytest.mark.parametrize(
    ("url", "described"),
    [
        ("s3://b?endpoint=https://u:p@minio.example:9000&secret_access_key=s", "s3 bucket b at minio.example:9000"),
        ("gs://pictures?service_account=/run/key.json", "gs bucket pictures"),
        ("az://c?account_name=a&account_key=k", "az bucket c"),
        ("file:///var/files", "folder /var/files"),
    ],
)
def test_an_attachment_store_in_the_log(url: str, described: str) -> None:
    assert describe(url) == described


@pytest.mark.parametrize(
    "url",
    ["gs://pictures?service_account=/nowhere/account.json", "gs://pictures?account_key=" + SECRET,
     "az://pictures?account_key=%21" + SECRET, "az://pictures/prefix?account_name=a"],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused_before_anything_is_stored(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_attachments(url)
    assert SECRET not in str(caught.value)
    assert "nowhere" not in str(caught.value)
