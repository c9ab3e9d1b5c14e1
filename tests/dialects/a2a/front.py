"""What the tests of the serving side share: calls of clients, and answers to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bridge.contract import Context, Frame, WireRequest, WireResponse
from bridge.dialects.a2a import dialect
from bridge.dialects.a2a.options import FrontOptions
from bridge.errors import BridgeError
from bridge.model import Event, Request
from bridge.translation.framing.sse import Splitter
from tests.server.harness import Reply, ask

NEW = {"a2a-version": "1.0", "content-type": "application/json"}
OLD = {"content-type": "application/json"}
DEMO: dict[str, Any] = {"backends": {"it": {"dialect": "demo"}}}
ADK = "https://google.github.io/adk-docs/a2a/a2a-extension/"


def route(path: str = "/a2a", **fields: Any) -> dict[str, Any]:
    return {"dialect": "a2a", "path": path, "backend": "it", **fields}


def stores(folder: Path) -> dict[str, Any]:
    return {"stores": {"history": f"sqlite:///{folder}/history.db", "runs": f"sqlite:///{folder}/runs.db"}}


def message(*parts: Any, **fields: Any) -> dict[str, Any]:
    said = [{"text": part} if isinstance(part, str) else part for part in parts or ("Hello",)]
    return {"messageId": "m-1", "role": "ROLE_USER", "parts": said, **fields}


def call(method: str, params: Any = None, **fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}, **fields}).encode()


def send(*parts: Any, method: str = "SendMessage", configuration: Any = None, **fields: Any) -> bytes:
    params = {"message": message(*parts, **fields)}
    return call(method, {**params, "configuration": configuration} if configuration is not None else params)


# ---------------------------------------------------------------------- the codec alone


def front(request: Request | None = None, **options: Any) -> Context:
    return Context("run1", created_at=1700000000.0, options=FrontOptions(**options), request=request)


def read(body: bytes, headers: dict[str, str] = NEW, path: str = "", **options: Any) -> Request:
    """The request that a client means."""
    return dialect.decode_request(WireRequest("POST", path, headers, body=body), front(**options))


def refusal(body: bytes, headers: dict[str, str] = NEW, path: str = "", **options: Any) -> tuple[WireResponse, Any]:
    """The response to a request that is refused, and its error."""
    context = front(**options)
    wire = WireRequest("POST", path, headers, body=body)
    try:
        dialect.decode_call(wire, context)
        dialect.decode_request(wire, context)
    except BridgeError as error:
        failure = error.failure
        failure.details = {**failure.details, **context.error_details}
        response = dialect.encode_error(failure)
        return response, json.loads(response.body)
    raise AssertionError("expected a refusal")


def told(events: list[Event], request: Request | None = None, **options: Any) -> list[dict[str, Any]]:
    """What a client of the stream gets, without its envelope."""
    encoder = dialect.encoder(front(request or read(send()), **options))
    frames = encoder.encode(events)
    return [unwrapped(json.loads(frame)) for frame in frames if isinstance(frame, bytes)]


def unwrapped(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = value["result"]
    return found


def whole(events: list[Event], request: Request | None = None, **options: Any) -> dict[str, Any]:
    """The task that a client gets at once."""
    response = dialect.assemble(events, front(request or read(send()), **options))
    task: dict[str, Any] = json.loads(response.body)["result"]["task"]
    return task


def artifacts(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["artifactUpdate"] for each in said if "artifactUpdate" in each]


def states(said: list[dict[str, Any]]) -> list[str]:
    found = [each.get("task") or each.get("statusUpdate") for each in said]
    return [each["status"]["state"].removeprefix("TASK_STATE_") for each in found if each]


# ---------------------------------------------------------------------- over HTTP


async def rpc(url: str, method: str, params: Any = None, headers: dict[str, str] = NEW) -> Any:
    """The whole answer to a call."""
    return (await ask("POST", url, call(method, params), headers)).json


async def say(url: str, *parts: Any, headers: dict[str, str] = NEW, **fields: Any) -> Any:
    """The task that a message makes."""
    reply = await ask("POST", url, send(*parts, **fields), headers)
    return reply.json["result"]["task"]


async def stream(url: str, body: bytes, headers: dict[str, str] = NEW) -> list[dict[str, Any]]:
    reply = await ask("POST", url, body, headers)
    assert reply.headers["content-type"].startswith("text/event-stream"), reply.body
    return list(map(unwrapped, events_in(reply)))


def events_in(reply: Reply) -> list[dict[str, Any]]:
    splitter = Splitter()
    frames = [*splitter.feed(reply.body), *splitter.close()]
    data = [frame.data if isinstance(frame, Frame) else frame for frame in frames]
    return [json.loads(each) for each in data if each]
