"""Request -> the inquiries of a session.

AIP has no roles: what came before the last message is written before it, as lines that name their speakers. The text
item comes first, always: handlers read the text of the first item, and one that finds none fails its agent.
"""

from __future__ import annotations

from bridge.contract import Context, WireRequest
from bridge.dialects.aip.capabilities import CAPABILITIES
from bridge.dialects.aip.content import item_of
from bridge.dialects.aip.options import BackOptions
from bridge.dialects.aip.read_request import CONTENT_TYPE, NAME, Inquiry
from bridge.dialects.aip.wire import AgentMessage, ContentItem, SessionStatus, TaskInfo
from bridge.errors import ErrorCode, RequestError, Unsupported
from bridge.model import (
    Inline,
    Media,
    Message,
    Part,
    Request,
    ToolCall,
    ToolResult,
    as_text,
)
from bridge.model.parts import Data, Refusal, Text, after_last_answer
from bridge.toolkit.fields import Fields
from bridge.toolkit.message_losses import MessageLosses

CALL_AGENT = "/grpc_service.AgentService/CallAgent"
ROUTE_AGENT = "/grpc_service.GatewayService/RouteAgentCalling"
_HEADERS = {"content-type": CONTENT_TYPE}
_FIELDS = Fields(NAME, carries={"user_id", "sampling.n"})
"""A message has no field of a request but the user's id. More than one answer is refused."""


def encode_request(request: Request, context: Context) -> WireRequest:
    """Return the START_QUEST of a session of its own. Raises `Unsupported` for what the capabilities refuse."""
    body = quest(request, context, context.make_id("agent_session"), SessionStatus.START_QUEST)
    return WireRequest("POST", CALL_AGENT if BackOptions.of(context).direct else ROUTE_AGENT, dict(_HEADERS), body=body)


def quest(request: Request, context: Context, session_id: str, status: SessionStatus) -> bytes:
    """Return one inquiry: the whole conversation for a new session, what is new for one that continues.

    Raises `Unsupported` for what the capabilities refuse, `RequestError` if it does not fit into one message.
    """
    if request.sampling.n is not None and request.sampling.n > 1:
        raise Unsupported("n: an agent gives one answer, expected 1.", param="n")
    _note_losses(request, context)
    options = BackOptions.of(context)
    first = after_last_answer(request.messages)
    only_new = status is SessionStatus.HOLD_QUEST or options.history == "last"
    content = _content(request.messages, first if only_new else 0, context)
    body = message(context, session_id, status, content).to_bytes()
    if len(body) > options.max_message:
        text = f"messages: the inquiry has {len(body)} bytes, more than the limit of {options.max_message}."
        raise RequestError(text, code=ErrorCode.TOO_LARGE, param="messages")
    return body


def stop_quest(context: Context, session_id: str) -> bytes:
    """Return the message that asks the agent to end the session. It has a text item, as some agents crash without
    one.
    """
    return message(context, session_id, SessionStatus.STOP_QUEST, [ContentItem(text="bye")]).to_bytes()


def message(context: Context, session_id: str, status: SessionStatus, content: list[ContentItem]) -> AgentMessage:
    """Return a message of the bridge."""
    options, request = BackOptions.of(context), context.request
    inquiry = Inquiry.of(request)
    user = request.user_id if request is not None else None
    return AgentMessage(
        f"{options.sender_id}_{user}" if user else options.sender_id,
        options.agent or context.model or "",
        session_id,
        status,
        TaskInfo(context.make_id("task"), [inquiry.task_id] if inquiry.task_id else []),
        context.make_id("msg"),
        "",
        content,
    )


# ---------------------------------------------------------------------- content


def _content(messages: list[Message], first: int, context: Context) -> list[ContentItem]:
    turns: list[tuple[str, str]] = []
    items: list[ContentItem] = []
    for place, each in enumerate(messages):
        texts: list[str] = []
        for part in each.parts:
            _one(part, messages, texts, items, context, place >= first)
        if place >= first and (texts or each.parts):
            turns.append((_speaker(each), "".join(texts)))
    if len(turns) == 1 and turns[0][0] == "user":
        return [ContentItem(text=turns[0][1]), *items]
    return [ContentItem(text="\n".join(f"[{who}] {text}" for who, text in turns)), *items]


def _speaker(each: Message) -> str:
    if each.role == "tool":
        result = next((p for p in each.parts if isinstance(p, ToolResult)), None)
        return f"tool:{(result.name if result else None) or each.name or 'tool'}"
    return "system" if each.role == "developer" else each.role


def _one(
    part: Part, messages: list[Message], texts: list[str], items: list[ContentItem], context: Context, wanted: bool
) -> None:
    match part:
        case Text() | Refusal():
            texts.append(part.text)
        case Data() | ToolCall():
            texts.append(as_text(part))
        case ToolResult():
            for inner in part.parts:
                _one(inner, messages, texts, items, context, wanted)
        case Media():
            item = _item(part)
            if item is None:
                texts.append(as_text(part))
            elif wanted:
                items.append(item)


def _item(part: Part) -> ContentItem | None:
    return item_of(part) if isinstance(part, Media) and isinstance(part.source, Inline) else None


_LOSSES = MessageLosses(CAPABILITIES, takes=lambda part, role: _item(part) is not None)


def _note_losses(request: Request, context: Context) -> None:
    options = BackOptions.of(context)
    carried = {"tools": options.expose_client_tools, "thread_id": options.session == "keep"}
    _FIELDS.write(request, context.lost, carries={name for name, is_carried in carried.items() if is_carried})
    _LOSSES.note(request.messages, context.lost, as_text=options.unsupported_media == "text")
