"""The optional contract of dialects that list models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bridge.contract.dialect import Dialect
from bridge.contract.wire import WireRequest, WireResponse
from bridge.errors import Unsupported
from bridge.model.jsontext import whole

_NAMES = ("name", "display_name")
_CONTEXTS = ("context_length", "context_window", "max_model_len", "max_context_length", "max_input_tokens")
_ABILITIES: Mapping[str, str] = MappingProxyType({
    "audio": "audio", "audio_input": "audio",
    "file": "file", "pdf_input": "file",
    "image": "image", "image_input": "image", "vision": "image",
    "reasoning": "reasoning", "thinking": "reasoning",
    "function_calling": "tools", "tool_use": "tools", "tools": "tools",
    "video": "video",
})  # fmt: skip
"""What servers call an ability -> what it is called here."""


@dataclass(slots=True)
class ModelInfo:
    """One entry of a model list; `created` is in Unix seconds.

    `name` is the display name, empty if there is none. `context` is the length of the context window in tokens, 0 if
    unknown. `abilities` are some of `audio`, `file`, `image`, `video` (inputs), `reasoning` and `tools`; None if
    unknown.
    """

    id: str
    created: int = 0
    owned_by: str = "dialect-bridge"
    name: str = ""
    context: int = 0
    abilities: frozenset[str] | None = None


def described(info: ModelInfo, entry: Mapping[str, Any]) -> ModelInfo:
    """Return a model with the details of its entry in a backend's list, in the fields of the servers that are known:
    OpenRouter, Anthropic, Groq, LM Studio, Mistral, Together, vLLM.
    """
    info.name = next((name for key in _NAMES if isinstance(name := entry.get(key), str) and name), "")
    info.context = next((size for key in _CONTEXTS if (size := whole(entry.get(key)) or 0) > 0), 0)
    told: list[Any] = []
    architecture = entry.get("architecture")
    inputs = architecture.get("input_modalities") if isinstance(architecture, dict) else None
    for found in (inputs, entry.get("supported_parameters"), entry.get("capabilities")):
        if isinstance(found, dict):
            told.append(
                [k for k, v in found.items() if v is True or (isinstance(v, dict) and v.get("supported") is True)]
            )
        elif isinstance(found, list):
            told.append(found)
    if told:
        info.abilities = frozenset(
            _ABILITIES[w] for words in told for w in words if isinstance(w, str) and w in _ABILITIES
        )
    return info


class ModelsDialect(Dialect):
    """A dialect that lists models: as the front where its surface has `MODELS`, as the back always."""

    def encode_models(self, models: Sequence[ModelInfo]) -> WireResponse:
        """Return the response with the list of models."""
        raise Unsupported(f"{self.name} has no list of models.")

    def encode_model(self, model: ModelInfo) -> WireResponse:
        """Return the response about one model of the list."""
        raise Unsupported(f"{self.name} has no single model.")

    def is_same_model(self, asked: str, listed: str) -> bool:
        """Return whether a client that names the model `asked` means the one that is listed as `listed`."""
        return asked == listed

    def models_request(self) -> WireRequest:
        """Return the request for a backend's list of models."""
        raise NotImplementedError

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        """Return the models of a backend's answer. Raises `BackendError` when it is no list of models."""
        raise NotImplementedError
