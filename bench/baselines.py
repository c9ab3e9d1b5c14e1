#!/usr/bin/env python3
"""Two baselines for a Python proxy on aiohttp: what the framework itself costs.

    python bench/baselines.py raw       --upstream http://127.0.0.1:29100 --port 29201
    python bench/baselines.py translate --upstream http://127.0.0.1:29100 --port 29202

raw        passes request and reply on byte for byte, whatever the path.
translate  parses every event (orjson) and writes it anew, for each pair of frontend and backend:
           POST /chat/v1/chat/completions, /agent/v1/chat/completions, /chat/process, /agent/process
           (the first part names the backend's dialect, the rest is the frontend's). It is the least work that a
           translator with one parsed event per delta can do: a floor, not a product. It knows text only.

Neither has routes, checks, retries, logs or metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
from aiohttp import web

HOP = {"host", "content-length", "transfer-encoding", "connection", "keep-alive"}
SESSION: web.AppKey[aiohttp.ClientSession] = web.AppKey("session", aiohttp.ClientSession)
UPSTREAM: web.AppKey[str] = web.AppKey("upstream", str)


async def session(app: web.Application) -> AsyncIterator[None]:
    app[SESSION] = aiohttp.ClientSession(
        base_url=app[UPSTREAM],
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
    )
    yield
    await app[SESSION].close()


async def health(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def raw(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
    async with request.app[SESSION].request(request.method, request.path_qs, data=body, headers=headers) as up:
        kind = {"content-type": up.headers.get("content-type", "")}
        if up.content_length is not None:
            return web.Response(status=up.status, body=await up.read(), headers=kind)
        out = web.StreamResponse(status=up.status, headers=kind)
        await out.prepare(request)
        async for piece in up.content.iter_any():
            await out.write(piece)
        await out.write_eof()
        return out


# ---- readers: the text of one parsed upstream event, and the request that asks for it


class ReadChat:
    path = "/v1/chat/completions"

    @staticmethod
    def request(text: str) -> dict[str, Any]:
        return {"model": "bench-model", "stream": True, "messages": [{"role": "user", "content": text}]}

    @staticmethod
    def text(event: dict[str, Any]) -> str | None:
        return event["choices"][0]["delta"].get("content") if event["choices"] else None


class ReadAgentscope:
    path = "/process"

    @staticmethod
    def request(text: str) -> dict[str, Any]:
        part = {"type": "text", "text": text}
        return {"stream": True, "input": [{"role": "user", "type": "message", "content": [part]}]}

    @staticmethod
    def text(event: dict[str, Any]) -> str | None:
        return event["text"] if event["object"] == "content" and event["delta"] else None


# ---- writers: what a frontend is sent


def sse(event: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(event) + b"\n\n"


class WriteChat:
    def __init__(self) -> None:
        self.same = {"id": "chatcmpl-b", "object": "chat.completion.chunk", "created": 1700000000, "model": "bench"}

    @staticmethod
    def asked(body: dict[str, Any]) -> str:
        return body["messages"][-1]["content"]

    def chunk(self, delta: dict[str, str], finish: str | None = None) -> bytes:
        return sse({**self.same, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def start(self) -> bytes:
        return self.chunk({"role": "assistant", "content": ""})

    def delta(self, text: str) -> bytes:
        return self.chunk({"content": text})

    def end(self) -> bytes:
        return self.chunk({}, "stop") + b"data: [DONE]\n\n"


class WriteAgentscope:
    def __init__(self) -> None:
        self.number = 0
        self.parts: list[str] = []

    @staticmethod
    def asked(body: dict[str, Any]) -> str:
        return body["input"][-1]["content"][0]["text"]

    def event(self, kind: str, status: str, **fields: Any) -> bytes:
        event = {"sequence_number": self.number, "object": kind, "status": status, "error": None, **fields}
        self.number += 1
        return sse(event)

    def response(self, status: str, output: list[Any] | None = None) -> bytes:
        done = 1700000001 if output else None
        fields = {"id": "response_b", "created_at": 1700000000, "completed_at": done, "output": output}
        return self.event("response", status, **fields, usage=None, session_id="s")

    def message(self, content: list[Any] | None = None) -> dict[str, Any]:
        fields = {"id": "msg_b", "type": "message", "role": "assistant", "content": content}
        return {**fields, "code": None, "message": None, "usage": None, "metadata": {}}

    def start(self) -> bytes:
        opened = self.response("created") + self.response("in_progress")
        return opened + self.event("message", "in_progress", **self.message())

    def delta(self, text: str) -> bytes:
        self.parts.append(text)
        return self.event("content", "in_progress", type="text", index=0, delta=True, msg_id="msg_b", text=text)

    def end(self) -> bytes:
        part = {"type": "text", "index": 0, "delta": None, "msg_id": "msg_b", "text": "".join(self.parts)}
        whole = {"object": "content", "status": "completed", "error": None, **part}
        message = self.message([whole])
        closed = self.event("content", "completed", **part) + self.event("message", "completed", **message)
        output = [{"object": "message", "status": "completed", "error": None, **message}]
        return closed + self.response("completed", output)


READERS = {"chat": ReadChat, "agent": ReadAgentscope}
WRITERS = {"v1/chat/completions": WriteChat, "process": WriteAgentscope}


async def translate(request: web.Request) -> web.StreamResponse:
    _, back, front = request.path.split("/", 2)
    reader, writer = READERS[back], WRITERS[front]()
    body = orjson.dumps(reader.request(writer.asked(orjson.loads(await request.read()))))
    headers = {"content-type": "application/json"}
    async with request.app[SESSION].post(reader.path, data=body, headers=headers) as up:
        out = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await out.prepare(request)
        await out.write(writer.start())
        rest = b""
        async for piece in up.content.iter_any():
            blocks = (rest + piece).split(b"\n\n") if rest else piece.split(b"\n\n")
            rest = blocks.pop()
            made = []
            for block in blocks:
                if block != b"data: [DONE]":
                    text = reader.text(orjson.loads(block[6:]))
                    if text:
                        made.append(writer.delta(text))
            if made:
                await out.write(b"".join(made))
        await out.write(writer.end())
        await out.write_eof()
        return out


def more(count: int) -> list[int]:
    """That many further processes; in each of them none."""
    others: list[int] = []
    for _ in range(count):
        if not (pid := os.fork()):
            return []
        others.append(pid)
    return others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["raw", "translate"])
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--processes", type=int, default=1, help="that many share the port")
    args = parser.parse_args()
    others = more(args.processes - 1)
    try:
        import uvloop

        loop = uvloop.new_event_loop()
    except ImportError:
        loop = asyncio.new_event_loop()
    app = web.Application(client_max_size=64 << 20)
    app[UPSTREAM] = args.upstream
    app.cleanup_ctx.append(session)
    app.router.add_get("/healthz", health)
    if args.kind == "raw":
        app.router.add_route("*", "/{tail:.*}", raw)
    else:
        for back in READERS:
            for front in WRITERS:
                app.router.add_post(f"/{back}/{front}", translate)
    try:
        web.run_app(
            app,
            host="127.0.0.1",
            port=args.port,
            loop=loop,
            access_log=None,
            print=None,
            backlog=4096,
            reuse_port=args.processes > 1,
        )
    finally:
        for pid in others:
            os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    main()
