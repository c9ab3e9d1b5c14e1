"""What the server sends: valid HTTP of the promised length, valid JSON or events, and nothing of another request.

A case is one connection with some requests, one after the other or all at once, over backends that lie about their
answers. `python -m tests.fuzz.output TIME` goes on for so many seconds; `--case SEED/NUMBER` plays one case.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import random
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, takewhile
from typing import Any

import orjson

from bridge.contract import registry
from bridge.errors import Unsupported
from bridge.model import Event, PartKind
from bridge.testing.wires import context, encode
from bridge.testing.witnesses import ANSWERS
from tests.faults.wire import SPEAKING, asking, raw
from tests.fuzz.mutate import mutate
from tests.server.harness import Exchange, fake_backend, serving

FRONTS = [name for name in SPEAKING if name != "agent-runs"]
AT_ONCE = 8
LIMIT = 30.0
"""Seconds after which a connection without an end is a finding."""
FORGED = "forged"
_MARK = re.compile(rb"mark-[0-9a-f]{16}x")
_OWN = ("/healthz", "/readyz", "/metrics", "/nowhere", "/", "/_page/page.js", "/_page/health", "/forward/v1/models")
_TRAPS = (
    "\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfalse",
    "\n\nevent: error\ndata: {}\n\n",
    "0\r\n\r\n",
    "\u2028\u0085\x00\x0b",
    "\ud83d\ude00",
    "</script>",
)


@dataclass
class Asked:
    """One request. `mark` stands in it, and in what its backend says. `whole`: what its backend says ends properly."""

    mark: bytes
    method: str
    request: bytes
    forwards: bool = False
    answer: bytes = b""
    whole: bool = True
    end: str = ""
    body: bytes | None = None
    """The body of a forwarded answer that is whole, unpacked."""


@dataclass
class Case:
    """A connection. `pipelined`: all requests are sent at once."""

    name: str
    asked: list[Asked]
    pipelined: bool


@dataclass
class Answer:
    """One answer on the wire. `rest` is what follows it; `ends`: only the end of the connection ends it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    rest: bytes
    ends: bool = False

    def header(self, name: str) -> str:
        return next((value for known, value in self.headers if known == name), "")


# ---------------------------------------------------------------------- making cases


def case(seed: int, number: int) -> Case:
    """The case of this number; neither the clock nor the cases before it have a part in it."""
    rnd = random.Random(f"{seed}/{number}")
    # So long that no changed byte makes one out of another.
    marks = [f"mark-{rnd.getrandbits(64):016x}x".encode() for _ in range(rnd.choice((1, 2, 3, 4)))]
    asked = [_asked(rnd, mark) for mark in marks]
    return Case(f"{seed}/{number}", asked, rnd.random() < 0.5)


def _asked(rnd: random.Random, mark: bytes) -> Asked:
    match rnd.choices(("run", "forward", "own", "wrong"), (55, 25, 15, 5))[0]:
        case "run":
            return _run(rnd, mark)
        case "forward":
            return _forward(rnd, mark)
        case "own":
            method = rnd.choice(("GET", "HEAD", "OPTIONS", "DELETE"))
            return Asked(mark, method, _request(method, rnd.choice(_OWN) + f"?x={mark.decode()}", b""))
    body = b'{"model":"m","messages":"' + mark + b'"}'
    front = rnd.choice(FRONTS)
    path = registry.get(front).example_request("hi").target
    return Asked(mark, "POST", _request("POST", f"/{front}/openai-chat{path}", body))


def _request(method: str, path: str, body: bytes) -> bytes:
    length = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{length}\r\n".encode() + body


def _run(rnd: random.Random, mark: bytes) -> Asked:
    front, back, stream = rnd.choice(FRONTS), rnd.choice(FRONTS), rnd.random() < 0.6
    word = mark.decode()
    wire = asking(registry.get(front), text=word, thread=f"t-{word}", run=f"r-{word}", stream=stream)
    asked = Asked(mark, "POST", raw(wire, f"/{front}/{back}", connection="keep-alive"))
    events = _said(word + rnd.choice(_TRAPS) * rnd.randint(0, 2), rnd)
    body, kind = _encoded(back, events, streamed=rnd.random() < 0.6)
    if rnd.random() < 0.3:
        body = mutate(body, rnd)
    _lie(asked, body, kind, rnd)
    return asked


def _said(text: str, rnd: random.Random) -> list[Event]:
    """A run with something of everything that answers have, which says this text in pieces."""
    builder = context(None).builder()
    builder.begin(model="model")
    if rnd.random() < 0.5:
        ANSWERS[rnd.choice(list(ANSWERS))].tell(builder)
    size = rnd.choice((1, 3, 40))
    for at in range(0, len(text), size):
        builder.flow("said", PartKind.TEXT, text[at : at + size])
    builder.finish()
    builder.end()
    return builder.take()


def _encoded(back: str, events: list[Event], *, streamed: bool) -> tuple[bytes, str]:
    """The answer in a dialect, and its content type."""
    dialect = registry.get(back)
    if not streamed:
        with suppress(Unsupported):
            return dialect.assemble(events, context(dialect.front_options())).body, "application/json"
    return encode(dialect, events), "text/event-stream"


def _forward(rnd: random.Random, mark: bytes) -> Asked:
    sent = b'{"input":"' + mark + b'"}'
    asked = Asked(mark, "POST", _request("POST", "/forward/v1/embeddings", sent), forwards=True)
    body = b'{"data":["' + mark + b"x" * rnd.choice((0, 10, 70_000)) + b'"]}'
    _lie(asked, body, rnd.choice(("application/json", "audio/mpeg", "text/event-stream")), rnd)
    return asked


def _lie(asked: Asked, body: bytes, kind: str, rnd: random.Random) -> None:
    """Set what the backend sends: this body, or less of it, under a head that may be wrong."""
    status = rnd.choices((200, 201, 204, 304, 400, 404, 429, 500, 503), (70, 3, 3, 2, 4, 4, 6, 4, 4))[0]
    lines = [f"HTTP/1.1 {status} {asked.mark.decode()}".encode(), b"content-type: " + kind.encode()]
    lines += rnd.sample(_odd_headers(asked.mark), rnd.randint(0, 3))
    plain, encoding = body, rnd.choices(("", "gzip", "deflate", "x-odd"), (75, 10, 8, 7))[0]
    if encoding:
        lines.append(b"content-encoding: " + encoding.encode())
        is_packed = rnd.random() < 0.8
        body = (
            {"gzip": partial(gzip.compress, mtime=0), "deflate": zlib.compress}.get(encoding, bytes)(body)
            if is_packed
            else body
        )
        asked.whole = is_packed or encoding == "x-odd"
    framing = rnd.choices(("length", "short", "long", "chunks", "cut", "close"), (35, 8, 8, 35, 7, 7))[0]
    length, sent = len(body), body
    match framing:
        case "short":
            length = max(0, length - rnd.randint(1, 50))
        case "long":
            length += rnd.randint(1, 50)
        case "chunks" | "cut":
            lines.append(b"transfer-encoding: chunked")
            size = rnd.choice((1, 100, 10_000)) if len(body) < 5_000 else 10_000
            sent = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in _pieces(body, size)) + b"0\r\n\r\n"
            sent = sent[: rnd.randrange(len(sent))] if framing == "cut" else sent
        case "close":
            asked.end = "close"
    if framing in ("length", "short", "long"):
        lines.append(b"content-length: %d" % length)
    if framing in ("long", "cut"):
        asked.end = rnd.choice(("close", "reset"))
    asked.whole = asked.whole and framing in ("length", "chunks", "close")
    if framing in ("length", "chunks") and not asked.end:
        forged = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n" + FORGED.encode()
        sent += rnd.choices((b"", forged), (85, 15))[0]
        asked.end = rnd.choices(("", "close", "reset"), (90, 8, 2))[0]
    if framing == "short" and encoding in ("", "x-odd"):
        # Whole as HTTP has it, with something behind it.
        plain, asked.whole = plain[:length], True
    if asked.forwards and asked.whole and status in (200, 201):
        asked.body = plain
    asked.answer = (
        rnd.choice((b"", b"HTTP/1.1 103 Early\r\nlink: <x>\r\n\r\n")) + b"\r\n".join(lines) + b"\r\n\r\n" + sent
    )


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def _odd_headers(mark: bytes) -> list[bytes]:
    return [
        b"retry-after: -5", b"retry-after: 1", b"retry-after: nan", b"set-cookie: a=" + mark, b"x-request-id: a b",
        b"content-disposition: attachment; filename=" + mark, b"content-disposition: \xff\xfe", b"cache-control: \xe9",
        b"x-ratelimit-remaining-tokens: 1", b"x-ratelimit-remaining-tokens: \xc3\xa9", b"connection: close",
        b"trailer: x", b"x-long: " + b"y" * 4_000, b"upgrade: h2c", b"access-control-allow-origin: *",
    ]  # fmt: skip


# ---------------------------------------------------------------------- playing them


def config(url: str) -> dict[str, Any]:
    """Every front over every back, and a route that forwards."""
    slow = {"connect": "5s", "first_event": "1s", "idle": "1s", "total": "3s"}
    common = {"breaker": "off", "timeouts": slow}
    backends = {name: {"dialect": name, "url": url, **common} for name in FRONTS}
    routes = [{"dialect": front, "path": f"/{front}/{back}", "backend": back} for front in FRONTS for back in backends]
    backends["far"] = {"dialect": "openai-chat", "url": url, **common}
    routes.append({"dialect": "openai-chat", "path": "/forward/v1", "backend": "far", "extras": "far"})
    return {"server": {"slow_reader": "10s"}, "backends": backends, "routes": routes}


class Server:
    """The server, and what its backend sends for which mark. `marks` are those of all requests so far."""

    def __init__(self, base: str, answers: dict[bytes, Asked]) -> None:
        self.port = int(base.rpartition(":")[2])
        self.answers = answers
        self.marks: set[bytes] = set()


@asynccontextmanager
async def running() -> AsyncIterator[Server]:
    """The server and the backend in this process."""
    answers: dict[bytes, Asked] = {}

    async def script(exchange: Exchange) -> None:
        found = _MARK.search(exchange.seen.path.encode() + exchange.seen.body)
        asked = answers.get(found[0]) if found else None
        if asked is None:
            await exchange.answer(404, b"{}")
            return
        with suppress(ConnectionError):
            await exchange.raw(asked.answer)
        if asked.end == "close":
            exchange.close()
        elif asked.end == "reset":
            exchange.reset()

    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.plays(script)
        yield Server(base, answers)


async def play(server: Server, each: Case, seen: Counter[str] | None = None) -> str:
    """Return the problem with what came, or an empty string. `seen` counts the answers."""
    server.answers.update({asked.mark: asked for asked in each.asked})
    server.marks.update(server.answers)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**24)
    try:
        async with asyncio.timeout(LIMIT):
            return await _problem(each, server.marks, reader, writer, Counter() if seen is None else seen)
    except TimeoutError:
        return "no answer, and no close either"
    except Invalid as error:
        return str(error)
    finally:
        writer.transport.abort()
        for asked in each.asked:
            del server.answers[asked.mark]


async def _problem(
    each: Case, marks: set[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Counter[str]
) -> str:
    """Raises `Invalid`."""
    data, is_over = b"", False
    if each.pipelined:
        writer.write(b"".join(asked.request for asked in each.asked))
    for asked in each.asked:
        if not each.pipelined and not is_over:
            writer.write(asked.request)
        while (answer := taken(data, asked.method)) is None and not is_over:
            piece = b""
            with suppress(ConnectionError):
                piece = await reader.read(2**20)
            data, is_over = data + piece, not piece
        if answer is None:
            # Cut off, which says that it is incomplete; it holds nothing of others all the same.
            judge_marks(data, asked, marks)
            if data and asked.body is not None and not asked.end:
                raise Invalid(f"a whole answer is cut off after {len(data)} bytes")
            seen["cut off"] += 1
            return ""
        judge(answer, asked, marks)
        seen.update((asked.method, str(answer.status), answer.header("content-type").partition(";")[0]))
        data = answer.rest
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(0.01):
            data += await reader.read(2**20)
    return f"more than the answers: {data[:200]!r}" if data else ""


# ---------------------------------------------------------------------- judging what came


class Invalid(Exception):
    """What came is not what it should be."""


_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d) [\x20-\x7e]*")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t \x21-\x7e\x80-\xff]*)")
_FIELD = re.compile(rb"(data|event|id|retry)(?:: ?(.*))?|:.*", re.DOTALL)


def taken(data: bytes, method: str) -> Answer | None:
    """The first answer in these bytes; None if they are not all of it. Raises `Invalid` for what is no HTTP."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.split(b"\r\n")
    status, headers = _STATUS.fullmatch(first), list[tuple[str, str]]()
    if status is None:
        raise Invalid(f"no status line: {first[:200]!r}")
    for line in lines:
        if (header := _HEADER.fullmatch(line)) is None:
            raise Invalid(f"no header: {line[:200]!r}")
        headers.append((header[1].decode().lower(), header[2].decode("latin-1")))
    answer = Answer(int(status[1]), headers, b"", rest)
    names = Counter(name for name, _ in headers)
    if names["content-length"] + names["transfer-encoding"] > 1:
        raise Invalid("more than one length")
    if method == "HEAD" or answer.status in (204, 304):
        return answer
    if names["transfer-encoding"]:
        return _unchunked(answer)
    if not names["content-length"]:
        raise Invalid("a body without a length")
    length = int(answer.header("content-length"))
    answer.body, answer.rest = rest[:length], rest[length:]
    return answer if len(answer.body) == length else None


def _unchunked(answer: Answer) -> Answer | None:
    rest, out = answer.rest, []
    while True:
        line, found, rest = rest.partition(b"\r\n")
        if not found:
            if len(line) > 10:
                raise Invalid(f"no size of a chunk: {line[:50]!r}")
            return None
        if not re.fullmatch(rb"[0-9a-f]{1,8}", line):
            raise Invalid(f"no size of a chunk: {line[:50]!r}")
        size = int(line, 16)
        if len(rest) < size + 2:
            return None
        if rest[size : size + 2] != b"\r\n":
            raise Invalid("a chunk is longer than its size")
        out.append(rest[:size])
        rest = rest[size + 2 :]
        if not size:
            answer.body, answer.rest = b"".join(out), rest
            return answer


def judge(answer: Answer, asked: Asked, marks: set[bytes]) -> None:
    """Raises `Invalid`. `marks` are those of all requests."""
    if answer.status == 500:
        raise Invalid(f"an internal error: {answer.body[:300]!r}")
    if answer.status == 101:
        raise Invalid("another protocol")
    judge_marks(b"".join(f"{k}: {v}\n".encode("latin-1") for k, v in answer.headers) + answer.body, asked, marks)
    if asked.forwards and answer.status < 300:
        if asked.body is None:
            if not asked.whole:
                raise Invalid(f"a broken answer looks whole: {answer.body[:100]!r}")
        elif answer.body != asked.body:
            raise Invalid(f"{len(answer.body)} bytes of a forwarded answer of {len(asked.body)}")
        return
    kind = answer.header("content-type").partition(";")[0]
    if not answer.body:
        return
    if kind.endswith("json"):
        _read_json(answer.body)
    elif kind == "text/event-stream":
        judge_events(answer.body)


def judge_marks(data: bytes, asked: Asked, marks: set[bytes]) -> None:
    """Raises `Invalid` for words of another request, or of none."""
    others = marks.intersection(_MARK.findall(data)) - {asked.mark}
    if others:
        raise Invalid(f"{others} in the answer to {asked.mark!r}")
    if FORGED.encode() in data:
        raise Invalid("an answer that belongs to no request")


def judge_events(body: bytes) -> None:
    """Raises `Invalid` for what is no event stream of JSON values."""
    if not body.endswith(b"\n\n"):
        raise Invalid(f"an event without its end: {body[-100:]!r}")
    for block in body.split(b"\n\n"):
        data = []
        for line in block.strip(b"\n").split(b"\n") if block.strip(b"\n") else ():
            if b"\r" in line or (found := _FIELD.fullmatch(line)) is None:
                raise Invalid(f"no line of an event stream: {line[:200]!r}")
            if found[1] == b"data":
                data.append(found[2] or b"")
        if data and data != [b"[DONE]"]:
            _read_json(b"\n".join(data))


def _read_json(data: bytes) -> None:
    try:
        orjson.loads(data)
    except ValueError as error:
        raise Invalid(f"no JSON: {error}: {data[:200]!r}") from None


# ---------------------------------------------------------------------- many cases


@dataclass
class Result:
    """`findings`: the names of cases, and what was wrong. `seen` counts answers by what they are."""

    findings: list[tuple[str, str]] = field(default_factory=list)
    played: int = 0
    seen: Counter[str] = field(default_factory=Counter)


async def run(cases: Iterator[Case], result: Result) -> None:
    """Play the cases, some at a time."""
    async with running() as server:

        async def some() -> None:
            for each in cases:
                problem = await play(server, each, result.seen)
                result.played += 1
                if problem:
                    result.findings.append((each.name, problem))

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def main() -> int:
    """Play cases as the command line says; the exit status is 1 where one was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.output")
    parser.add_argument("time", nargs="?", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--case", help="SEED/NUMBER")
    said = parser.parse_args()
    if said.case:
        cases = iter([case(*map(int, said.case.split("/")))])
    else:
        end = time.monotonic() + said.time
        cases = takewhile(lambda each: time.monotonic() < end, (case(said.seed, number) for number in count()))
    result = Result()
    asyncio.run(run(cases, result))
    for name, problem in result.findings:
        print(f"{name}: {problem}\n  again: python -m tests.fuzz.output --case {name}")
    print(", ".join(f"{number} x {what or 'nothing'}" for what, number in result.seen.most_common()))
    print(f"{result.played} cases, {len(result.findings)} findings")
    return int(bool(result.findings))


if __name__ == "__main__":
    sys.exit(main())
