"""`Request` -> the body for a backend."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bridge.contract import Context, Feature, WireRequest
from bridge.dialects.anthropic_messages.client_tools import is_client_tool
from bridge.dialects.anthropic_messages.fields import FIELDS
from bridge.dialects.anthropic_messages.options import BackOptions
from bridge.dialects.anthropic_messages.read_messages import ASIDES, BILLING_BLOCKS, BILLING_LINE, DECLARED
from bridge.dialects.anthropic_messages.wire import NAME, NOTES, VERSION_HEADER, own
from bridge.dialects.anthropic_messages.write_messages import LOSSES, MessageWriter, shortest
from bridge.model import Request, Tool, ToolMode
from bridge.model.jsontext import dumps
from bridge.toolkit.caching import CONTROL, blocks_in, is_said, marks_in, note_lost_marks
from bridge.toolkit.paths import segment
from bridge.toolkit.thinking import OFF
from bridge.toolkit.tools import FUNCTION, supported

_NOT_COUNTED = ("max_tokens", "stream", "temperature", "top_p", "stop_sequences", "metadata")
"""Fields that say nothing of the input; the counting endpoint refuses what it does not know."""

# Wishes of other dialects in the words of `output_config.effort`, and as thinking budgets in tokens.
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_BUDGETS = {"low": 2048, "medium": 8192, "high": 16384, "xhigh": 24576, "max": 32000}
_LEAST_BUDGET = 1024
_MOST_MARKS = 4
_LONG_PREFIX = 4096
"""Bytes of JSON from which on tools and system text are marked; shorter prompts are not cached by any model."""
_NO_SAMPLING = "2026-10-21"


def encode_request(request: Request, context: Context) -> WireRequest:
    """Return the request body. Raises `Unsupported` for a medium that the wire cannot carry."""
    body, headers = _encoded(request, context)
    headers["accept"] = "text/event-stream" if request.stream else "application/json"
    options = BackOptions.of(context)
    if options.endpoint == "vertex":
        named = segment(str(body.pop("model", "")), "model").replace("%40", "@")
        return _to_vertex(f"{named}:{'streamRawPredict' if request.stream else 'rawPredict'}", body, headers, options)
    return WireRequest("POST", "/v1/messages", headers, body=dumps(body))


def count_request(request: Request, context: Context) -> WireRequest:
    """The question how many tokens this request holds. Raises `Unsupported`."""
    body, headers = _encoded(request, context)
    headers["accept"] = "application/json"
    counted = {k: v for k, v in body.items() if k not in _NOT_COUNTED}
    options = BackOptions.of(context)
    if options.endpoint == "vertex":
        return _to_vertex("count-tokens:rawPredict", counted, headers, options)
    return WireRequest("POST", "/v1/messages/count_tokens", headers, body=dumps(counted))


def _to_vertex(resource: str, body: dict[str, Any], headers: dict[str, str], options: BackOptions) -> WireRequest:
    """Return a request to Vertex AI, which reads the version in the body (Google, "Request predictions with Claude
    models"; `AnthropicVertex` of Anthropic's SDK).
    """
    del headers[VERSION_HEADER]
    body = {"anthropic_version": options.vertex_version, **body}
    return WireRequest("POST", f"/models/{resource}", headers, body=dumps(body))


def _encoded(request: Request, context: Context) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and its headers."""
    options = BackOptions.of(context)
    extras = dict(request.extra(NAME))
    extras.pop(ASIDES, None)
    notes = extras.pop(NOTES, {})
    extras = {**notes.get("fields", {}), **extras}
    body = _body(request, context, options)
    if DECLARED in notes:
        body = (
            {**body, "tools": notes[DECLARED]} if notes[DECLARED] else {k: v for k, v in body.items() if k != "tools"}
        )
    _set_thinking(body, request, context, options, extras)
    _set_marks(body, request, context, options)
    _restore_billing(body, notes)
    return {**body, **extras}, {"content-type": "application/json", VERSION_HEADER: options.version}


def _restore_billing(body: dict[str, Any], notes: dict[str, Any]) -> None:
    """Put the lines for Anthropic's servers back where the client had them."""
    if line := notes.get(BILLING_LINE):
        system = body.get("system", "")
        if isinstance(system, str):
            body["system"] = line + system
        else:
            body["system"] = [{"type": "text", "text": line}, *system]
    if blocks := notes.get(BILLING_BLOCKS):
        listed = _listed(body.get("system") or [])
        for index, block in blocks:
            listed.insert(index, block)
        body["system"] = listed


def _body(request: Request, context: Context, options: BackOptions) -> dict[str, Any]:
    """The fields that the request says something about; only the limit is made up, since the wire demands one."""
    sampling = request.sampling
    writer, history = MessageWriter(context, options), options.reasoning_history
    as_text = options.unsupported_media == "text"
    LOSSES.note(request.messages, context.lost, as_text=as_text, sends=writer.sends, history=history)
    system, messages = writer.write(request.messages)
    tools = [_tool(t) for t in supported(request, NAME, context.lost)]
    made = {
        "model": context.model or request.model or None,
        "max_tokens": options.max_tokens if sampling.max_tokens is None else sampling.max_tokens,
        "system": shortest(system) or None,
        "messages": messages,
        "tools": tools or None,
        "tool_choice": _tool_choice(request, context) if tools else None,
        **_sampling(request, context, options.version),
        "metadata": _metadata(request),
        CONTROL: _automatic_mark(request),
    }
    return FIELDS.write(request, context.lost, made, carries=("metadata",) if NAME in (request.extras or {}) else ())


def _sampling(request: Request, context: Context, version: str) -> dict[str, float | None]:
    """Temperature and nucleus. Versions since 2026-10-21 refuse both, whatever the value.

    A client of this dialect knows that: what it says goes through.
    """
    temperature, top_p = request.sampling.temperature, request.sampling.top_p
    is_said = temperature is not None or top_p is not None
    if is_said and version.removeprefix("vertex-") >= _NO_SAMPLING and NAME not in (request.extras or {}):
        context.lost.add(Feature.SAMPLING, f"anthropic-version {version} has no temperature and no top_p")
        return {"temperature": None, "top_p": None}
    return {"temperature": temperature, "top_p": top_p}


def _metadata(request: Request) -> dict[str, Any] | None:
    """The user's id; the API refuses other fields, so they are left to clients that know what they do."""
    metadata: dict[str, Any] = {}
    if request.metadata and NAME in (request.extras or {}):
        metadata.update(request.metadata)
    if request.user_id is not None:
        metadata["user_id"] = request.user_id
    return metadata or None


def _set_thinking(
    body: dict[str, Any], request: Request, context: Context, options: BackOptions, extras: dict[str, Any]
) -> None:
    """The effort, readable thinking and the answer's shape, unless the client said them in this dialect's words."""
    config: dict[str, Any] = {}
    wanted = request.response_format
    if wanted is not None and wanted.kind == "json_schema" and wanted.schema is not None:
        if "output_format" not in extras:
            config["format"] = {"type": "json_schema", "schema": wanted.schema}
    elif wanted is not None and wanted.kind != "text":
        context.lost.add(Feature.RESPONSE_FORMAT, "JSON without a schema")
    if not extras.keys() & {"thinking", "output_config"}:
        effort = request.reasoning_effort
        if effort == OFF:
            body["thinking"] = {"type": "disabled"}
        elif effort is not None and not _set_effort(body, config, _EFFORTS.get(effort), options):
            context.lost.add(Feature.REASONING_EFFORT, effort)
        if request.wants_reasoning:
            _set_display(body, request, context, options)
    if config:
        body["output_config"] = config


def _set_effort(body: dict[str, Any], config: dict[str, Any], effort: str | None, options: BackOptions) -> bool:
    """Writes the effort as the option says; False when there is no way. A budget must stay below the limit."""
    if effort is None or options.effort == "drop":
        return False
    if options.effort == "output_config":
        config["effort"] = effort
        return True
    budget = min(_BUDGETS[effort], body["max_tokens"] - 1)
    if budget < _LEAST_BUDGET:
        return False
    body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    return True


def _set_display(body: dict[str, Any], request: Request, context: Context, options: BackOptions) -> None:
    """Ask for readable thinking, which newer models return only if `display` says so; older ones always return it.

    The API refuses thinking with a forced tool, and with other temperatures than 1.
    """
    if options.effort == "thinking":
        if "thinking" not in body and not _set_effort(body, {}, "medium", options):
            context.lost.add(Feature.REASONING_EFFORT, "max_tokens leaves no budget for thinking")
        return
    if options.effort == "drop":
        context.lost.add(Feature.REASONING_EFFORT, "thinking, dropped by option effort")
        return
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        context.lost.add(Feature.REASONING_EFFORT, "thinking beside a tool choice that requires a call")
        return
    body["thinking"] = {"type": "adaptive", "display": "summarized"}
    if body.pop("temperature", 1) != 1:
        context.lost.add(Feature.SAMPLING, "temperature beside thinking")


def _set_marks(body: dict[str, Any], request: Request, context: Context, options: BackOptions) -> None:
    """Marks for the prompt cache: at most four, and of clients of OpenAI none that is kept longer than one before it.

    A client of this dialect knows that: what it says goes through.
    """
    marks = marks_in(request)
    if not marks:
        wanted, fixed = options.prompt_cache, (body.get("tools"), body.get("system"))
        if wanted == "auto" or (wanted is None and context.caches and _is_long((*fixed, *body["messages"]))):
            _mark_prefixes(body)
        return
    if NAME in (request.extras or {}):
        return
    prompt = [*body.get("tools", ()), *_listed(body.get("system", [])), *body["messages"]]
    found = [block for block in blocks_in(prompt) if CONTROL in block]
    for block in found[:-_MOST_MARKS]:
        del block[CONTROL]
    kept = found[-_MOST_MARKS:]
    if not _says_controls(request) and any("ttl" in block[CONTROL] for block in kept):
        for block in kept:
            block[CONTROL] = {**block[CONTROL], "ttl": "1h"}
    note_lost_marks(marks, prompt, (CONTROL,), context.lost)


def _automatic_mark(request: Request) -> Any:
    """The mark of the whole request, which clients of OpenRouter know as well."""
    found = (request.shared or {}).get(CONTROL)
    return found if isinstance(found, dict) else None


def _says_controls(request: Request) -> bool:
    """Return whether a client of another dialect marks the prompt in this one's words, which are sent as they are."""
    parts = [part for message in request.messages for part in message.parts]
    return any(is_said(each.extras) for each in [*(request.tools or ()), *parts])


def _is_long(pieces: Iterable[Any]) -> bool:
    """Return whether these pieces of a prompt are long enough to be cached."""
    size = 0
    for piece in pieces:
        size += len(dumps(piece))
        if size >= _LONG_PREFIX:
            return True
    return False


def _mark_prefixes(body: dict[str, Any]) -> None:
    """Mark the end of what stays from request to request, where it is long enough to be cached, and the end of all."""
    fixed = "system" if "system" in body else "tools"
    if fixed in body and _is_long((body.get("tools"), body.get("system"))):
        body[fixed] = _marked(body[fixed])
    last = body["messages"][-1]
    if last["role"] == "user" and last["content"] and not _is_empty(_listed(last["content"])[-1]):
        last["content"] = _marked(last["content"])


def _is_empty(block: dict[str, Any]) -> bool:
    """Return whether this is a text without characters, which the API refuses to mark."""
    return block["type"] == "text" and not block["text"]


def _marked(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    *before, last = _listed(content)
    return [*before, {**last, CONTROL: {"type": "ephemeral"}}]


def _listed(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


# ------------------------------------------------------------------ tools


def _tool(tool: Tool) -> dict[str, Any]:
    """`input_schema` is mandatory and describes an object; a tool of Anthropic's own goes on as it came."""
    if tool.kind != FUNCTION or is_client_tool(own(tool.extras)):
        return own(tool.extras)
    wire: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        wire["description"] = tool.description
    wire["input_schema"] = {"type": "object", "properties": {}} if tool.parameters is None else tool.parameters
    if tool.strict is not None:
        wire["strict"] = tool.strict
    return {**wire, **own(tool.extras)}


def _tool_choice(request: Request, context: Context) -> dict[str, Any] | None:
    choice, parallel = request.tool_choice, request.parallel_tool_calls
    if choice is None and parallel is None:
        return None
    wire: dict[str, Any] = {"type": "auto"}
    if choice is not None:
        if choice.mode is ToolMode.NONE:
            return {"type": "none"}
        if choice.mode is ToolMode.REQUIRED:
            wire = {"type": "tool", "name": choice.names[0]} if len(choice.names) == 1 else {"type": "any"}
        if choice.names and wire["type"] != "tool":
            context.lost.add(Feature.TOOL_CHOICE, "a choice among several tools")
    if parallel is not None:
        wire["disable_parallel_tool_use"] = not parallel
    return wire
