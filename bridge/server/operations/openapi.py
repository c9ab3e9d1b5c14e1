"""An OpenAPI description of what a configuration serves over HTTP, from the surfaces of its dialects.

It names every path, method, parameter and header that decides; bodies are described by an example of the dialect's own,
loosely, since each dialect's contract is the page of its protocol and not this.
"""

from __future__ import annotations

from typing import Any

import orjson

from bridge.contract import Endpoint, Operation, QueryParameter, QueuedRunsDialect
from bridge.contract.surface import PIECE, shown_path
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import ErrorCode, Failure, Unsupported
from bridge.server.auth.identity import QUERY_TOKEN

Json = dict[str, Any]

_WORDS: dict[Operation, str] = {
    Operation.RUN: "Run the model or agent; streamed when the body asks for it",
    Operation.START: "Queue a run",
    Operation.SUBSCRIBE: "Read the events of a run, from `Last-Event-ID` on",
    Operation.STATUS: "How a run stands",
    Operation.RETRIEVE: "A kept answer",
    Operation.DELETE: "Forget a kept answer",
    Operation.ITEMS: "What a kept answer was made from",
    Operation.CANCEL: "End a run",
    Operation.STOP: "End the run of a session",
    Operation.COUNT: "Count the tokens of a request",
    Operation.HISTORY: "What was said, by day",
    Operation.ATTACH: "Upload an image",
    Operation.FETCH: "An uploaded image, by its signed URL",
    Operation.SIGN: "A fresh signed URL of an uploaded image",
    Operation.TRANSCRIBE: "Speech to text",
    Operation.TASKS: "Read, list, watch or cancel tasks",
    Operation.TOOLS: "A message of a client of tools, or the end of its session",
    Operation.DESCRIBE: "What the agent is able to do",
    Operation.FORWARD: "Passed on to one backend as it is",
    Operation.MODELS: "The models of this route",
    Operation.HEALTH: "Whether the service is alive",
}
_BODIES = frozenset({Operation.RUN, Operation.START, Operation.COUNT, Operation.STOP, Operation.TOOLS})
_FILES = frozenset({Operation.ATTACH, Operation.TRANSCRIBE})
_MISSING = {
    Operation.SUBSCRIBE: "thread",
    Operation.CANCEL: "run",
    Operation.HISTORY: "thread",
    Operation.STATUS: "task",
    Operation.TASKS: "task",
    Operation.RETRIEVE: "answer",
    Operation.DELETE: "answer",
    Operation.ITEMS: "answer",
    Operation.SIGN: "attachment",
    Operation.FETCH: "attachment",
}
_OWNED = frozenset({Operation.START, Operation.SUBSCRIBE, Operation.CANCEL, Operation.HISTORY, Operation.ATTACH})
_STORED = frozenset({*_OWNED, *_MISSING})
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def describe(bridge: Bridge, version: str) -> Json:
    """The description, as an OpenAPI 3.1 document. `version` is the project's own."""
    server = bridge.config.server
    paths: dict[str, Json] = {}
    speaking: dict[tuple[str, str], Endpoint] = {}
    for route in bridge.routes:
        if route.dialect.over_grpc:
            continue
        for endpoint in route.surface:
            if endpoint.operation in (Operation.SOCKET, Operation.CONNECT):
                continue  # not expressible in OpenAPI
            path = shown_path(route.path.rstrip("/") + endpoint.path) or "/"
            method = endpoint.method.lower()
            known = speaking.get((method, path))
            # Of dialects that share a path, the first one without a header of its own is described.
            if known is None or (known.header is not None and endpoint.header is None):
                speaking[method, path] = endpoint
                keyed = not server.is_open
                paths.setdefault(path, {})[method] = _operation(route, endpoint, f"{method} {path}", keyed=keyed)
    for path, words in ((server.health.live, "Alive"), (server.health.ready, "Ready for requests")):
        paths.setdefault(path, {})["get"] = {
            "operationId": f"get {path}",
            "summary": words,
            "security": [],
            "responses": {"200": {"description": "yes"}, "503": {"description": "not now"}},
        }
    if server.metrics is not None:
        paths[server.metrics.path] = {
            "get": {
                "operationId": f"get {server.metrics.path}",
                "summary": "Metrics for Prometheus",
                **({"security": []} if server.metrics.public and not server.is_open else {}),
                "responses": {"200": {"description": "Prometheus's text format"}},
            }
        }
    out: Json = {
        "openapi": "3.1.0",
        "info": {"title": "dialect-bridge", "version": version},
        "paths": paths,
    }
    if not server.is_open:
        out["components"] = {"securitySchemes": _KEYS}
        out["security"] = [{name: []} for name in _KEYS]
    return out


def _operation(route: Route, endpoint: Endpoint, name: str, *, keyed: bool) -> Json:
    operation = endpoint.operation
    out: Json = {
        "operationId": name,
        "tags": [route.dialect.name],
        "summary": _WORDS.get(operation, str(operation)),
        "responses": _responses(route, endpoint, keyed=keyed),
    }

    def text(name: str, place: str, required: bool = False, **schema: int) -> Json:
        return {"name": name, "in": place, "required": required, "schema": {"type": "string", **schema}}

    parameters = [text(piece, "path", True, minLength=1) for piece in PIECE.findall(endpoint.path)]
    if endpoint.header is not None:
        parameters.append(text(endpoint.header, "header", True))
    if operation is Operation.SUBSCRIBE:
        parameters.append(text("Last-Event-ID", "header"))
    parameters += [_query(parameter) for parameter in endpoint.query]
    if endpoint.query_token is not None and getattr(route.options, endpoint.query_token, False):
        parameters.append(text(QUERY_TOKEN, "query"))
    if endpoint.query_key:
        parameters.append(text(endpoint.query_key, "query"))
    if parameters:
        out["parameters"] = parameters
    if operation in _BODIES | _FILES and endpoint.method != "DELETE":
        out["requestBody"] = _body(route, operation)
    if keyed and endpoint.public:
        out["security"] = []
    return out


def _query(parameter: QueryParameter) -> Json:
    schema: Json = {"type": parameter.type}
    for word in ("minimum", "maximum", "default", "format"):
        if (value := getattr(parameter, word)) is not None:
            schema[word] = value
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    description = parameter.description
    return {
        "name": parameter.name, "in": "query", "required": parameter.required, "description": description,
        "schema": schema,
    }  # fmt: skip


def _responses(route: Route, endpoint: Endpoint, *, keyed: bool) -> Json:
    """The statuses of an endpoint: its success, and the failures that it may have by the statuses of its dialect."""
    operation = endpoint.operation
    out: Json = {str(endpoint.success): {"description": _WORDS.get(operation, str(operation))}}
    if operation is Operation.SUBSCRIBE:
        out["204"] = {"description": "The client has read the end of the run"}
    words: dict[ErrorCode, str] = {}
    if endpoint.method != "GET" or endpoint.query or "{" in endpoint.path:
        words[ErrorCode.INVALID_REQUEST] = "The request is wrong"
    if keyed and not endpoint.public:
        words[ErrorCode.UNAUTHORIZED] = "No key, or an unknown one"
        words[ErrorCode.FORBIDDEN] = "The key is not for this route"
    if operation in _OWNED or operation is Operation.FETCH:
        words[ErrorCode.FORBIDDEN] = "It belongs to somebody else, or the URL has expired"
    if operation in _MISSING:
        words[ErrorCode.NOT_FOUND] = f"There is no such {_MISSING[operation]}"
    if operation is Operation.START:
        words[ErrorCode.CONFLICT] = "The id belongs to another run"
    if operation in _BODIES | _FILES:
        words[ErrorCode.TOO_LARGE] = "The body is larger than its limit"
    if not endpoint.public and operation is not Operation.HEALTH:
        words[ErrorCode.RATE_LIMITED] = "Over a limit of this caller"
        words[ErrorCode.OVERLOADED] = "No slot is free, or the server stops"
    if operation in _STORED:
        words[ErrorCode.STORE_UNAVAILABLE] = "A store does not answer"
    for code, description in words.items():
        wire = route.dialect.encode_error(Failure(code, description))
        kind = wire.headers.get("content-type", "application/json").partition(";")[0]
        out.setdefault(str(wire.status), {"description": description, "content": {kind: {}}})
    if operation is Operation.SUBSCRIBE:
        out["410"] = {"description": "The events after this id are not stored any more"}
    out["default"] = {"description": "An error in the shape of the dialect"}
    return out


def _body(route: Route, operation: Operation) -> Json:
    if operation in _FILES:
        assert isinstance(route.dialect, QueuedRunsDialect)
        needed = {
            Operation.ATTACH: [route.dialect.thread_field, route.dialect.file_field],
            Operation.TRANSCRIBE: [route.dialect.audio_field],
        }[operation]
        file = {"type": "string", "contentMediaType": "application/octet-stream"}
        fields = {name: {"type": "string"} if name == route.dialect.thread_field else file for name in needed}
        schema: Json = {"type": "object", "properties": fields, "required": needed}
        return {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    content: Json = {"schema": {"type": "object"}}
    if operation in (Operation.RUN, Operation.START, Operation.COUNT, Operation.TOOLS):
        try:
            example = orjson.loads(route.dialect.example_request("Hello").body)
        except Unsupported:
            pass
        else:
            content = {"schema": loosely(example), "example": example}
    return {"required": operation is not Operation.STOP, "content": {"application/json": content}}


def loosely(value: Any) -> Json:
    """A JSON Schema that holds for a value and for others of the same types, with the same fields and more."""
    match value:
        case bool():
            return {"type": "boolean"}
        case int() | float():
            return {"type": "number"}
        case str():
            return {"type": "string", "examples": [value]}
        case list():
            return {"type": "array", "items": loosely(value[0])} if value else {"type": "array"}
        case dict():
            return {
                "type": "object",
                "properties": {name: loosely(field) for name, field in value.items()},
                "required": list(value),
            }
        case _:
            return {}
