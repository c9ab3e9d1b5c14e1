"""The bridge as an agent: the calls of editors, and the results of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bridge.contract import Context, Feature, WireRequest
from bridge.contract.optional.rpc import (
    CancelCall,
    CancelPrompt,
    ChooseModel,
    EndSession,
    Greet,
    ListSessions,
    NewSession,
    Note,
    OpenSession,
    Params,
    Prompt,
    RpcCall,
    RpcService,
    RpcSession,
)
from bridge.dialects.acp.options import FrontOptions
from bridge.dialects.acp.wire import (
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    NAME,
    VERSION,
    Wire,
    own,
    read_block,
    text_block,
    write_block,
)
from bridge.dialects.acp.write_answer import UPDATE, Calls, input_value, result_fields, uuid_of
from bridge.errors import RequestError, Unsupported
from bridge.model import (
    HistoryMode,
    Message,
    Part,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from bridge.model.jsontext import dict_of
from bridge.toolkit import Node, body_of
from bridge.toolkit.check import wrong

REQUESTS = frozenset({
    "initialize", "authenticate", "session/new", "session/load", "session/resume", "session/list", "session/close",
    "session/delete", "session/set_mode", "session/set_config_option",
    "session/set_model", "session/prompt",
})  # fmt: skip
NOTIFICATIONS = frozenset({"session/cancel", "$/cancel_request"})

MODEL = "model"
"""The id of the option that chooses the model."""

_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]|\\\\")
_NEEDS: dict[str, Feature] = {"image": Feature.IMAGE_INLINE, "audio": Feature.AUDIO_INLINE}


@dataclass(frozen=True, slots=True)
class Client:
    """What is known of an editor: whether it can show forms."""

    has_forms: bool = False


# ------------------------------------------------------------------ calls


def decode_call(method: str, params: Any, service: RpcService) -> RpcCall:
    """Return what a call means. Raises `RequestError`, which names the parameter."""
    node = Node.of({} if params is None else params, "params")
    node.path = ""  # parameters are named as the protocol does
    match method:
        case "initialize":
            return _greet(node)
        case "session/new":
            ignored = _servers(node, service)
            return NewSession(_about(node), ignored)
        case "session/load" | "session/resume":
            ignored = _servers(node, service)
            return OpenSession(_session(node), _about(node), replays=method == "session/load", ignored=ignored)
        case "session/list":
            folder = node.string("cwd")
            return ListSessions({} if folder is None else {"cwd": folder}, _cursor(node))
        case "session/close" | "session/delete":
            return EndSession(_session(node), deletes=method == "session/delete")
        case "session/set_config_option":
            return _choose(node)
        case "session/set_model":
            return ChooseModel(_session(node), node.need_string("modelId"), "modelId")
        case "session/prompt":
            return _prompt(node, service)
        case "session/cancel":
            return CancelPrompt(_session(node))
        case "$/cancel_request":
            return CancelCall(node.get("requestId"))
        case "authenticate":
            raise RequestError("methodId: this agent has no methods of authentication.", param="methodId")
        case "session/set_mode":
            raise RequestError("modeId: the sessions of this agent have no modes.", param="modeId")
    raise RequestError(f"method: {method!r} is not a call of this protocol.", param="method")


def _greet(node: Node) -> Greet:
    version = node.get("protocolVersion")
    if isinstance(version, bool) or not isinstance(version, int):
        wrong("protocolVersion", "a whole number", version, missing="protocolVersion" not in node.value)
    found = node.object("clientCapabilities")
    # Version 2 has other names. Its clients are answered with version 1, and speak that or leave.
    found = found or node.object("capabilities")
    forms = dict_of(found.get("elicitation")).get("form") if found is not None else None
    return Greet(Client(has_forms=isinstance(forms, dict)))


def _session(node: Node) -> str:
    return node.need_string("sessionId")


def _about(node: Node) -> dict[str, Any]:
    folder = node.need_string("cwd")
    if not _ABSOLUTE.match(folder):
        wrong("cwd", "an absolute path", folder)
    about: dict[str, Any] = {"cwd": folder}
    if more := node.array("additionalDirectories"):
        for index, each in enumerate(more):
            if not isinstance(each, str) or not _ABSOLUTE.match(each):
                wrong(f"additionalDirectories[{index}]", "an absolute path", each)
        about["additionalDirectories"] = more
    return about


def _servers(node: Node, service: RpcService) -> tuple[str, ...]:
    """Return the names of the MCP servers that the editor offers. None is started: they are commands of a stranger."""
    names = tuple(each.string("name") or "unnamed" for each in node.objects("mcpServers"))
    options = service.options
    if names and isinstance(options, FrontOptions) and options.mcp_servers == "refuse":
        raise Unsupported("mcpServers: this agent starts no MCP servers (option mcp_servers).", param="mcpServers")
    return names


def _cursor(node: Node) -> int:
    cursor = node.string("cursor")
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 10):
        wrong("cursor", "the nextCursor of an earlier page", cursor)
    return int(cursor)


def _choose(node: Node) -> ChooseModel:
    session_id, option = _session(node), node.need_string("configId")
    if option != MODEL:
        wrong("configId", f"one of {MODEL}", option)
    return ChooseModel(session_id, node.need_string("value"), "value")


def _prompt(node: Node, service: RpcService | None) -> Prompt:
    session_id = _session(node)
    if not node.need_array("prompt"):
        raise RequestError("prompt: expected at least one content block, got none.", param="prompt")
    blocks = list(node.objects("prompt"))
    parts = [_part(block, service) for block in blocks]
    places = ("prompt", *(block.path for block in blocks))
    notes = {"_meta": meta} if (meta := dict_of(node.get("_meta"))) else {}
    request = Request(
        [Message("user", parts, places=places)],
        thread_id=session_id,
        history=HistoryMode.DELTA,
        extras={NAME: {"notes": notes}} if notes else None,
    )
    return Prompt(session_id, request)


def _part(block: Node, service: RpcService | None) -> Part:
    needed = _NEEDS.get(str(block.get("type")))
    if service is not None and needed is not None and needed not in service.features:
        text = f"{block.path}: this agent takes no content of type {block.get('type')} (see promptCapabilities)."
        raise Unsupported(text, param=block.path)
    return read_block(block)


def decode_request(wire: WireRequest, context: Context) -> Request:
    """Return the request of a prompt, which is the whole JSON-RPC request."""
    body = body_of(wire)
    body.need_one_of("method", ("session/prompt",))
    request = _prompt(body.need_object("params"), None).request
    request.model = context.model
    return request


# ------------------------------------------------------------------ results


def greeting(service: RpcService) -> Params:
    """Return the result of `initialize`."""
    kept = ("list", "resume", "delete") if service.stores else ()
    return {
        "protocolVersion": VERSION,
        "agentCapabilities": {
            "loadSession": service.stores,
            "promptCapabilities": {
                "image": Feature.IMAGE_INLINE in service.features,
                "audio": Feature.AUDIO_INLINE in service.features,
                "embeddedContext": True,
            },
            "mcpCapabilities": {"http": False, "sse": False},
            "sessionCapabilities": {name: {} for name in ("close", *kept)},
        },
        "authMethods": [],
        "agentInfo": {"name": "dialect-bridge", "title": "dialect-bridge", "version": service.version},
    }


def opened(session: RpcSession, call: NewSession | OpenSession) -> Params:
    """Return the result of `session/new`, `session/load` or `session/resume`."""
    result: Params = {"sessionId": session.id} if isinstance(call, NewSession) else {}
    if options := options_of(session):
        result["configOptions"] = options
        names = [{"modelId": name, "name": name} for name in session.models]
        result["models"] = {"currentModelId": options[0]["currentValue"], "availableModels": names}
    if call.ignored:
        result["_meta"] = {"dialectBridge": {"mcpServers": "ignored"}}
    return result


def options_of(session: RpcSession) -> list[Wire]:
    """Return the options of a session; none if there is no choice."""
    if len(session.models) < 2:
        return []
    option: Wire = {
        "id": MODEL,
        "name": "Model",
        "category": "model",
        "type": "select",
        "currentValue": session.model or session.models[0],
        "options": [{"value": name, "name": name} for name in session.models],
    }
    return [option]


def listed(sessions: Sequence[RpcSession], following: int | None) -> Params:
    """Return the result of `session/list`."""
    rows = []
    for session in sessions:
        row: Wire = {"sessionId": session.id, "cwd": session.about.get("cwd") or "/"}
        if session.title:
            row["title"] = session.title
        if session.updated_at:
            row["updatedAt"] = datetime.fromtimestamp(session.updated_at, UTC).isoformat(timespec="milliseconds")
        rows.append(row)
    result: Params = {"sessions": rows}
    return result if following is None else {**result, "nextCursor": str(following)}


# ------------------------------------------------------------------ replay


def replay(session_id: str, messages: Sequence[Message]) -> list[Note]:
    """Return a conversation as updates: whole texts, and calls with their results."""
    results = {p.call_id: p for message in messages for p in message.parts if isinstance(p, ToolResult)}
    calls, updates = Calls(), list[Wire]()
    for number, message in enumerate(messages):
        for index, part in enumerate(message.parts):
            if message.role == "user" or not isinstance(part, (ToolCall, ToolResult)):
                updates += calls.end_open(ran=message.role != "user", ran_last=True)
            message_id = uuid_of(session_id, f"{number}/{0 if message.role == 'user' else index}")
            updates += _replayed(message.role, part, message_id, calls, results)
    updates += calls.end_open(ran=False, ran_last=False)
    return [(UPDATE, {"sessionId": session_id, "update": update}) for update in updates]


def _replayed(role: str, part: Part, message_id: str, calls: Calls, results: Mapping[str, ToolResult]) -> list[Wire]:
    if isinstance(part, ToolCall):
        call = calls.update(part.call_id, part.name, IN_PROGRESS, rawInput=input_value(part.arguments))
        result = results.get(part.call_id)
        return [call] if result is None else [call, _result(result, calls)]
    if isinstance(part, ToolResult):
        return [] if part.call_id in calls.states else [_result(part, calls)]
    if role == "user":
        kind, block = "user_message_chunk", _as_sent(part)
    elif isinstance(part, Reasoning):
        kind, block = "agent_thought_chunk", text_block(part.text)
    else:
        kind, block = "agent_message_chunk", write_block(part)
    if block.get("type") == "text" and not block.get("text"):
        return []
    return [{"sessionUpdate": kind, "messageId": message_id, "content": block}]


def _result(part: ToolResult, calls: Calls) -> Wire:
    return calls.update(part.call_id, part.name, FAILED if part.is_error else COMPLETED, **result_fields(part.parts))


def _as_sent(part: Part) -> Wire:
    """Return a part of the user as the block that it came in."""
    if isinstance(part, Text) and (resource := dict_of(own(part.extras).get("resource"))):
        return {"type": "resource", "resource": resource}
    return write_block(part)
