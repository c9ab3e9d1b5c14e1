"""Embeddings of texts: `/api/embed`, and `/api/embeddings` of older clients, for one text."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context, WireRequest, WireResponse, json_request, json_response
from bridge.contract.optional.embeddings import Embeddings, EmbeddingsRequest, vectors_in
from bridge.dialects.ollama.wire import plain_name
from bridge.errors import BackendError, ErrorCode
from bridge.model.jsontext import dumps, read_body, read_json
from bridge.toolkit import Node
from bridge.toolkit.check import model_in, wrong
from bridge.toolkit.counts import counts_in

_OLD = "/api/embeddings"
_SECOND = 1_000_000_000


def decode_request(wire: WireRequest, context: Context) -> EmbeddingsRequest:
    """Return the request of a client. Raises `RequestError`."""
    body = Node(read_body(wire.body))
    named = model_in(body, context.model) or ""
    is_old = wire.path.rstrip("/").endswith(_OLD)
    inputs = [body.string("prompt") or ""] if is_old else body.strings("input")
    if inputs is None:
        wrong("input", "a string or a list of strings", None, missing="input" not in body.value)
    dimensions = body.integer("dimensions", least=1)
    return EmbeddingsRequest(plain_name(named), inputs, dimensions, sent_model=named, wants_one=is_old)


def encode(asked: EmbeddingsRequest, found: Embeddings, seconds: float) -> WireResponse:
    """Return the vectors for a client."""
    if asked.wants_one:
        return json_response(dumps({"embedding": found.vectors[0] if found.vectors else []}))
    out: dict[str, Any] = {
        "model": asked.sent_model,
        "embeddings": found.vectors,
        "total_duration": max(1, round(seconds * _SECOND)),
        "load_duration": 0,
    }
    return json_response(dumps({**out, "prompt_eval_count": found.tokens} if found.tokens else out))


def encode_request(asked: EmbeddingsRequest, model: str) -> WireRequest:
    """Return the request for a backend."""
    body: dict[str, Any] = {"model": model, "input": asked.inputs}
    if asked.dimensions is not None:
        body["dimensions"] = asked.dimensions
    return json_request("/api/embed", dumps(body))


def decode(wire: WireResponse) -> Embeddings:
    """Return a backend's vectors. Raises `BackendError` for anything else."""
    value = read_json(wire.body)
    vectors = vectors_in(value.get("embeddings")) if isinstance(value, dict) else None
    if vectors is None:
        raise BackendError("The backend's answer has no embeddings.", code=ErrorCode.BACKEND_PROTOCOL)
    return Embeddings(vectors, counts_in(value).get("input"))
