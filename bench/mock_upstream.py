#!/usr/bin/env python3
"""A very cheap mock of a backend, in all dialects from the same deltas.

    python bench/mock_upstream.py --port 29100 --tokens 100 --delay-ms 0

POST .../chat/completions   OpenAI chat; streams when the body holds "stream": true
POST .../process            an AgentScope application; always streams
/DIALECT/...                the same for any other (mock_wires.py); in the run API a POST and the GET of its events

Replies are byte strings prepared in advance (mock_replies.py), written straight to the socket by an asyncio
Protocol (on uvloop when it is installed), so that the mock is never the slowest part of a measurement. It reads
just enough HTTP for the clients of this folder and for aiohttp and nginx.

With --replay FILE every POST, whatever its path, is answered with the events of FILE (blank-line separated) at the
same pace: that stands in for a backend of any other dialect.

With --grpc-port it is an AIP agent over gRPC, too (mock_agent.py).

Settings can be changed while it runs:  GET /__set?tokens=20&delay_ms=50
Counters:                               GET /__stats      (GET /__reset zeroes)
Health:                                 GET /health
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from mock_replies import (
    CREATED,
    DEFAULTS,
    MODEL,
    STAMP_HOLE,
    Plan,
    Settings,
    agentscope_stream,
    chat_body,
    chat_stream,
    http_json,
    http_json_bytes,
)
from mock_wires import OWN_ID, WIRES, Wires

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
STATS = {"requests": 0, "streams": 0, "finished": 0, "dropped": 0, "failed": 0, "writes": 0}
STATS |= {"open": 0, "max_open": 0, "connections": 0}
USAGE = (b'"include_usage":true', b'"include_usage": true')
STREAM = (b'"stream":true', b'"stream": true')


class Script:
    """The settings in force and the bytes made from them."""

    def __init__(self, replay: bytes | None, settings: dict[str, Any]) -> None:
        self.settings = Settings()
        self.recorded: list[bytes] | None = None
        if replay is not None:
            blocks = replay.replace(b"\r\n", b"\n").split(b"\n\n")
            self.recorded = [b + b"\n\n" for b in blocks if b.strip()]
        self.update(settings)

    def update(self, changes: dict[str, Any]) -> None:
        s = self.settings
        s.update(changes)
        self.chat, self.chat_usage = chat_stream(s, False), chat_stream(s, True)
        self.agentscope = agentscope_stream(s)
        self.replay = s.plan(self.recorded) if self.recorded else None
        self.plain = http_json_bytes(200, chat_body(s))
        self.wires = Wires(s)
        error = {"message": "scripted failure", "type": "server_error", "param": None, "code": None}
        self.failure = http_json(s["fail_status"], {"error": error})
        self.delay, self.first = s["delay_ms"] / 1000.0, s["first_ms"] / 1000.0
        self.stamp, self.cut, self.fail_every = s["stamp"], s["cut_after"], s["fail_every"]

    def answer(self, path: bytes, body: bytes) -> Plan | bytes | None:
        """A stream, a whole reply, or None when nothing is served at this path."""
        if self.replay is not None:
            return self.replay
        path = path.partition(b"?")[0]
        streamed = any(mark in body for mark in STREAM)
        if (dialect := path.split(b"/", 2)[1].decode()) in WIRES:
            return queued(body) if path.endswith(b"/runs") else self.wires.answer(dialect, streamed)
        if path.endswith(b"/process"):
            return self.agentscope
        if not path.endswith(b"/chat/completions"):
            return None
        if not streamed:
            return self.plain
        return self.chat_usage if any(mark in body for mark in USAGE) else self.chat


def queued(body: bytes) -> bytes:
    """The run API's answer to a POST; the events follow by a GET that names the run again."""
    asked = json.loads(body)
    ids = {name: asked[name] for name in ("threadId", "runId")}
    if {len(i) for i in ids.values()} != {len(OWN_ID)}:
        return http_json(422, {"error": {"message": f"ids of {len(OWN_ID)} characters are needed, got {ids}"}})
    return http_json(202, {"taskId": "task_bench", **ids, "created": True})


class Connection(asyncio.Protocol):
    def __init__(self, script: Script, loop: asyncio.AbstractEventLoop) -> None:
        self.script, self.loop = script, loop
        self.buffer = b""
        self.pieces: list[bytes] = []
        self.missing = 0  # bytes of a body that are still to come
        self.names: dict[bytes, bytes] = {}
        self.busy = self.paused = self.waiting = False
        self.timer: asyncio.Handle | None = None
        self.plan: Plan | None = None
        self.stamps: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        STATS["connections"] += 1

    def data_received(self, data: bytes) -> None:
        if self.missing > 0:  # joining a large body at each read would take longer than the target does
            self.pieces.append(data)
            self.missing -= len(data)
            if self.missing > 0:
                return
            data = b"".join(self.pieces)
            self.pieces = []
        self.buffer += data
        if not self.busy:
            self.parse()

    def parse(self) -> None:
        """Takes one whole request from the buffer, if there is one."""
        buffer = self.buffer
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head, at = buffer[:end].lower(), end + 4
        found = head.find(b"content-length:")
        if found >= 0:
            stop = head.find(b"\r\n", found)
            size = int(head[found + 15 : stop if stop > 0 else None])
            if len(buffer) < at + size:
                if b"expect: 100" in head and len(buffer) == at:
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                self.missing = at + size - len(buffer)
                return
            body, self.buffer = buffer[at : at + size], buffer[at + size :]
        elif b"transfer-encoding: chunked" in head:
            stop = buffer.find(b"0\r\n\r\n", at)
            if stop < 0:
                return
            body, self.buffer = buffer[at:stop], buffer[stop + 5 :]
        else:
            body, self.buffer = b"", buffer[at:]
        method, path, _ = buffer[: buffer.find(b"\r\n")].split(b" ", 2)
        script = self.script
        if method == b"POST" and (answer := script.answer(path, body)) is not None:
            self.reply(answer)
        elif path.startswith(b"/agent-runs/"):
            # /agent-runs/runs/THREAD/events?runId=RUN
            thread, run = path.split(b"/")[3], path.partition(b"runId=")[2][: len(OWN_ID)]
            self.names = {b'"threadId":"%b"' % OWN_ID: b'"threadId":"%b"' % thread}
            self.names[b'"runId":"%b"' % OWN_ID] = b'"runId":"%b"' % run
            self.reply(script.wires.answer("agent-runs", True))
        else:
            self.control(path)

    def reply(self, answer: Plan | bytes) -> None:
        script = self.script
        STATS["requests"] += 1
        if script.fail_every and STATS["requests"] % script.fail_every == 0:
            STATS["failed"] += 1
            self.whole(script.failure)
        elif isinstance(answer, bytes):
            if script.first:
                self.busy = True
                self.timer = self.loop.call_later(script.first, self.whole, answer)
            else:
                self.whole(answer)
        else:
            STATS["streams"] += 1
            STATS["open"] += 1
            STATS["max_open"] = max(STATS["max_open"], STATS["open"])
            self.busy, self.plan, self.next, self.stamps = True, answer, 0, []
            self.transport.write(HEAD)
            self.due = self.loop.time() + script.first
            if script.first:
                self.timer = self.loop.call_at(self.due, self.step)
            else:
                self.step()

    def control(self, path: bytes) -> None:
        """The GETs: settings, counters, health, and the list of models that some clients ask for first."""
        status, out = 200, dict[str, Any]()
        if path.startswith(b"/__set"):
            try:
                self.script.update(dict(parse_qsl(path.partition(b"?")[2].decode())))
                out = self.script.settings.values
            except (KeyError, ValueError) as e:
                status, out = 400, {"error": repr(e)}
        elif path.startswith((b"/__stats", b"/__reset")):
            if path.startswith(b"/__reset"):
                STATS.update({k: 0 for k in STATS if k != "open"})
            out = STATS
        elif path.endswith(b"/models"):
            model = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "bench"}
            out = {"object": "list", "data": [model]}
        elif path.startswith(b"/health"):
            out = {"status": "ok"}
        else:
            status, out = 404, {"error": {"message": "no such path"}}
        self.whole(http_json(status, out))

    def whole(self, data: bytes) -> None:
        self.timer = None
        self.transport.write(data)
        self.again()

    def again(self) -> None:
        self.busy = False
        if self.buffer:
            self.parse()

    def stamped(self, data: bytes, plan: Plan) -> bytes:
        """Send times into the holes; a repeat of the text shows the times that its deltas had."""
        holes = data.count(STAMP_HOLE)
        if holes:
            now = b"T%020d" % time.monotonic_ns()
            data = data.replace(STAMP_HOLE, now)
            self.stamps += [now + b" "] * holes
        return data.replace(plan.repeat, b"".join(self.stamps)) if plan.repeat else data

    def step(self) -> None:
        """One write of the stream, and the appointment for the next."""
        self.timer = None
        plan, script = self.plan, self.script
        if plan is None:
            return
        if self.paused:  # the reader is behind: resume_writing goes on
            self.waiting = True
            return
        data = plan.writes[self.next]
        if plan.named:
            for hole, name in self.names.items():
                data = data.replace(hole, name)
        self.transport.write(self.stamped(data, plan) if script.stamp else data)
        self.next += 1
        if self.next == len(plan.writes):
            STATS["open"] -= 1
            STATS["finished"] += 1
            STATS["writes"] += self.next
            self.plan = None
            if script.cut:
                self.transport.close()
            else:
                self.again()
        elif script.delay:
            self.due += script.delay
            self.timer = self.loop.call_at(self.due, self.step)
        else:
            self.timer = self.loop.call_soon(self.step)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.waiting:
            self.waiting = False
            self.due = self.loop.time()
            self.step()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer:
            self.timer.cancel()
        if self.plan is not None:
            STATS["open"] -= 1
            STATS["dropped"] += 1
            self.plan = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=29100)
    parser.add_argument("--grpc-port", type=int, help="also an AIP agent, at this port (mock_agent.py)")
    parser.add_argument("--replay", type=Path, help="file of SSE events to send instead")
    for name, value in DEFAULTS.items():
        parser.add_argument("--" + name.replace("_", "-"), dest=name, type=type(value), default=value)
    args = parser.parse_args()
    try:
        import uvloop

        loop = uvloop.new_event_loop()
    except ImportError:
        loop = asyncio.new_event_loop()
    script = Script(args.replay.read_bytes() if args.replay else None, {k: getattr(args, k) for k in DEFAULTS})
    serving = loop.create_server(lambda: Connection(script, loop), args.host, args.port, backlog=4096)
    loop.run_until_complete(serving)
    if args.grpc_port:
        import mock_agent

        agent = loop.run_until_complete(mock_agent.serve(script.settings, args.host, args.grpc_port))
        print(f"mock agent on {args.host}:{args.grpc_port}: {agent}", flush=True)
    print(f"mock upstream on http://{args.host}:{args.port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        loop.run_forever()


if __name__ == "__main__":
    main()
