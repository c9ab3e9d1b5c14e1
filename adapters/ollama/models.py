"""What clients ask beside runs: the lists of models, one model, and the management of models, which is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from bridge.contract import Feature, ModelInfo, Support, WireRequest, WireResponse, json_response
from bridge.contract.naming import pick
from bridge.contract.optional.answering import RouteFacts, ServedModel
from bridge.contract.optional.models import described
from bridge.dialects.ollama.options import FrontOptions, ModelOptions
from bridge.dialects.ollama.wire import Wire, is_same_model, tagged_name
from bridge.dialects.ollama.write_answer import moment
from bridge.errors import BackendError, ErrorCode, RequestError
from bridge.model.jsontext import dict_of, dumps, read_body, read_json, text_of, whole
from bridge.toolkit import Node
from bridge.toolkit.check import wrong

_ARCHITECTURE = "bridge"
_LINES = "application/x-ndjson"
_COPILOT = "GitHubCopilotChat/"
_WORDS = {"audio": "audio", "image": "vision", "reasoning": "thinking", "tools": "tools"}
"""Abilities in the words of this API."""
_NO_MANAGEMENT = "this server does not manage models; they are configured at its backends"


def answer(wire: WireRequest, facts: RouteFacts) -> WireResponse:
    """Return the answer to a request that is no run. Raises `RequestError`."""
    options = facts.options if isinstance(facts.options, FrontOptions) else FrontOptions()
    match wire.path.rstrip("/").removeprefix("/api/"):
        case "version":
            return _json({"version": options.version})
        case "ps":
            return _json({"models": []})
        case "tags":
            return _json({"models": [_listed(model, options) for model in facts.models]})
        case "show":
            return _json(_shown(wire, facts, options))
        case "pull":
            return _pulled(wire, facts)
    if wire.method == "HEAD":
        return json_response(b"", 404)
    raise RequestError(f"{wire.path}: {_NO_MANAGEMENT}.", code=ErrorCode.UNSUPPORTED, status=501)


def encode_models(models: Sequence[ModelInfo]) -> WireResponse:
    """Return the list of models of which nothing else is known."""
    return answer(WireRequest("GET", "/api/tags"), RouteFacts(models=[ServedModel(info) for info in models]))


def _json(value: Wire) -> WireResponse:
    return json_response(dumps(value))


# ------------------------------------------------------------------ towards clients


def _listed(model: ServedModel, options: FrontOptions) -> Wire:
    """Return the entry of a list; clients refuse the list if one of these members is missing."""
    info, name = model.info, tagged_name(model.info.id)
    return {
        "name": name,
        "model": name,
        "modified_at": moment(info.created),
        "size": 0,
        "digest": hashlib.sha256(name.encode()).hexdigest(),
        "details": {**_details(info), "context_length": _context(info, options)},
        "capabilities": _capabilities(model, options),
    }


def _details(info: ModelInfo) -> Wire:
    return {
        "parent_model": "",
        "format": "",
        "family": info.owned_by,
        "families": [info.owned_by],
        "parameter_size": "",
        "quantization_level": "",
    }


def _told(info: ModelInfo, options: FrontOptions) -> ModelOptions:
    return pick(options.models, info.id) or pick(options.models, tagged_name(info.id)) or ModelOptions()


def _context(info: ModelInfo, options: FrontOptions) -> int:
    return _told(info, options).context or info.context or options.context_length


def _capabilities(model: ServedModel, options: FrontOptions) -> list[str]:
    """Return what a model can do: as configured, else as its backend says, else what the backends' dialects carry.

    Clients send `think` to a model that can think, and strict backends refuse that, so that it is never guessed.
    """
    told = _told(model.info, options).capabilities
    if told is not None:
        return ["completion", *told]
    abilities: Collection[str] | None = model.info.abilities
    if abilities is None:
        carried = {"tools": Feature.TOOLS, "image": Feature.IMAGE_INLINE}
        abilities = [
            name
            for name, feature in carried.items()
            if all(card.request(feature) is Support.EXACT for card in model.backends)
        ]
    return ["completion", *(word for ability, word in _WORDS.items() if ability in abilities)]


def _shown(wire: WireRequest, facts: RouteFacts, options: FrontOptions) -> Wire:
    asked = _asked(wire)
    model = _found(asked, facts)
    info, agent = model.info, wire.headers.get("user-agent", "")
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _details(info),
        "model_info": {
            "general.architecture": _ARCHITECTURE,
            "general.basename": asked if agent.startswith(_COPILOT) else info.name or info.id,
            f"{_ARCHITECTURE}.context_length": _context(info, options),
        },
        "capabilities": _capabilities(model, options),
        "modified_at": moment(info.created),
    }


def _asked(wire: WireRequest) -> str:
    """Return the name of the model in a body, where old clients call it `name`."""
    body = Node(read_body(wire.body))
    name = body.string("model") or body.string("name")
    if not name:
        wrong("model", "the name of a model", body.get("model"), missing="model" not in body.value)
    return name


def _found(asked: str, facts: RouteFacts) -> ServedModel:
    found = next((model for model in facts.models if is_same_model(asked, model.info.id)), None)
    if found is None:
        raise RequestError(f"model {tagged_name(asked[:200])!r} not found", code=ErrorCode.NOT_FOUND, param="model")
    return found


def _pulled(wire: WireRequest, facts: RouteFacts) -> WireResponse:
    """Answer a request to download a model: nothing is to be done for one that is served."""
    _found(_asked(wire), facts)
    done = dumps({"status": "success"})
    if Node(read_body(wire.body)).boolean("stream") is False:
        return json_response(done)
    return WireResponse(200, {"content-type": _LINES}, done + b"\n")


# ------------------------------------------------------------------ from backends


def decode_models(wire: WireResponse) -> list[ModelInfo]:
    """The models of a backend. Raises `BackendError` for anything but a list."""
    value = read_json(wire.body)
    if not isinstance(value, dict) or "models" not in value or not isinstance(value["models"] or [], list):
        raise BackendError("The backend's answer is not a list of models.", code=ErrorCode.BACKEND_PROTOCOL)
    entries = [entry for entry in value["models"] or () if isinstance(entry, dict)]
    return [_info(name, e) for e in entries if (name := text_of(e.get("model")) or text_of(e.get("name")))]


def _info(name: str, entry: dict[str, Any]) -> ModelInfo:
    details = dict_of(entry.get("details"))
    info = described(
        ModelInfo(name, _unix(entry.get("modified_at")), text_of(details.get("family")) or "unknown"), entry
    )
    info.name = ""
    info.context = max(whole(details.get("context_length")) or 0, 0)
    capabilities = entry.get("capabilities")
    if capabilities == ["completion"]:  # also of models whose template the server has not read yet
        info.abilities = None
    return info


def _unix(moment: Any) -> int:
    try:
        return max(int(datetime.fromisoformat(text_of(moment)).timestamp()), 0)
    except (ValueError, OverflowError):
        return 0
