"""A session as the answering side: what is an inquiry, and when the caller has had enough.

It also relays sessions, and has to end them well for a caller that hung up: a cancel stops common agents for everyone.
"""

from __future__ import annotations

from bridge.contract import Context
from bridge.contract.optional.sessions import CalleeSession
from bridge.dialects.aip.options import FrontOptions
from bridge.dialects.aip.proto import bytes_field, fields, text_field
from bridge.dialects.aip.read_request import Inquiry
from bridge.dialects.aip.wire import AgentMessage, ContentItem, SessionStatus, TaskStatus
from bridge.dialects.aip.write_answer import TurnEncoder

_SESSION_ID, _STATUS, _CONTENT, _TEXT = 3, 4, 8, 1
"""Numbers of fields that are read, or appended to a message that is forwarded."""
_ASKS = (SessionStatus.START_QUEST, SessionStatus.HOLD_QUEST)


class Callee(CalleeSession):
    """See `bridge.contract.optional.sessions.CalleeSession`. Peers do odd things that are taken as they mean them."""

    def __init__(self, agent_id: str, options: FrontOptions, first: AgentMessage) -> None:
        self.name = first.session_id
        self.owner = first.sender_id
        self.stopping = False
        self.cancels = options.stop == "cancel"
        self.flush = options.flush if options.stream == "delta" else 0.0
        self._agent_id = agent_id
        self._options = options
        self._last = Inquiry.in_message(first)
        self._encoder: TurnEncoder | None = None

    def feed(self, frame: bytes) -> bytes | None:
        """A second START_QUEST is a HOLD_QUEST, a changed receiver or session id is an error; nothing follows a
        stop.
        """
        if self.stopping:
            return None
        try:
            message = AgentMessage.from_bytes(frame)
        except ValueError:
            return frame  # refused where it is read, with its own message
        message.session_id, message.receiver_id = self.name, self._agent_id
        if message.session_status == SessionStatus.STOP_QUEST:
            self.stopping = True
            self._last = Inquiry.in_message(message)
        return message.to_bytes() if message.session_status in _ASKS else None

    def encoder(self, context: Context) -> TurnEncoder:
        self._encoder = TurnEncoder(context)
        return self._encoder

    @property
    def over(self) -> bool:
        return self._encoder is not None and self._encoder.stops

    def farewell(self) -> list[bytes]:
        context = Context(f"{self.name}_end", self.name)
        item = ContentItem(text=self._options.farewell)
        message = self._last.answer(context, SessionStatus.STOP_RESPONSE, TaskStatus.FINISH, [item])
        message.sender_id = self._agent_id
        return [message.to_bytes()]


class Relayed:
    """See `bridge.contract.optional.sessions.Relay`."""

    def __init__(self, first: AgentMessage) -> None:
        self.name = first.session_id
        self._sender = first.sender_id
        self._receiver = first.receiver_id
        self._stopping = False

    def onwards(self, frame: bytes) -> bytes | None:
        """Read one message. Common agents hang after another session's id, no content, or anything after a
        STOP_QUEST (docs/dialects/aip.md); here the first two are corrected, and messages after a STOP_QUEST are
        ignored.
        """
        if self._stopping:
            return None
        try:
            message = AgentMessage.from_bytes(frame)
        except ValueError:
            return frame  # the node's to refuse
        self._stopping = message.session_status == SessionStatus.STOP_QUEST
        # Appended to the message, which stays unchanged: of two ids the last one counts, and contents add up.
        if message.session_id != self.name:
            frame += text_field(_SESSION_ID, self.name)
        return frame if message.content else frame + bytes_field(_CONTENT, text_field(_TEXT, ""))

    def ends(self, frame: bytes) -> bool:
        """The reference gateway ends its side after a STOP_RESPONSE, whether or not the node ends the call."""
        try:
            over = any(number == _STATUS and value == SessionStatus.STOP_RESPONSE for number, value in fields(frame))
        except ValueError:
            return False
        self._stopping = self._stopping or over
        return over

    def goodbye(self) -> list[bytes]:
        if self._stopping:
            return []
        self._stopping = True
        status, content = SessionStatus.STOP_QUEST, [ContentItem(text="bye")]
        return [AgentMessage(self._sender, self._receiver, self.name, status, content=content).to_bytes()]
