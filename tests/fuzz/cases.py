"""One case for the whole server: what a client sends, and what the backend behind it plays. Made of a number alone."""

from __future__ import annotations

import base64
import json
import random
import zlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import quote

import orjson

from bridge.contract import WireRequest, registry
from bridge.errors import Unsupported
from bridge.testing.pairs import frames_of
from bridge.testing.wires import context
from bridge.testing.witnesses import REQUESTS
from tests.faults.wire import SPEAKING, asking
from tests.fuzz.grow import grow
from tests.fuzz.mutate import mutate
from tests.recorded import CAPTURES, answers, body

LARGEST = 2**17
"""About the most bytes of a request or of a piece of an answer."""
_TYPES = (
    "application/json",
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "multipart/form-data",
    "",
)
_LENGTHS = ("-1", "1e3", "9" * 30, "0x10", "+5", "5, 5")

Step = tuple[str, bytes]
"""What the backend does next: `raw`, `send` or `flood` these bytes, `pause`, `end`, `reset` or `close`."""


@dataclass
class Case:
    """`request`: the client's bytes. `broken`: they are no HTTP, or not all of it, and need no answer.

    `valid`: a request of the dialect as such, whose answer is read as that of the dialect. `cut`: the client leaves
    when it has so many bytes of the answer.
    """

    name: str
    front: str
    back: str
    request: bytes
    answer: list[Step] = field(default_factory=list)
    broken: bool = False
    valid: bool = False
    cut: int | None = None

    def dump(self) -> bytes:
        """The case as a file's content."""
        packed = {
            **vars(self),
            "request": _packed(self.request),
            "answer": [(step, _packed(data)) for step, data in self.answer],
        }
        return json.dumps(packed, indent=1).encode() + b"\n"

    @classmethod
    def load(cls, data: bytes) -> Case:
        """The case that `dump` wrote."""
        kept = json.loads(data)
        kept["request"] = _unpacked(kept["request"])
        kept["answer"] = [(step, _unpacked(data)) for step, data in kept["answer"]]
        return cls(**kept)


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def case(seed: int, number: int) -> Case:
    """The case of this number; neither the clock nor the cases before it have a part in it."""
    rnd = random.Random(f"{seed}/{number}")
    front, back = rnd.choice(SPEAKING), rnd.choice(SPEAKING)
    made = rnd.choices((_request, _answer, _endpoint, _http), (45, 40, 10, 5))[0](rnd, front, back)
    made.name = f"{seed}/{number}"
    if rnd.random() < 0.05:
        made.cut = rnd.choice((0, 100, 5_000))
    return made


# ---------------------------------------------------------------------- what clients send


@cache
def requests(dialect: str) -> list[bytes]:
    """Bodies of requests that run something: recorded ones, and one for each feature that the dialect has."""
    folder = CAPTURES / dialect.removesuffix("-java")
    out = [body(path) for path in sorted(folder.glob("*.request.*"))] + _indexed(folder / "index.json")
    speaker = registry.get(dialect)
    for witness in REQUESTS.values():
        try:
            out.append(speaker.encode_request(witness.request, context(speaker.back_options(), witness.request)).body)
        except Unsupported:
            continue
    return [data for data in out if data.startswith((b"{", b"["))]


def _indexed(path: Path) -> list[bytes]:
    """The requests of a dialect whose index has them beside its recorded answers."""
    captures = json.loads(path.read_bytes()).get("captures", []) if path.is_file() else []
    found = (each.get("request") for each in captures if isinstance(each, dict))
    return [orjson.dumps(each) for each in found if isinstance(each, dict)]


def _request(rnd: random.Random, front: str, back: str) -> Case:
    """A changed request to what runs; the backend says what it was recorded to say."""
    data = _changed(rnd.choice(requests(front)), rnd)
    path = registry.get(front).example_request("hi").target
    return Case("", front, back, _sent(rnd, "POST", path, data), _played(rnd.choice(_recorded(back))))


def _endpoint(rnd: random.Random, front: str, back: str) -> Case:
    """Another endpoint of the dialect, with odd names in its path and its query."""
    endpoint = rnd.choice(registry.get(front).surface)
    path, odd = endpoint.path, ("t1", "%00", "..%2f..", "a" * rnd.choice((10, 7_000)), "%ff", "\U0001f600", "'\"<")
    while "{" in path:
        start, _, rest = path.partition("{")
        path = start + quote(rnd.choice(odd), safe="%") + rest.partition("}")[2]
    if rnd.random() < 0.5:
        names = ("runId", "threadId", "limit", "after", "access_token", "starting_after", "stream", "x")
        path += "?" + "&".join(
            f"{rnd.choice(names)}={quote(rnd.choice(odd), safe='%')}" for _ in range(rnd.randint(1, 40))
        )
    data = _changed(rnd.choice(requests(front)), rnd) if endpoint.method == "POST" else b""
    sent = _sent(rnd, endpoint.method, path, data)
    # The HTTP parser refuses longer lines before there is a request.
    return Case("", front, back, sent, _played(rnd.choice(_recorded(back))), broken=len(path) > 8_000)


def _http(rnd: random.Random, front: str, back: str) -> Case:
    """Bytes that are no request, or one that says wrong things of itself."""
    whole = _sent(rnd, "POST", registry.get(front).example_request("hi").target, rnd.choice(requests(front)))
    head, _, data = whole.partition(b"\r\n\r\n")
    match rnd.randint(0, 5):
        case 0:
            broken = whole[: rnd.randrange(len(whole))]
        case 1:
            broken = mutate(head, rnd) + b"\r\n\r\n" + data
        case 2:
            length = rnd.choice(_LENGTHS).encode()
            broken = head.replace(b"content-length: %d" % len(data), b"content-length: " + length) + b"\r\n\r\n" + data
        case 3:
            flood = b"".join(b"\r\nx-%d: %b" % (n, b"y" * rnd.choice((1, 100))) for n in range(rnd.choice((50, 5_000))))
            broken = head + flood + b"\r\n\r\n" + data
        case 4:
            chunks = rnd.choice(
                (b"zz\r\n", b"ffffffffffffffff\r\nx", b"1;" + b"a" * 20_000 + b"\r\n", b"-1\r\n", b"1\r\nxy")
            )
            broken = (
                head.replace(b"content-length: %d" % len(data), b"transfer-encoding: chunked") + b"\r\n\r\n" + chunks
            )
        case _:
            encoding = rnd.choice((b"gzip", b"br", b"deflate", b"zstd", b"gzip, gzip", b"x"))
            packed = zlib.compress(b'{"a":"' + b"x" * rnd.choice((10, 20 * LARGEST)) + b'"}', 9, wbits=31)
            length = b"content-length: %d" % len(data)
            head = head.replace(length, b"content-encoding: " + encoding + b"\r\ncontent-length: %d" % len(packed))
            broken = head + b"\r\n\r\n" + packed
    return Case("", front, back, broken, _played(rnd.choice(_recorded(back))), broken=True)


def _changed(data: bytes, rnd: random.Random) -> bytes:
    for _ in range(rnd.randint(0, 2)):
        data = mutate(data, rnd)
    return grow(data, rnd, LARGEST) if rnd.random() < 0.7 else mutate(data, rnd)


def _sent(rnd: random.Random, method: str, path: str, data: bytes) -> bytes:
    """The bytes of a request; `{mount}` stands for where its route is."""
    headers = {"host": "bridge", "connection": "close", "content-length": str(len(data))}
    headers["content-type"] = "application/json" if rnd.random() < 0.8 else rnd.choice(_TYPES)
    if rnd.random() < 0.2:
        names = (
            "last-event-id",
            "authorization",
            "traceparent",
            "x-request-id",
            "accept",
            "idempotency-key",
            "cookie",
            "origin",
        )
        headers[rnd.choice(names)] = rnd.choice(("", "x", "\xff\xfe", "a" * 7_000, "0-0", "-1", "Bearer ", ",", "null"))
    lines = [f"{method} {{mount}}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + data


# ---------------------------------------------------------------------- what backends answer


@cache
def _recorded(back: str) -> list[bytes]:
    return [data for data in answers(back).values() if data]


def good(front: str, back: str | None = None) -> Case:
    """A request and an answer with nothing wrong in either; by default both sides speak the same dialect."""
    back = back or front
    request = _wired(asking(registry.get(front), thread="good"))
    return Case(front, front, back, request, _played(b"".join(frames_of(registry.get(back), "Hello"))), valid=True)


def _answer(rnd: random.Random, front: str, back: str) -> Case:
    """A good request, and an answer that is changed, cut, endless or slow."""
    asked = asking(registry.get(front), stream=rnd.random() < 0.7, thread=f"t{rnd.random()}", run=f"r{rnd.random()}")
    steps = _played(_changed(rnd.choice(_recorded(back)), rnd), rnd)
    return Case("", front, back, _wired(asked), steps, valid=True)


def _wired(wire: WireRequest) -> bytes:
    sent = {"host": "bridge", "connection": "close", "content-length": str(len(wire.body)), **wire.headers}
    lines = [f"{wire.method} {{mount}}{wire.path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + wire.body


def _played(data: bytes, rnd: random.Random | None = None) -> list[Step]:
    """The steps that send this answer; with `rnd` they may go wrong."""
    streamed = b"data:" in data
    kind = "text/event-stream" if streamed else "application/json"
    status = (
        "200 OK"
        if streamed or rnd is None or rnd.random() < 0.5
        else f"{rnd.choice((201, 302, 400, 401, 429, 500, 503))} X"
    )
    if rnd is None:
        return [("raw", _head(status, kind)), ("send", data), ("end", b"")]
    odd = rnd.random()
    if odd < 0.05:
        return [
            ("raw", rnd.choice((b"", b"HTTP/1.1 200", b"SSH-2.0\r\n\r\n", b"HTTP/9.9 abc\r\n\r\n", b"\xff" * 70_000))),
            ("close", b""),
        ]
    if odd < 0.08:
        return [("flood", b"HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n"), ("raw", _head(status, kind)), ("end", b"")]
    if odd < 0.12:
        extra = b"".join(b"x-%d: %b\r\n" % (n, b"y" * 100) for n in range(rnd.choice((10, 2_000))))
        return [("raw", _head(status, kind)[:-2] + extra + b"\r\n"), ("send", data), ("end", b"")]
    steps: list[Step] = [
        ("raw", _head(status, rnd.choice((kind, kind, kind, "text/html", "application/octet-stream"))))
    ]
    cuts = sorted(rnd.randrange(len(data) + 1) for _ in range(rnd.choice((0, 0, 1, 5))))
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        steps.append(("send", data[start:stop]))
        if rnd.random() < 0.1:
            steps.append(("pause", b""))
    if rnd.random() < 0.1:
        frame = rnd.choice(data.split(b"\n\n")) + b"\n\n"
        steps.append(
            ("flood", rnd.choice((frame, b": alive\n\n", b"data: x", b"\n", b"\r", b"data:\n", b"data: {}\n\n")))
        )
    steps.append((rnd.choice(("end", "end", "end", "end", "reset", "close")), b""))
    return steps


def _head(status: str, kind: str) -> bytes:
    return f"HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\ncontent-type: {kind}\r\n\r\n".encode()
