"""Requests -> `Request`, checked in the same walk.

The model and the method stand in the address. Every wrong field is a `RequestError` that names its place. Fields that
only Gemini has (`safetySettings`, `cachedContent`, `topK`, hosted tools) are kept for a backend of this dialect. So is
what a client said in this wire's own words and our model has as well, under `notes`.
"""

from __future__ import annotations

import re
from typing import Any

from bridge.contract import Context, Feature, WireRequest
from bridge.dialects.gemini.fields import CONFIG
from bridge.dialects.gemini.read_messages import ContentReader, read_system
from bridge.dialects.gemini.schema import json_schema
from bridge.dialects.gemini.wire import ASIDES, MODEL_PREFIX, NAME, NOTES, Spelled, given, noted
from bridge.errors import RequestError
from bridge.model import Request, ResponseFormat, Tool, ToolChoice, ToolMode
from bridge.model.jsontext import read_body
from bridge.toolkit.check import need_json, wrong
from bridge.toolkit.fields import thread_in
from bridge.toolkit.thinking import HIDDEN, READABLE, effort_of
from bridge.toolkit.tools import check_choice

# Fields with a place in our model; all others travel in `Request.extras`. The body's `model` is the address's.
_KNOWN = frozenset({"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "model"})
_LOGPROBS = frozenset({"responseLogprobs", "logprobs"})
_JSON_SCHEMAS = ("responseJsonSchema", "_responseJsonSchema")
_FORMAT = "responseFormat"
_IN_MODEL = frozenset({"responseMimeType", "responseSchema", *_JSON_SCHEMAS, _FORMAT, "thinkingConfig"})
_ADDRESS = re.compile(r"/?(?:v\d\w*/)?(?P<model>.+):(?P<method>[A-Za-z]+)")
_JSON = "application/json"
_LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH")
_MODES = {
    "AUTO": ToolMode.AUTO, "VALIDATED": ToolMode.AUTO, "ANY": ToolMode.REQUIRED, "NONE": ToolMode.NONE,
    "MODE_UNSPECIFIED": ToolMode.AUTO,
}  # fmt: skip


def decode_request(wire: WireRequest, context: Context, *, counting: bool = False) -> Request:
    """The request of a client. Raises `RequestError`. `counting`: it asks for the count of its tokens only."""
    need_json(wire)
    body = Spelled(read_body(wire.body))
    if counting:
        body = body.object("generateContentRequest") or body
    model, method = _address(wire)
    if not isinstance(body.get("contents"), dict) and not body.need_array("contents"):
        wrong(body.at("contents"), "at least one content", [])
    reader = ContentReader()
    messages = read_system(body) + reader.read(body)
    config = body.object("generationConfig") or Spelled({}, body.at("generationConfig"))
    notes: dict[str, Any] = {}
    extras = given(body.rest(_KNOWN))
    list(body.objects("safetySettings"))  # travels on unread
    request = Request(messages)
    if rest := _rest_of_config(config, given(CONFIG.read(config, request)), notes):
        extras["generationConfig"] = rest
    tool_config = body.object("toolConfig")
    if tool_config and (rest := given(tool_config.rest({"functionCallingConfig"}))):
        extras["toolConfig"] = rest
    if reader.asides:
        extras[ASIDES] = reader.asides
    request.stream = method != "generateContent" and not counting
    if request.stream and wire.path and wire.query.get("alt") != "sse":
        # Without `alt=sse` the stream is one JSON array.
        notes["array"] = True
    request.tools, request.tool_choice = _tools(body), _tool_choice(tool_config, notes)
    if tool_config:
        check_choice(request.tool_choice, request.tools or (), tool_config.at("functionCallingConfig"))
        calling = tool_config.object("functionCallingConfig")
        if calling is not None and calling.get("streamFunctionCallArguments"):
            context.lost.add(Feature.EXTRAS, "streamFunctionCallArguments")
    request.model = _model(model, context)
    request.thread_id = thread_in({}, wire)
    request.response_format = _response_format(config)
    request.reasoning_effort, request.reasoning_summary = _effort(config), _summary(config)
    request.logprobs = _logprobs(config)
    request.extras = {NAME: {**extras, **({NOTES: notes} if notes else {})}}
    return request


def _address(wire: WireRequest) -> tuple[str | None, str]:
    """The model and the method in the path: the method follows the last colon."""
    found = _ADDRESS.fullmatch(wire.path)
    if found is None:
        return None, ""
    return found["model"].rpartition(MODEL_PREFIX)[2] or None, found["method"]


def _model(named: str | None, context: Context) -> str | None:
    """The model of the address. Raises `RequestError` if it names none and the route has no default."""
    if not named and not context.model:
        raise RequestError("model: required, expected models/{model}:{method} in the address.", param="model")
    return named


# ------------------------------------------------------------------ generationConfig


def _rest_of_config(config: Spelled, rest: dict[str, Any], notes: dict[str, Any]) -> dict[str, Any]:
    """The fields that other dialects do not have. What our model has in other words is noted as the client said it."""
    if config.get("responseLogprobs"):
        rest = {name: value for name, value in rest.items() if name not in _LOGPROBS}
    own_words = _IN_MODEL if _has_format(config) else {"thinkingConfig"}
    if said := {name: value for name, value in rest.items() if name in own_words}:
        notes["generationConfig"] = said
    media = any(given(each.rest({"text"})) for each in config.objects(_FORMAT))
    return {name: value for name, value in rest.items() if name not in said or (media and name == _FORMAT)}


def _text_format(config: Spelled) -> Spelled | None:
    """Return what `responseFormat` says of text; it says the same of images, audio and video."""
    texts = (each.object("text") for each in config.objects(_FORMAT))
    return next((text for text in texts if text is not None), None)


def _media_type(config: Spelled) -> str:
    """Return the media type of the answer's text, empty if none is given. It may be the word of an enum instead."""
    text = _text_format(config)
    said = config.string("responseMimeType") if text is None else text.string("mimeType")
    return (said or "").lower().replace("_", "/", 1)


def _has_format(config: Spelled) -> bool:
    """Return whether the shape of the answer is one that our model has; an enum as plain text is not."""
    return _media_type(config) in ("", "text/plain", _JSON)


def _response_format(config: Spelled) -> ResponseFormat | None:
    google, text = config.object("responseSchema"), _text_format(config)
    named = [(config, name) for name in _JSON_SCHEMAS] if text is None else [(text, "schema")]
    plain = next((node.value[name] for node, name in named if node.object(name) is not None), None)
    if not _has_format(config):
        return None
    if google is not None and text is None:
        return ResponseFormat("json_schema", schema=json_schema(config.value["responseSchema"]))
    if plain is not None:
        return ResponseFormat("json_schema", schema=plain)
    return ResponseFormat("json") if _media_type(config) == _JSON else None


def _effort(config: Spelled) -> str | None:
    """The effort in the word of other dialects: a level, or a budget of tokens. -1 leaves it to the model."""
    thinking = config.object("thinkingConfig")
    if thinking is None:
        return None
    level = (thinking.string("thinkingLevel") or "").upper()
    budget = thinking.integer("thinkingBudget", convert=True)
    if level in _LEVELS:
        return level.lower()
    return effort_of(budget)


def _logprobs(config: Spelled) -> int | None:
    """The number of alternatives for each token, if log probabilities are wanted."""
    alternatives = config.integer("logprobs", convert=True)
    return (alternatives or 0) if config.boolean("responseLogprobs") else None


def _summary(config: Spelled) -> str | None:
    """Return the wish for readable thoughts, or against them; None if the client says neither."""
    thinking = config.object("thinkingConfig")
    wanted = thinking.boolean("includeThoughts") if thinking else None
    return None if wanted is None else READABLE if wanted else HIDDEN


# ------------------------------------------------------------------ tools


def _tools(body: Spelled) -> list[Tool] | None:
    """Functions, and tools that Google hosts: those are optional, since no other backend has them."""
    if body.get("tools") is None:
        return None
    tools: list[Tool] = []
    for node in body.objects("tools"):
        tools += [_function(each) for each in node.objects("functionDeclarations")]
        for name, value in given(node.rest({"functionDeclarations"})).items():
            if not isinstance(value, dict | list):  # MCP servers are a list
                wrong(node.at(name), "an object or a list", value)
            tools.append(Tool(name, extras=noted({name: value}), kind=name, optional=True))
    return tools


def _function(node: Spelled) -> Tool:
    google, plain = node.object("parameters"), node.object("parametersJsonSchema")
    rest = given(node.rest({"name", "description", "parametersJsonSchema"}))
    parameters = None
    if plain is not None:
        parameters = node.value["parametersJsonSchema"]
    elif google is not None:
        parameters = json_schema(node.value["parameters"])
    return Tool(node.need_string("name"), node.string("description"), parameters, extras=noted(rest))


def _tool_choice(config: Spelled | None, notes: dict[str, Any]) -> ToolChoice | None:
    calling = config.object("functionCallingConfig") if config else None
    if calling is None:
        return None
    mode = (calling.string("mode") or "AUTO").upper()
    if mode not in _MODES:
        wrong(calling.at("mode"), "one of " + ", ".join(sorted(_MODES)), mode)
    if mode == "VALIDATED":
        notes["mode"] = mode
    return ToolChoice(_MODES[mode], calling.strings("allowedFunctionNames") or [])
