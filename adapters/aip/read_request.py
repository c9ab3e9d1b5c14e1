"""An inquiry -> Request."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.contract import Context, WireRequest
from bridge.dialects.aip.content import asked_part
from bridge.dialects.aip.wire import AgentMessage, ContentItem, SessionStatus, TaskInfo, TaskStatus
from bridge.errors import RequestError, shortened
from bridge.model import HistoryMode, Message, Request, Text

NAME = "aip"
CONTENT_TYPE = "application/grpc+proto"
_ASKS = (SessionStatus.START_QUEST, SessionStatus.HOLD_QUEST)


@dataclass(frozen=True, slots=True)
class Inquiry:
    """The ids of the message that an answer belongs to."""

    sender_id: str = ""
    receiver_id: str = ""
    session_id: str = ""
    message_id: str = ""
    task_id: str = ""
    parent_task_ids: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request | None) -> Inquiry:
        """Return the extras of `decode_request`; an empty dict for a request of another dialect."""
        noted = request.extra(NAME).get("inquiry") if request is not None else None
        return noted if isinstance(noted, Inquiry) else cls()

    @classmethod
    def in_message(cls, message: AgentMessage) -> Inquiry:
        task = message.task_info or TaskInfo()
        return cls(
            message.sender_id,
            message.receiver_id,
            message.session_id,
            message.message_id,
            task.task_id,
            list(task.parent_task_ids),
        )

    def answer(
        self, context: Context, status: SessionStatus, task: TaskStatus, items: list[ContentItem]
    ) -> AgentMessage:
        """A message that answers this one."""
        return AgentMessage(
            self.receiver_id,
            self.sender_id,
            self.session_id or context.thread_id or "",
            status,
            TaskInfo(self.task_id, self.parent_task_ids, task),
            context.make_id("msg"),
            self.message_id,
            items,
        )


def need_messages(wire: WireRequest) -> None:
    """Raises `RequestError` when the request says that its body is something else; saying nothing is fine."""
    declared = wire.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared and declared not in (CONTENT_TYPE, "application/grpc"):
        raise RequestError(f"content-type: expected {CONTENT_TYPE}, got {shortened(declared)!r}.", param="content-type")


def decode_request(wire: WireRequest) -> Request:
    """Return the request in one message. Raises `RequestError` for invalid bytes, and for messages without a
    request.
    """
    need_messages(wire)
    try:
        message = AgentMessage.from_bytes(wire.body)
    except ValueError as error:
        raise RequestError(f"body: expected an AgentMessage, got bytes that are not one ({error}).") from None
    if message.session_status not in _ASKS:
        status = status_name(message.session_status)
        raise RequestError(f"session_status: expected START_QUEST or HOLD_QUEST, got {status}.", param="session_status")
    if not message.session_id:
        raise RequestError("Missing session_id in START_QUEST", param="session_id")
    told = [(f"content[{n}]", part) for n, item in enumerate(message.content) if (part := asked_part(item)) is not None]
    parts, places = [part for _, part in told], ("content", *(place for place, _ in told))
    return Request(
        [Message("user", parts or [Text("")], message.message_id or None, places=places)],
        thread_id=message.session_id,
        user_id=message.sender_id or None,
        stream=True,
        history=HistoryMode.DELTA,
        extras={NAME: {"inquiry": Inquiry.in_message(message)}},
    )


def status_name(status: int) -> str:
    """The status as the schema names it; a number that it does not know as that."""
    return SessionStatus(status).name if status in list(SessionStatus) else str(int(status))
