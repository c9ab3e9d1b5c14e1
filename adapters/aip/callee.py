"""A session as the answering side (page, sections 5 and 10): what is an inquiry, and when the caller has had enough.

And as the one in between, who has to end it well for a caller that hung up: a cancel ends common agents for everybody.
"""

from __future__ import annotations

from bridge.codec import Context
from bridge.codec.session import CalleeSession

from .encoder import Encoder
from .messages import AgentMessage, ContentItem, SessionStatus, TaskStatus
from .options import FrontOptions
from .request import Inquiry

_ASKS = (SessionStatus.START_QUEST, SessionStatus.HOLD_QUEST)


class Callee(CalleeSession):
    """See `bridge.codec.session.CalleeSession`. Peers do odd things that are taken as they mean them (section 5)."""

    def __init__(self, agent_id: str, options: FrontOptions, first: AgentMessage) -> None:
        self.name = first.session_id
        self.owner = first.sender_id
        self.stopping = False
        self.cancels = options.stop == "cancel"
        self.flush = options.flush if options.stream == "delta" else 0.0
        self._agent_id = agent_id
        self._options = options
        self._last = Inquiry.in_message(first)
        self._encoder: Encoder | None = None

    def feed(self, frame: bytes) -> bytes | None:
        """A second START_QUEST is a HOLD_QUEST, a changed receiver or session id is none; nothing follows a stop."""
        if self.stopping:
            return None
        try:
            message = AgentMessage.from_bytes(frame)
        except ValueError:
            return frame  # refused where it is read, with the words for it
        message.session_id, message.receiver_id = self.name, self._agent_id
        if message.session_status == SessionStatus.STOP_QUEST:
            self.stopping = True
            self._last = Inquiry.in_message(message)
        return message.to_bytes() if message.session_status in _ASKS else None

    def encoder(self, context: Context) -> Encoder:
        self._encoder = Encoder(context)
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
    """See `bridge.codec.session.Relay`."""

    def __init__(self, first: AgentMessage) -> None:
        self.name = first.session_id
        self._sender = first.sender_id
        self._receiver = first.receiver_id
        self._stopping = False

    def passes(self, frame: bytes) -> bool:
        """Nothing follows a STOP_QUEST: no agent answers it, and common ones never answer anybody again (section 5)."""
        if self._stopping:
            return False
        try:
            status = AgentMessage.from_bytes(frame).session_status
        except ValueError:
            return True  # the node's to refuse
        self._stopping = status == SessionStatus.STOP_QUEST
        return True

    def goodbye(self) -> list[bytes]:
        if self._stopping:
            return []
        self._stopping = True
        status, content = SessionStatus.STOP_QUEST, [ContentItem(text="bye")]
        return [AgentMessage(self._sender, self._receiver, self.name, status, content=content).to_bytes()]
