#!/usr/bin/env python3
"""A cheap load client for streamed and plain replies, which also checks what arrives.

    python bench/load.py --url http://127.0.0.1:8080/v1/chat/completions --body '{"model":"m","stream":true,...}' \\
        --dialect openai-chat --concurrency 32 --requests 500 --expect-tokens 100

Each of N workers sends a request, reads the reply to its end and sends the next one (closed loop). Raw sockets
under an asyncio Protocol; a body is only taken apart once it has ended.

Checked on every reply: status 200, the HTTP message is complete, the dialect's terminal marker is there, at least
one text delta came. On one reply in --sample, and the first of all: every event is parsed, and the joined text must
be the text of the mock upstream, in order. --expect-tokens is the mock's `tokens`; --stamped says that its `stamp`
is 1 (then the way of each delta from the mock's write to this client is timed too: both read one monotonic clock).

"__ID__" in the body becomes a fresh 32-digit hex string per request. --follow PATH is for run APIs that answer a
POST with identifiers and stream from a second GET: fields of the POST's JSON reply replace {name} in PATH.

Prints one JSON line; exit status 1 when a reply was wrong or missing. With --warm-up N that many requests go ahead,
with a line of their own, and the run begins at a line on the standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import itertools
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mock_replies import token
from wires import DIALECTS, parse_events

STAMP = re.compile(rb"T(\d{20})")
NO_LIMIT = 10**9


def dechunk(raw: bytes, at: int) -> tuple[bytes, bool]:
    """The body of a chunked message from offset `at`, and whether it has ended."""
    out = []
    while True:
        line = raw.find(b"\r\n", at)
        if line < 0:
            return b"".join(out), False
        size = int(raw[at:line].split(b";")[0], 16)
        if size == 0:
            return b"".join(out), True
        at = line + 2
        out.append(raw[at : at + size])
        if at + size > len(raw):
            return b"".join(out), False
        at += size + 2


class Load:
    """One run: the workers' shared state, the checks and the figures."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        url = urlsplit(args.url)
        self.host, self.port = url.hostname or "127.0.0.1", url.port or 80
        self.stream = args.stream
        self.dialect = DIALECTS[args.dialect]
        self.request = self.make_request(url.path + (f"?{url.query}" if url.query else ""))
        self.has_id = b"__ID__" in self.request
        self.ids = itertools.cycle(range(args.ids)) if args.ids else None
        self.left: int = args.requests
        self.deadline: float | None = None
        self.errors: collections.Counter[str] = collections.Counter()
        self.ttfb: list[float] = []
        self.ttft: list[float] = []
        self.total: list[float] = []
        self.lag: list[float] = []
        self.deltas = self.bytes = self.checked = self.serial = self.alive = 0
        self.kept: list[bytes] = []
        self.expect = "".join(token(i, args.pad) for i in range(args.expect_tokens))
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()

    def make_request(self, path: str) -> bytes:
        args = self.args
        body = Path(args.body[1:]).read_bytes() if args.body.startswith("@") else args.body.encode()
        accept = "text/event-stream" if args.stream else "application/json"
        self.headers = {"host": f"{self.host}:{self.port}", "content-type": "application/json", "accept": accept}
        for header in args.header:
            name, _, value = header.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        length = len(body.replace(b"__ID__", b"0" * 32))
        lines = [f"{args.method} {path or '/'} HTTP/1.1", *(f"{k}: {v}" for k, v in self.headers.items())]
        return "\r\n".join([*lines, f"content-length: {length}", "", ""]).encode() + body

    def next_id(self) -> bytes:
        """What stands for `__ID__` in the next request."""
        return os.urandom(16).hex().encode() if self.ids is None else b"%032x" % next(self.ids)

    def take(self) -> bool:
        """Whether one more request may be sent; counts it."""
        if self.left <= 0 or (self.deadline is not None and time.perf_counter() >= self.deadline):
            return False
        self.left -= 1
        return True

    async def run(self) -> dict[str, Any]:
        args = self.args
        start, cpu = time.perf_counter(), time.process_time()
        if args.duration:
            self.deadline = start + args.duration
        self.alive = min(args.concurrency, self.left)
        for i in range(self.alive):
            self.loop.call_later(i * args.ramp_ms / 1000.0 / self.alive, self.spawn)
        await self.over
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        for body in self.kept:
            self.check(body)
        return self.report(wall, cpu)

    def spawn(self) -> None:
        self.task = self.loop.create_task(self.connect())

    async def connect(self) -> None:
        if not self.take():
            self.worker_over()
            return
        for _ in range(3):
            try:
                await self.loop.create_connection(lambda: Connection(self), self.host, self.port)
                return
            except OSError:
                await asyncio.sleep(0.05)
        self.errors["connect"] += 1
        self.loop.call_later(0.01, self.spawn)

    def worker_over(self) -> None:
        self.alive -= 1
        if self.alive <= 0 and not self.over.done():
            self.over.set_result(None)

    def fail(self, what: str, shown: object = "") -> None:
        """Counts an error; the first of a kind is shown, since all the others look like it."""
        self.errors[what] += 1
        if self.errors[what] == 1 and shown:
            text = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else str(shown)
            print(f"{what}: {text[:600]}", file=sys.stderr)

    def finished(self, reply: Connection, body: bytes, ended: bool) -> None:
        """One reply is over."""
        now = time.perf_counter()
        self.bytes += len(body)
        if reply.status != 200:
            return self.fail(f"status {reply.status}", body)
        if not ended:
            return self.fail("cut short")
        if self.stream:
            found = len(self.dialect.delta.findall(body))
            self.deltas += found
            if not found:
                return self.fail("no text", body)
            if not self.dialect.terminal.search(body, max(0, len(body) - 65536)):
                return self.fail("no terminal marker", body[-600:])
        elif not body:
            return self.fail("empty")
        self.total.append(now - reply.sent)
        self.ttfb.append((reply.first or now) - reply.sent)
        if self.stream and reply.first_delta:
            self.ttft.append(reply.first_delta - reply.sent)
        self.lags(reply.arrivals)
        if self.expect and self.serial % self.args.sample == 0 and len(self.kept) < 200:
            self.kept.append(body)
        self.serial += 1
        return None

    def lags(self, arrivals: list[tuple[int, bytes]]) -> None:
        last = 0  # stamps only rise, so one that does not is a repeat of the text and counts no more
        for at, piece in arrivals:
            for match in STAMP.finditer(piece):
                sent = int(match.group(1))
                if sent > last:
                    last = sent
                    self.lag.append(at - sent)

    def check(self, body: bytes) -> None:
        """The full check of a sampled reply."""
        self.checked += 1
        try:
            fault = self.stream_fault(body) if self.stream else self.plain_fault(body)
        except (ValueError, LookupError, TypeError, AttributeError) as e:  # whatever an odd shape makes of the check
            fault = repr(e)
        if fault:
            self.fail("wrong content", fault)

    def plain_fault(self, body: bytes) -> str:
        return "" if self.expect in json.dumps(json.loads(body)) else "the text is not in the reply"

    def stream_fault(self, body: bytes) -> str:
        if self.dialect.text is None:
            return ""
        events = list(parse_events(body))
        text = "".join(t for t in map(self.dialect.text, events) if t)
        if self.args.stamped:
            stamps = [int(x) for x in re.findall(r"T(\d{20}) ", text)]
            if len(stamps) != self.args.expect_tokens or stamps != sorted(stamps):
                return f"{len(stamps)} stamps, or not in order"
        elif text != self.expect:
            return f"the text differs: {text[:60]!r}"
        return self.dialect.fault(events)

    def report(self, wall: float, cpu: float) -> dict[str, Any]:
        ok = len(self.total)
        out: dict[str, Any] = {
            "ok": ok,
            "bad": sum(self.errors.values()),
            "errors": dict(self.errors),
            "wall_s": round(wall, 4),
            "rps": round(ok / wall, 2),
            "deltas_per_reply": round(self.deltas / ok, 2) if ok and self.stream else None,
            "bytes": self.bytes,
            "fully_checked": self.checked,
            "client_cpu_s": round(cpu, 3),
        }
        times = (("total_ms", self.total, 1e3), ("ttft_ms", self.ttft, 1e3), ("ttfb_ms", self.ttfb, 1e3))
        for name, values, unit in (*times, ("lag_ms", self.lag, 1e-6)):
            if values:
                values.sort()
                shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
                at = {k: values[min(len(values) - 1, int(share * len(values)))] for k, share in shares}
                out[name] = {k: round(v * unit, 3) for k, v in at.items()}
        return out


class Connection(asyncio.Protocol):
    """One worker's connection: one request at a time, kept alive unless told otherwise."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        load = self.load
        request = load.request
        if load.has_id:
            request = request.replace(b"__ID__", load.next_id())
        self.raw: list[bytes] = []
        self.state = "head"  # then "chunked", "length" or "to close", then "over"
        self.status = self.got = 0
        self.first: float | None = None
        self.first_delta: float | None = None
        self.arrivals: list[tuple[int, bytes]] = []
        self.following = False
        self.sent = time.perf_counter()
        self.stop_timer()
        self.timer = load.loop.call_later(load.args.timeout, self.timed_out)
        self.transport.write(request)

    def stop_timer(self) -> None:
        if self.timer:
            self.timer.cancel()
            self.timer = None

    def timed_out(self) -> None:
        self.load.fail("timeout")
        self.state = "over"
        self.transport.abort()
        self.load.spawn()

    def data_received(self, data: bytes) -> None:
        if self.state == "over":
            return
        raw = self.raw
        raw.append(data)
        if self.first is None:
            self.first = time.perf_counter()
        if self.load.args.stamped:
            self.arrivals.append((time.monotonic_ns(), data))
        if self.state == "head":
            if not self.read_head():
                return
            raw = self.raw
        else:
            self.got += len(data)
        if self.first_delta is None and self.load.stream:
            joined = b"".join(raw) if len(raw) < 8 else data
            if self.load.dialect.delta.search(joined):
                self.first_delta = time.perf_counter()
        if self.state == "chunked":
            if b"0\r\n\r\n" in data[-64:] or (len(data) < 5 and len(raw) > 1):
                body, ended = dechunk(b"".join(raw), self.at)
                if ended:
                    self.reply(body, True)
        elif self.state == "length" and self.got >= self.need:
            self.reply(b"".join(raw)[self.at : self.need], True)

    def read_head(self) -> bool:
        whole = b"".join(self.raw)
        end = whole.find(b"\r\n\r\n")
        if end < 0:
            return False
        self.raw = [whole]
        head = whole[:end].lower()
        self.status, self.at, self.got = int(whole[9:12]), end + 4, len(whole)
        self.closes = b"connection: close" in head
        length = re.search(rb"\ncontent-length:\s*(\d+)", head)
        if b"transfer-encoding: chunked" in head:
            self.state = "chunked"
        elif length:
            self.need = self.at + int(length.group(1))
            self.state = "length"
        else:
            self.state = "to close"
        return True

    def reply(self, body: bytes, ended: bool) -> None:
        load = self.load
        if load.args.follow and not self.following and self.status in (200, 201, 202):
            self.following = True
            path = load.args.follow.format(**json.loads(body))
            head = [f"GET {path} HTTP/1.1", *(f"{k}: {v}" for k, v in load.headers.items() if k != "content-type")]
            self.raw, self.state = [], "head"
            self.transport.write("\r\n".join([*head, "", ""]).encode())
            return
        self.state = "over"
        self.stop_timer()
        load.finished(self, body, ended)
        if load.args.new_conn or self.closes or not ended:
            self.transport.close()
            load.spawn()
        elif load.take():
            self.send()
        else:
            self.transport.close()
            load.worker_over()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_timer()
        if self.state == "to close":
            self.closes = True
            self.reply(b"".join(self.raw)[self.at :], True)
        elif self.state != "over":
            self.load.fail("connection lost")
            self.load.spawn()


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("--url", required=True)
    out.add_argument("--method", default="POST")
    out.add_argument("--body", default="{}", help="text, or @file")
    out.add_argument("--header", action="append", default=[])
    out.add_argument("--dialect", default="openai-chat", choices=sorted(DIALECTS))
    out.add_argument("--no-stream", dest="stream", action="store_false")
    out.add_argument("--concurrency", type=int, default=1)
    out.add_argument("--requests", type=int, default=NO_LIMIT)
    out.add_argument("--duration", type=float, default=0)
    out.add_argument("--new-conn", action="store_true", help="one connection per request")
    out.add_argument("--ramp-ms", type=float, default=0, help="spread the workers' starts over this time")
    out.add_argument("--timeout", type=float, default=60)
    out.add_argument("--expect-tokens", type=int, default=0)
    out.add_argument("--pad", type=int, default=0)
    out.add_argument("--stamped", action="store_true")
    out.add_argument("--sample", type=int, default=20)
    out.add_argument("--follow")
    out.add_argument("--ids", type=int, default=0, help="so many ids take turns, the same in every run; 0: always new")
    out.add_argument("--warm-up", type=int, default=0, help="requests before the run; two by each worker")
    return out


async def measure(args: argparse.Namespace, kind: type[Load]) -> dict[str, Any]:
    if args.warm_up:
        few = {"requests": args.warm_up, "concurrency": (args.warm_up + 1) // 2, "duration": 0, "ramp_ms": 0}
        first = await kind(argparse.Namespace(**{**vars(args), **few})).run()
        print(json.dumps(first), flush=True)
        if not first["ok"] or not sys.stdin.readline():
            return first
    return await kind(args).run()


def main(kind: type[Load] = Load) -> None:
    args = parser().parse_args()
    if args.requests == NO_LIMIT and not args.duration:
        args.requests = 100
    try:
        from uvloop import run
    except ImportError:
        from asyncio import run
    result = (run if kind is Load else asyncio.run)(measure(args, kind))
    print(json.dumps(result))
    sys.exit(1 if result["bad"] else 0)


if __name__ == "__main__":
    main()
