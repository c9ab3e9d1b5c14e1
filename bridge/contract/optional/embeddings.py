"""The optional contract of dialects that embed texts: as the front for `EMBED` of a surface, as the back always."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bridge.contract.context import Context
from bridge.contract.dialect import Dialect
from bridge.contract.wire import WireRequest, WireResponse
from bridge.model.jsontext import is_number


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """Texts to be embedded. `sent_model` is the model as the client named it; `wants_one`: it asked for one vector."""

    model: str
    inputs: Sequence[str]
    dimensions: int | None = None
    sent_model: str = ""
    wants_one: bool = False


@dataclass(frozen=True, slots=True)
class Embeddings:
    """A vector for each text, and the number of tokens, if it is known."""

    vectors: Sequence[Sequence[float]]
    tokens: int | None = None


class EmbeddingsDialect(Dialect):
    """A dialect with requests for embeddings."""

    def decode_embeddings_request(self, wire: WireRequest, context: Context) -> EmbeddingsRequest:
        """Return the request of a client. Raises `RequestError`."""
        raise NotImplementedError

    def encode_embeddings(self, asked: EmbeddingsRequest, found: Embeddings, seconds: float) -> WireResponse:
        """Return the response for a client, after so many seconds."""
        raise NotImplementedError

    def embeddings_request(self, asked: EmbeddingsRequest, model: str) -> WireRequest:
        """Return the request for a backend."""
        raise NotImplementedError

    def decode_embeddings(self, wire: WireResponse) -> Embeddings:
        """Return the vectors in a backend's answer. Raises `BackendError` if it has none."""
        raise NotImplementedError


def vectors_in(value: Any) -> list[list[float]] | None:
    """Return a list of vectors in a backend's answer; None for anything else."""
    if not isinstance(value, list):
        return None
    return value if all(isinstance(each, list) and all(map(is_number, each)) for each in value) else None
