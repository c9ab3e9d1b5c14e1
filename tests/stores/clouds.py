"""Google Cloud Storage and Azure Blob Storage for the tests: what their clients call, on loopback, in memory.

Google: https://cloud.google.com/storage/docs/xml-api/reference-methods. Azure:
https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

import orjson
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.server.harness import free_port

BUCKET = "pictures"
ACCOUNT_KEY = base64.b64encode(b"s3cr3t-pa55word-of-an-account").decode()
DAY = 86400.0


class Cloud:
    """One service with one bucket. `refuses`: a status for all requests from now on."""

    scheme = ""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str, float]] = {}
        """Content, type and time of each object."""
        self.refuses: int | None = None
        self.parts: dict[tuple[str, str], bytes] = {}
        self.types: dict[str, str] = {}
        self.base = ""

    def url(self, folder: Path) -> str:
        """What a configuration says."""
        raise NotImplementedError

    def age(self, seconds: float) -> None:
        """All objects are older by so much."""
        self.objects = {path: (body, kind, at - seconds) for path, (body, kind, at) in self.objects.items()}

    async def answer(self, http: web.Request) -> web.StreamResponse:
        bucket, _, path = http.path.removeprefix("/").partition("/")
        body = await http.read()
        if self.refuses is not None:
            return web.Response(status=self.refuses)
        if bucket != BUCKET:
            return web.Response(status=404)
        if http.method in ("PUT", "POST", "DELETE") and not http.headers.get("authorization"):
            return web.Response(status=403)
        return self.serve(http, path, body)

    def serve(self, http: web.Request, path: str, body: bytes) -> web.StreamResponse:
        raise NotImplementedError

    def put(self, path: str, body: bytes, kind: str) -> web.Response:
        self.objects[path] = body, kind, time.time()
        return web.Response(status=201, headers={"etag": '"e"', "last-modified": formatdate(usegmt=True)})

    def get(self, path: str) -> web.Response:
        if path not in self.objects:
            return web.Response(status=404)
        body, kind, at = self.objects[path]
        times = {"etag": '"e"', "last-modified": formatdate(at, usegmt=True)}
        return web.Response(body=body, headers={"content-type": kind, **times})

    def named(self, prefix: str) -> list[tuple[str, bytes, float]]:
        return sorted((path, body, at) for path, (body, _, at) in self.objects.items() if path.startswith(prefix))


class Google(Cloud):
    scheme = "gs"

    def url(self, folder: Path) -> str:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        account = {"gcs_base_url": self.base, "disable_oauth": False, "client_email": "a@example.com"}
        file = folder / "account.json"
        file.write_bytes(orjson.dumps({**account, "private_key": pem, "private_key_id": "1"}))
        return f"gs://{BUCKET}?service_account={quote(str(file))}&base_url={self.base}"

    def serve(self, http: web.Request, path: str, body: bytes) -> web.StreamResponse:
        query, method = http.query, http.method
        upload = query.get("uploadId", "")
        if method == "POST" and "uploads" in query:
            self.types[path] = http.headers["content-type"]
            xml = f"<Bucket>{BUCKET}</Bucket><Key>{escape(path)}</Key><UploadId>u1</UploadId>"
            return web.Response(text=f"<InitiateMultipartUploadResult>{xml}</InitiateMultipartUploadResult>")
        if method == "PUT" and upload:
            self.parts[path, query["partNumber"]] = body
            return web.Response(headers={"etag": f'"{query["partNumber"]}"'})
        if method == "POST" and upload:
            numbers = re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())
            self.put(path, b"".join(self.parts.pop((path, number)) for number in numbers), self.types.pop(path))
            return web.Response(text='<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>')
        if method == "PUT":
            return self.put(path, body, http.headers["content-type"])
        if method == "DELETE":
            if not upload and self.objects.pop(path, None) is None:
                return web.Response(status=404)
            return web.Response(status=204)
        if path:
            return self.get(path)
        found = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(content)}</Size><ETag>e</ETag>"
            f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(at))}</LastModified></Contents>"
            for name, content, at in self.named(query.get("prefix", ""))
        )
        return web.Response(text=f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>")


class Azure(Cloud):
    scheme = "az"

    def url(self, folder: Path) -> str:
        return f"az://{BUCKET}?account_name=acc&account_key={quote(ACCOUNT_KEY)}&endpoint={self.base}"

    def serve(self, http: web.Request, path: str, body: bytes) -> web.StreamResponse:
        query, method = http.query, http.method
        if method in ("GET", "HEAD") and not http.headers.get("authorization") and "sig" not in query:
            return web.Response(status=403)
        part = query.get("comp")
        if method == "PUT" and part == "block":
            self.parts[path, query["blockid"]] = body
            return web.Response(status=201)
        if method == "PUT" and part == "blocklist":
            names = re.findall(r"<Uncommitted>(.*?)</Uncommitted>", body.decode())
            whole = b"".join(self.parts.pop((path, name)) for name in names)
            return self.put(path, whole, http.headers.get("x-ms-blob-content-type", ""))
        if method == "PUT":
            assert http.headers["x-ms-blob-type"] == "BlockBlob"
            return self.put(path, body, http.headers.get("x-ms-blob-content-type", ""))
        if method == "POST" and part == "batch":
            return self.delete_many(body)
        if method == "DELETE":
            return web.Response(status=202 if self.objects.pop(path, None) is not None else 404)
        if path:
            got = self.get(path)
            got.headers["x-ms-blob-type"] = "BlockBlob"
            return got
        found = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Content-Length>{len(content)}</Content-Length>"
            f"<Content-Type>image/png</Content-Type><Last-Modified>{formatdate(at, usegmt=True)}</Last-Modified>"
            "<Etag>e</Etag></Properties></Blob>"
            for name, content, at in self.named(query.get("prefix", ""))
        )
        return web.Response(text=f"<EnumerationResults><Blobs>{found}</Blobs><NextMarker/></EnumerationResults>")

    def delete_many(self, body: bytes) -> web.Response:
        """A batch: one answer for each part, by its number."""
        out = ""
        for number, path in enumerate(re.findall(rb"DELETE /pictures/(\S+) HTTP/1.1", body)):
            gone = self.objects.pop(path.decode(), None)
            status = "202 Accepted" if gone is not None else "404 Not Found"
            out += f"--b\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\nHTTP/1.1 {status}\r\n"
            out += "x-ms-request-id: 1\r\nx-ms-version: 2023-11-03\r\n\r\n"
        headers = {"content-type": "multipart/mixed; boundary=b"}
        return web.Response(status=202, body=f"{out}--b--\r\n".encode(), headers=headers)


@asynccontextmanager
async def running(cloud: Cloud) -> AsyncIterator[Cloud]:
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", cloud.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    cloud.base = f"http://127.0.0.1:{port}"
    try:
        yield cloud
    finally:
        await runner.cleanup()
