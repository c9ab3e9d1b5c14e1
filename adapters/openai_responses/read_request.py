"""Request bodies -> `Request`, checked in the same walk; every wrong field is a `RequestError` that names its place.

What rests on stored responses is read in one place (`_Stored`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bridge.contract import Context, Feature, StoredResponses, WireRequest
from bridge.dialects.openai.api import SHARED
from bridge.dialects.openai_responses import compaction
from bridge.dialects.openai_responses.declared import ADDITIONAL_TOOLS, CONFIGURES, held, without_hosted
from bridge.dialects.openai_responses.fields import FIELDS
from bridge.dialects.openai_responses.options import FrontOptions
from bridge.dialects.openai_responses.read_messages import ItemReader, Refer, id_of
from bridge.dialects.openai_responses.tools import read_text, read_tool_choice, read_tools
from bridge.dialects.openai_responses.wire import ENCRYPTED, LOGPROBS, NAME, noted, own
from bridge.errors import ErrorCode, RequestError, shortened
from bridge.model import Message, Request, Text, Tool, ToolChoice, ToolMode
from bridge.model.jsontext import read_body
from bridge.toolkit.check import Node, model_in, need_json
from bridge.toolkit.tools import FUNCTION, check_choice

_TRANSLATED = frozenset({ENCRYPTED, LOGPROBS})
"""Values of `include` that have a place in our model."""


def decode_request(wire: WireRequest, context: Context, *, counting: bool = False) -> Request:
    """The request of a client. Raises `RequestError`. `counting`: it asks for the count of its tokens only."""
    need_json(wire, status=415)
    body = Node(read_body(wire.body))
    alone = wire.path == compaction.PATH
    if alone:
        body = Node(compaction.with_trigger(body.value))
    options = FrontOptions.of(context)
    request = Request([], stream=False)
    extras = FIELDS.read(body, request)
    before, refer = _stored(body, extras, options, context.stored_responses)
    reader = ItemReader(before, refer)
    messages = reader.read(body)
    tools, choice = _tools(body, reader, extras, options), read_tool_choice(body, extras)
    if not body.get("prompt"):
        _check_choice(choice, tools or [], extras)
    if options.hosted_tools == "drop" and any(tool.kind != FUNCTION for tool in tools or ()):
        tools, choice = _functions(tools or [], choice, extras)
        context.lost.add(Feature.TOOLS, "dropped by option hosted_tools")
    request.messages = [*_instructions(body), *before, *messages]
    request.tools, request.tool_choice = tools, choice
    request.model = _model(body, context, counting)
    request.response_format = read_text(body, extras)
    request.extras = {NAME: extras}
    request.shared = _shared(extras)
    _set_wanted(request, body, extras)
    _configure(request, body, reader, extras)
    return _compacting(request, extras, options, alone=alone) if any(map(compaction.asks, messages)) else request


def _configure(request: Request, body: Node, reader: ItemReader, extras: dict[str, Any]) -> None:
    """Apply the settings that items of the input change: the last of each counts. A backend of this dialect gets them
    as the client said them, since to say them elsewhere costs it its cache.
    """
    updates = [node for _, node in reader.declaring if node.get("type") == CONFIGURES]
    if updates:
        extras[CONFIGURES] = {name: body.get(name) for name in ("reasoning", "text") if body.get(name) is not None}
    for node in updates:
        reasoning = node.object("reasoning")
        if reasoning is not None and (effort := reasoning.string("effort")) is not None:
            request.reasoning_effort = effort
        if node.object("text") is not None:
            request.response_format = read_text(node, {})


def _compacting(request: Request, extras: dict[str, Any], options: FrontOptions, *, alone: bool) -> Request:
    """The request for a compaction: a text and no call. Its tools stay: backends demand those of earlier calls."""
    *before, last = request.messages
    if not compaction.asks(last) or any(map(compaction.asks, before)):
        raise RequestError("input: expected compaction_trigger once, as the last item.", param="input")
    own(last.extras).update(alone=alone)
    if options.compaction == "backend":
        own(last.extras)[compaction.TRIGGER] = "backend"
        return request
    for name in ("text", "tool_choice"):
        extras.pop(name, None)
    request.response_format = None
    request.tool_choice = ToolChoice(ToolMode.NONE) if request.tools else None
    return request


def _model(body: Node, context: Context, counting: bool) -> str | None:
    """The model's name, which a stored prompt may name as well."""
    return body.string("model") if counting or body.get("prompt") else model_in(body, context.model)


def _shared(extras: dict[str, Any]) -> dict[str, Any]:
    """Return fields that chat completions have as well; their `verbosity` stands in `text` here."""
    text = extras.get("text")
    fields = {**extras, **(text if isinstance(text, dict) else {})}
    return {name: value for name, value in fields.items() if name in SHARED}


def _tools(body: Node, reader: ItemReader, extras: dict[str, Any], options: FrontOptions) -> list[Tool] | None:
    """The tools of the request and those that items of its input declare; these items are noted as they came."""
    optional = options.hosted_tools == "offer"
    tools = read_tools(body, optional=optional)
    extras.pop(ADDITIONAL_TOOLS, None)
    if not reader.declaring and not reader.found:
        return tools
    declared = [tool for _, node in reader.declaring for tool in read_tools(node, optional=optional) or ()]
    if reader.declaring:
        left = without_hosted if options.hosted_tools == "drop" else dict
        extras[ADDITIONAL_TOOLS] = [[after, left(node.value)] for after, node in reader.declaring]
    tools = [*(tools or ()), *map(held, declared)]
    names = {tool.name for tool in tools}
    for tool in (tool for node in reader.found for tool in read_tools(node, optional=True) or ()):
        if tool.name not in names:  # a search may find a tool again
            names.add(tool.name)
            tools.append(held(tool))
    return tools or None


def _check_choice(choice: ToolChoice | None, tools: list[Tool], extras: dict[str, Any]) -> None:
    """Only functions outside of namespaces are chosen by their names; a choice of another kind is in the extras."""
    if choice and ("tool_choice" in extras or any("named" in own(tool.extras) for tool in tools)):
        choice = ToolChoice(choice.mode)
    check_choice(choice, tools, "tool_choice")


def _functions(
    tools: list[Tool], choice: ToolChoice | None, extras: dict[str, Any]
) -> tuple[list[Tool], ToolChoice | None]:
    """The functions alone; a choice among what is left out is no choice any more."""
    left = [tool for tool in tools if tool.kind == FUNCTION]
    if choice is not None and not {tool.name for tool in left}.issuperset(choice.names):
        extras.pop("tool_choice", None)
        choice = None
    return left, choice


def _stored(
    body: Node, extras: dict[str, Any], options: FrontOptions, stored_responses: StoredResponses | None
) -> tuple[list[Message], Refer | None]:
    """The conversation that a request continues, and the items that it refers to.

    References to responses that are not stored here are refused. Where the backend stores them (option `stored`), these
    fields pass with all others that only this dialect knows.
    """
    previous, store, background = body.string("previous_response_id"), body.boolean("store"), body.boolean("background")
    if not store:
        extras.pop("store", None)  # backends are told so anyway
    stores = stored_responses is not None and stored_responses.stores
    if background and (options.stored == "backend" or not stores):
        _refuse("background", "this route stores no responses")
    if options.stored == "backend" and (store or stored_responses is None or previous not in stored_responses.found):
        if stored_responses is not None and previous:
            stored_responses.connected = False  # what the backend stored is not known here
        return [], None
    if not stores and options.stored != "backend":
        for name in ("conversation", "store", *(("previous_response_id",) if stored_responses is None else ())):
            if body.get(name):
                _refuse(name, "this route stores no responses; send the whole conversation as input")
    if stored_responses is None:
        return [], _no_reference
    if body.get("conversation"):
        _refuse(
            "conversation",
            "this route stores responses, not conversations; send the last response as previous_response_id",
        )
    if background and store is False:
        raise RequestError("store: expected true or no value with background: true; got false.", param="store")
    for name in ("previous_response_id", "store"):
        extras.pop(name, None)
    stored_responses.wanted, stored_responses.previous, stored_responses.background = (
        stores and store is not False,
        previous,
        background is True,
    )
    stored_responses.prepares = stored_responses.connected and extras.pop("generate", None) is False
    return _said_by(previous, stored_responses), partial(_referred, stored_responses)


def _said_by(previous: str | None, stored_responses: StoredResponses) -> list[Message]:
    if previous is None:
        return []
    if (found := stored_responses.found.get(previous)) is None:
        raise RequestError(
            f"Previous response with id {shortened(previous)!r} not found.",
            param="previous_response_id",
            backend_code="previous_response_not_found",
        )
    if (status := found.body.get("status")) not in ("completed", "incomplete"):
        raise RequestError(
            f"previous_response_id: expected a completed or incomplete response; {shortened(previous)!r} is {status}.",
            param="previous_response_id",
        )
    return found.messages


def _referred(stored_responses: StoredResponses, node: Node) -> Message:
    item_id = node.need_string("id")
    for found in stored_responses.found.values():
        for message in found.messages:
            if id_of(message) == item_id:
                return message
    raise RequestError(
        f"{node.path}: Item with id {shortened(item_id)!r} not found. Items whose ids this bridge created are "
        "stored with their response, unless its store is false; send the item itself.",
        code=ErrorCode.NOT_FOUND,
        param=node.path,
        backend_code="item_not_found",
    )


def _no_reference(node: Node) -> Message:
    raise RequestError(
        f"{node.at('type')}: item_reference needs stored responses, which this route does not store; "
        "send the item itself.",
        param=node.at("type"),
    )


def _refuse(name: str, reason: str) -> None:
    raise RequestError(f"{name}: not supported, since {reason}.", param=name)


def _instructions(body: Node) -> list[Message]:
    text = body.string("instructions")
    return (
        []
        if text is None
        else [Message("system", [Text(text)], extras=noted(instructions=True), places=("instructions",))]
    )


def _set_wanted(request: Request, body: Node, extras: dict[str, Any]) -> None:
    """What of the answer is asked for: reasoning in either form, and log probabilities. Other values travel on."""
    included = body.strings("include") or []
    if _TRANSLATED.issuperset(included):
        extras.pop("include", None)
    request.encrypted_reasoning = ENCRYPTED in included
    if LOGPROBS in included:
        request.logprobs = extras.pop("top_logprobs", None) or 0
