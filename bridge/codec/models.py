"""The optional contract of dialects that list models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.codec.dialect import Dialect
from bridge.codec.wire import WireRequest, WireResponse
from bridge.errors import Unsupported


@dataclass(slots=True)
class ModelInfo:
    """One entry of a model list; `created` is in Unix seconds."""

    id: str
    created: int = 0
    owned_by: str = "dialect-bridge"


class ModelsDialect(Dialect):
    """A dialect that lists models: as the front where its surface has `MODELS`, as the back always."""

    # ------------------------------------------------------------- as the front

    def encode_models(self, models: Sequence[ModelInfo]) -> WireResponse:
        """Return the response with the list of models."""
        raise Unsupported(f"{self.name} has no list of models.")

    def encode_model(self, model: ModelInfo) -> WireResponse:
        """Return the response about one model of the list."""
        raise Unsupported(f"{self.name} has no single model.")

    # ------------------------------------------------------------- as the back

    def models_request(self) -> WireRequest:
        """Return the request that asks a backend for its models."""
        raise NotImplementedError

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        """Return the models of a backend's answer. Raises `BackendError` when it is no list of models."""
        raise NotImplementedError
