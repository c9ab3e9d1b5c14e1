#!/usr/bin/env python3
"""What it costs to read, check and translate one request body, by size.

python request.py [rounds]
"""

from __future__ import annotations

import base64
import os
import sys
from typing import Annotated, Any, Literal

import orjson
from common import run
from pydantic import BaseModel, ConfigDict, Field

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9


class Text(BaseModel):
    type: Literal["text"]
    text: str


class Url(BaseModel):
    url: str
    detail: str | None = None


class Image(BaseModel):
    type: Literal["image_url"]
    image_url: Url


class Message(BaseModel):
    model_config = ConfigDict(extra="allow")
    role: Literal["system", "user", "assistant", "tool", "developer"]
    content: str | list[Annotated[Text | Image, Field(discriminator="type")]] | None = None


class Request(BaseModel):
    model_config = ConfigDict(extra="allow")
    model: str
    messages: list[Message]
    stream: bool = False
    temperature: float | None = None


class Envelope(BaseModel):
    """Checks the top level only; messages stay plain and are checked while they are translated."""

    model_config = ConfigDict(extra="allow")
    model: str
    messages: list[dict[str, Any]]
    stream: bool = False
    temperature: float | None = None


def body(kind: str) -> bytes:
    msgs: list[dict] = [{"role": "system", "content": "You are a helpful assistant."}]
    if kind == "1 KB":
        msgs.append({"role": "user", "content": "Hello there, please translate this sentence for me. " * 16})
    elif kind == "100 KB":
        for i in range(115):
            msgs.append({"role": "user", "content": f"question {i} " + "lorem ipsum dolor sit amet " * 15})
            msgs.append({"role": "assistant", "content": f'answer\n"{i}" ' + "consectetur adipiscing elit sed " * 13})
    else:
        url = "data:image/png;base64," + base64.b64encode(os.urandom(3_750_000)).decode()
        msgs.append(
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what is this?"},
                    {"type": "image_url", "image_url": {"url": url}},
                ],
            }
        )
    return orjson.dumps({"model": "m", "stream": True, "temperature": 0.7, "messages": msgs})


ROLES = {"system", "user", "assistant", "tool", "developer"}


def check(raw: bytes) -> dict:
    d = orjson.loads(raw)
    if type(d) is not dict or type(d.get("model")) is not str:
        raise ValueError("model")
    for m in d["messages"]:
        if m.get("role") not in ROLES:
            raise ValueError("role")
        c = m.get("content")
        if c is not None and type(c) is not str:
            for part in c:
                if type(part.get("type")) is not str:
                    raise ValueError("part")
    return d


def turn(role: str, content) -> dict:
    parts = [{"type": "text", "text": content}] if type(content) is str else content
    return {"type": "message", "role": role, "content": parts}


def by_hand(raw: bytes) -> bytes:
    return orjson.dumps({"input": [turn(m["role"], m["content"]) for m in check(raw)["messages"]], "stream": True})


def by_model(raw: bytes) -> bytes:
    r = Request.model_validate_json(raw)
    return orjson.dumps(
        {
            "input": [
                turn(m.role, m.content if isinstance(m.content, str) else [p.model_dump() for p in m.content or ()])
                for m in r.messages
            ],
            "stream": True,
        }
    )


for kind, times in (("1 KB", 1000), ("100 KB", 30), ("5 MB", 3)):
    raw = body(kind)
    print(f"\n{kind}: {len(raw)} bytes, ns per request")

    def rep(f, raw=raw, times=times):
        def go():
            for _ in range(times):
                f(raw)

        return go

    run(
        [
            ("orjson.loads", rep(orjson.loads)),
            ("orjson.loads + checks by hand", rep(check)),
            ("orjson.loads + pydantic, top level only", rep(lambda b: Envelope.model_validate(orjson.loads(b)))),
            ("pydantic, all messages and parts", rep(Request.model_validate_json)),
            ("whole: by hand, orjson both ways", rep(by_hand)),
            ("whole: pydantic in, orjson out", rep(by_model)),
        ],
        per=times,
        rounds=ROUNDS,
    )
