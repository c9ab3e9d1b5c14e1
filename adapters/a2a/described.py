"""The agent card: what an agent is, where it is called, and what it takes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from bridge.contract import Capabilities, DescribedAgent, Feature, Support, TaskCall, WireResponse
from bridge.dialects.a2a import write_errors
from bridge.dialects.a2a.call import Call
from bridge.dialects.a2a.options import FrontOptions
from bridge.dialects.a2a.read_request import reader_of
from bridge.dialects.a2a.whole_answer import response
from bridge.dialects.a2a.wire import HTTP_JSON, JSON_RPC, Version, Wire, written
from bridge.dialects.a2a.write_errors import refused

_MAX_AGE = 60
_BINDINGS = {"jsonrpc": JSON_RPC, "http": HTTP_JSON}
_TYPES = ("image", "audio", "video", "application")


def encode_card(agent: DescribedAgent) -> WireResponse:
    """Return the card, or 304 where the client has it."""
    body = written(card(agent))
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": f"public, max-age={_MAX_AGE}"}
    known = [each.strip().removeprefix("W/") for each in agent.wire.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return WireResponse(304, headers)
    return WireResponse(200, {"content-type": "application/json", **headers}, body)


def encode_extended_card(asked: TaskCall, agent: DescribedAgent) -> WireResponse:
    """Return the card for callers who are known, with the skills that others do not see."""
    call: Call = asked.sent
    if not agent.secured:
        raise refused(
            write_errors.NO_EXTENDED_CARD, "The extended card is for callers with a key, but this server has no keys."
        )
    return response(card(agent, extended=True), reader_of(call))


def card(agent: DescribedAgent, *, extended: bool = False) -> Wire:
    """Return the card of an agent, for each version that its route serves."""
    options = _options(agent)
    name = options.name or agent.name
    description = options.description or f"The agent {name}."
    known = (*options.skills, *(options.extended_skills if extended else ()))
    skills = [skill.model_dump(exclude_defaults=True) for skill in known] or [
        {"id": "chat", "name": name, "description": description, "tags": ["chat"]}
    ]
    wire: Wire = {
        "name": name,
        "description": description,
        "version": options.agent_version,
        "supportedInterfaces": [
            {"url": agent.url, "protocolBinding": _BINDINGS[binding], "protocolVersion": version}
            for version in options.versions
            for binding in options.bindings
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": agent.durable and bool(options.push_hosts),
            "extendedAgentCard": options.extended_card,
        },
        "defaultInputModes": _input_modes(agent.backends),
        "defaultOutputModes": _output_modes(agent.backends),
        "skills": [{"tags": [], **skill} for skill in skills],
    }
    if options.provider_name and options.provider_url:
        wire["provider"] = {"organization": options.provider_name, "url": options.provider_url}
    if options.documentation_url:
        wire["documentationUrl"] = options.documentation_url
    if agent.secured:
        wire["securitySchemes"] = {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}},
        }
        wire["securityRequirements"] = [{"schemes": {name: {"list": []}}} for name in wire["securitySchemes"]]
    return {**wire, **_old_fields(agent)} if Version.OLD in options.versions else wire


def _options(agent: DescribedAgent) -> FrontOptions:
    return agent.options if isinstance(agent.options, FrontOptions) else FrontOptions()


def _old_fields(agent: DescribedAgent) -> Wire:
    """The fields by which clients of 0.3 find the agent; those of 1.0 do not mind them."""
    options = _options(agent)
    transports = [_BINDINGS[binding] for binding in options.bindings]
    wire: Wire = {
        "url": agent.url,
        "preferredTransport": transports[0],
        "additionalInterfaces": [{"url": agent.url, "transport": transport} for transport in transports],
        "protocolVersion": "0.3.0",
        "supportsAuthenticatedExtendedCard": options.extended_card,
    }
    if agent.secured:
        wire["security"] = [{"bearer": []}, {"apiKey": []}]
        wire["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "Bearer", "httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "apiKey": {
                "type": "apiKey",
                "in": "header",
                "name": "x-api-key",
                "apiKeySecurityScheme": {"location": "header", "name": "x-api-key"},
            },
        }
    return wire


def _input_modes(backends: Sequence[Capabilities]) -> list[str]:
    def takes(kind: str) -> bool:
        kind = "file" if kind == "application" else kind
        needed = (Feature(f"{kind}_url"), Feature(f"{kind}_inline"))
        return all(any(back.request(each) is Support.EXACT for each in needed) for back in backends)

    media = [f"{kind}/*" for kind in _TYPES if takes(kind)]
    return ["text/plain", "application/json", *media]


def _output_modes(backends: Sequence[Capabilities]) -> list[str]:
    def gives(kind: str) -> bool:
        feature = Feature("file" if kind == "application" else kind)
        return any(back.answer(feature) is Support.EXACT for back in backends)

    return ["text/plain", "application/json", *(f"{kind}/*" for kind in _TYPES if gives(kind))]
