"""An agent's answers -> events, for one turn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, Frame, FrameLike
from bridge.dialects.aip.content import EXTRAS, part_of
from bridge.dialects.aip.errors import LONGEST, failure_of
from bridge.dialects.aip.options import BackOptions
from bridge.dialects.aip.read_request import NAME
from bridge.dialects.aip.wire import AgentMessage, SessionStatus, TaskStatus
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, PartKind, Raw, Text, ToolCall, UsageReported
from bridge.model.jsontext import loads
from bridge.toolkit.counts import COUNTS

_MESSAGE = "answer"


class Decoder:
    """Consecutive messages of the answer become one message of the model: their borders mean nothing.

    `over`: the session ended with this turn. `heard`: some content came; `finished`: its task did. `answered`: earlier
    turns had content, which this one continues.
    """

    def __init__(self, context: Context) -> None:
        options = BackOptions.of(context)
        self._builder = context.builder()
        self._error = re.compile(options.error_pattern)
        # Asked to end, an agent says goodbye; the answer came before.
        self.asked_to_stop = options.session == "per_request"
        self.heard = self.answered = False
        self.over = False

    @property
    def finished(self) -> bool:
        return self._builder.finishing

    @property
    def done(self) -> bool:
        """True after the terminal event."""
        return self._builder.done

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        for frame in frames:
            try:
                message = AgentMessage.from_bytes(frame.data if isinstance(frame, Frame) else frame)
            except ValueError:
                text = "The agent sent something that is no message of this protocol."
                self._builder.fail(Failure(ErrorCode.BACKEND_PROTOCOL, text))
                break
            self._message(message)
        return self._builder.take()

    def end_turn(self) -> list[Event]:
        """The turn is probably over; the session continues."""
        self._builder.finish()
        self._builder.end()
        return self._builder.take()

    def called(self, calls: Sequence[ToolCall]) -> list[Event]:
        """The agent waits for results of the client's tools: the turn is over with these calls."""
        for call in calls:
            self._builder.add(_MESSAGE, call)
        return self.end_turn()

    def close(self, failure: Failure | None = None) -> list[Event]:
        if failure is None and not self._builder.finishing:
            failure = Failure(ErrorCode.TRUNCATED_STREAM, "The peer ended the session before its answer was complete.")
        self._builder.close(failure)
        return self._builder.take()

    # ------------------------------------------------------------------ messages

    def _message(self, message: AgentMessage) -> None:
        task = message.task_info.task_status if message.task_info else TaskStatus.CREATE
        if message.session_status == SessionStatus.HOLD_RESPONSE:
            if task == TaskStatus.BREAK:
                self._builder.fail(failure_of(message.text))
                return
            self._content(message)
            self.heard = True
            if task == TaskStatus.FINISH:
                self._builder.finish()
        elif message.session_status == SessionStatus.STOP_RESPONSE:
            self.over = True
            self._stop(message, task)
        else:
            # Inquiries do not come from the answering side; the page knows of none that does so.
            self._builder.emit(Raw(NAME, {"session_status": int(message.session_status)}))

    def _stop(self, message: AgentMessage, task: int) -> None:
        if task == TaskStatus.BREAK or (not self.heard and self._error.search(message.text[:LONGEST])):
            self._builder.fail(failure_of(message.text))
            return
        if not self.asked_to_stop and not self.heard and not message.content:
            self._builder.fail(Failure(ErrorCode.BACKEND_ERROR, "The agent ended the session without an answer."))
            return
        if not ((self.heard or self.answered) and self.asked_to_stop):
            self._content(message)
        self._builder.finish()
        self._builder.end()

    def _content(self, message: AgentMessage) -> None:
        builder = self._builder
        builder.message(_MESSAGE, message_id=message.message_id or None)
        for item in message.content:
            if item.embedded is not None and item.embedded.startswith(EXTRAS):
                self._extras(item.embedded)
                continue
            part = part_of(item)
            if isinstance(part, Text):
                builder.flow(_MESSAGE, PartKind.TEXT, part.text)
            elif part is not None:
                builder.add(_MESSAGE, part)

    def _extras(self, data: bytes) -> None:
        """Read fields that the wire does not define, from a peer that sends them."""
        try:
            payload: Any = loads(data)
        except ValueError:
            return
        usage = payload.get("usage") if isinstance(payload, dict) else None
        if isinstance(usage, dict):
            counts = {name: usage[name] for name in COUNTS if type(usage.get(name)) is int}
            self._builder.usage(UsageReported(**counts))
