"""`Request` -> the body and the address for a backend."""

from __future__ import annotations

import re
from typing import Any

from bridge.contract import Context, Feature, WireRequest
from bridge.dialects.gemini.fields import CONFIG
from bridge.dialects.gemini.options import BackOptions
from bridge.dialects.gemini.schema import Reducer
from bridge.dialects.gemini.wire import ASIDES, MODEL_PREFIX, NAME, NOTES, own
from bridge.dialects.gemini.write_messages import LOSSES, ContentWriter
from bridge.model import Request, Tool, ToolMode
from bridge.model.jsontext import dumps
from bridge.toolkit.paths import resource
from bridge.toolkit.thinking import OFF
from bridge.toolkit.tools import FUNCTION, supported

_RESOURCES = (MODEL_PREFIX, "tunedModels/", "publishers/", "projects/", "endpoints/")
_LATER = re.compile(r"gemini-(?:[3-9]|[1-9]\d)(?!\d)")
"""Models that take a thinking level, and check thought signatures."""
_LEVELS = {
    "none": "MINIMAL", "minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "xhigh": "XHIGH",
    "max": "XHIGH",
}  # fmt: skip
_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
_MODES = {ToolMode.AUTO: "AUTO", ToolMode.NONE: "NONE", ToolMode.REQUIRED: "ANY"}


def encode_request(request: Request, context: Context) -> WireRequest:
    """Return the request. Raises `Unsupported` for a file that the server cannot know."""
    body = _body(request, context)
    method, query = ("streamGenerateContent", {"alt": "sse"}) if request.stream else ("generateContent", {})
    accept = "text/event-stream" if request.stream else "application/json"
    return WireRequest(
        "POST", _address(request, context, method), _headers(accept), query, body=dumps(body)
    )  # fmt: skip


def count_request(request: Request, context: Context) -> WireRequest:
    """The question how many tokens this request holds. Raises `Unsupported`."""
    body = {"model": _resource(request, context), **_body(request, context)}
    path = _address(request, context, "countTokens")
    if "projects/" in BackOptions.of(context).prefix:
        # Vertex AI takes the fields that count themselves (Google, "Count tokens"; the SDK for Python does the same).
        body = {key: body[key] for key in ("contents", "systemInstruction", "tools") if key in body}
        return WireRequest("POST", path, _headers("application/json"), body=dumps(body))
    return WireRequest("POST", path, _headers("application/json"), body=dumps({"generateContentRequest": body}))


def _headers(accept: str) -> dict[str, str]:
    return {"content-type": "application/json", "accept": accept}


def _resource(request: Request, context: Context) -> str:
    model = context.model or request.model or ""
    return model if model.startswith(_RESOURCES) else MODEL_PREFIX + model


def _path(request: Request, context: Context) -> str:
    """The resource as it stands in a path. Raises `RequestError` for a name that would leave its place there."""
    name = context.model or request.model
    path = resource(name, "model") if name else ""  # without one, the backend says what it misses
    return path if path.startswith(_RESOURCES) else MODEL_PREFIX + path


def _address(request: Request, context: Context, method: str) -> str:
    return f"/{BackOptions.of(context).prefix.strip('/')}/{_path(request, context)}:{method}"


def _body(request: Request, context: Context) -> dict[str, Any]:
    """The fields that the request says something about, and what a client of this dialect said beside them."""
    options, extras = BackOptions.of(context), dict(request.extra(NAME))
    notes, rest = extras.pop(NOTES, {}), extras.pop("generationConfig", {})
    extras.pop(ASIDES, None)
    is_later = bool(_LATER.search(context.model or request.model or ""))
    skips = options.signatures == "always" or (options.signatures == "auto" and is_later)
    writer = ContentWriter(context, options, skips)
    LOSSES.note(request.messages, context.lost, sends=writer.sends, history=options.reasoning_history)
    system, contents = writer.write(request.messages)
    said = notes.get("generationConfig")
    thinking, is_sent = ({}, True) if said else _thinking(request, context, options, is_later)
    config = {
        **CONFIG.write(request, context.lost, carries=("reasoning_effort",) if is_sent else ()),
        **_logprobs(request),
        **(said or {**_format(request, context, options), **thinking}),
        **rest,
    }
    tools = _tools(request, context, options)
    tool_config = {**extras.pop("toolConfig", {}), **(_calling(request, notes) if tools else {})}
    fields = {
        "systemInstruction": {"parts": system} if system else None,
        "contents": contents,
        "tools": tools,
        "toolConfig": tool_config,
        "generationConfig": config,
    }
    return {**{name: value for name, value in fields.items() if value}, **extras}


# ------------------------------------------------------------------ generationConfig


def _logprobs(request: Request) -> dict[str, Any]:
    if request.logprobs is None:
        return {}
    return {"responseLogprobs": True, **({"logprobs": request.logprobs} if request.logprobs else {})}


def _format(request: Request, context: Context, options: BackOptions) -> dict[str, Any]:
    wanted = request.response_format
    if wanted is None or wanted.kind == "text":
        return {}
    out: dict[str, Any] = {"responseMimeType": "application/json"}
    if wanted.schema is not None and options.schemas == "json":
        out["responseJsonSchema"] = wanted.schema
    elif wanted.schema is not None:
        out["responseSchema"] = _reduced(wanted.schema, context, Feature.RESPONSE_FORMAT)
    return out


def _thinking(request: Request, context: Context, options: BackOptions, is_later: bool) -> tuple[dict[str, Any], bool]:
    """Return the fields about thinking, and whether they say the effort."""
    effort, config = request.reasoning_effort, dict[str, Any]()
    how = ("level" if is_later else "budget") if options.effort == "auto" else options.effort
    table: dict[str, Any] = _LEVELS if how == "level" else _BUDGETS if how == "budget" else {}
    if effort in table:
        config["thinkingLevel" if how == "level" else "thinkingBudget"] = table[effort]
        if effort == "none" and how == "level":
            context.lost.add(Feature.REASONING_EFFORT, "none is sent as MINIMAL")
    if options.thoughts == "always" or (options.thoughts == "effort" and _wants_thoughts(request, config)):
        config["includeThoughts"] = True
    return {"thinkingConfig": config} if config else {}, effort in table


def _wants_thoughts(request: Request, config: dict[str, Any]) -> bool:
    """True if the client asks to read the reasoning, or asks for an effort and does not hide it."""
    if request.reasoning_summary is not None:
        return request.wants_reasoning
    return bool(config) and request.reasoning_effort != OFF


# ------------------------------------------------------------------ tools


def _tools(request: Request, context: Context, options: BackOptions) -> list[dict[str, Any]]:
    """All functions in one tool, and each of Google's own as it came."""
    tools = supported(request, NAME, context.lost, strict=False)
    functions = [_function(tool, context, options) for tool in tools if tool.kind == FUNCTION]
    hosted = [own(tool.extras) for tool in tools if tool.kind != FUNCTION]
    return [*([{"functionDeclarations": functions}] if functions else []), *hosted]


def _function(tool: Tool, context: Context, options: BackOptions) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        wire["description"] = tool.description
    said = own(tool.extras)
    if tool.parameters is not None and "parameters" not in said:
        if options.schemas == "json":
            wire["parametersJsonSchema"] = tool.parameters
        elif tool.parameters.get("properties"):
            wire["parameters"] = {"type": "OBJECT", **_reduced(tool.parameters, context, Feature.TOOLS)}
    return {**wire, **said}


def _reduced(schema: dict[str, Any], context: Context, feature: Feature) -> dict[str, Any]:
    reducer = Reducer(schema)
    written = reducer.reduced()
    if reducer.dropped:
        context.lost.add(feature, f"of schemas: {', '.join(sorted(reducer.dropped))[:200]}")
    return written


def _calling(request: Request, notes: dict[str, Any]) -> dict[str, Any]:
    """The choice of tools. Names go with ANY and VALIDATED only."""
    choice = request.tool_choice
    if choice is None:
        return {}
    mode = _MODES[choice.mode]
    if mode == "AUTO" and (choice.names or notes.get("mode")):
        mode = "VALIDATED"
    names = {"allowedFunctionNames": choice.names} if choice.names and mode != "NONE" else {}
    return {"functionCallingConfig": {"mode": mode, **names}}
