"""AgentScope stream -> events, for one run: all three written forms and the habits of real servers.

The wire says most things several times - as deltas, as a completed content, in the completed message, in the
response's output - and every server leaves some of them out. So each content remembers what was passed on, and
every later telling only adds what is missing.
"""

from __future__ import annotations

from typing import Any

from bridge.codec import Context
from bridge.codec.decoder import JsonDecoder
from bridge.codec.jsontext import repaired
from bridge.dialects.agentscope.approvals import interrupted
from bridge.dialects.agentscope.errors import failure_of, has_error
from bridge.dialects.agentscope.fields import (
    ENDS,
    FINISHES,
    REASONS,
    bare_failure,
    end_of,
    kind_of,
    object_of,
    role_of,
    said_of_end,
    status_of,
)
from bridge.dialects.agentscope.messages import Content, Message, is_known
from bridge.dialects.agentscope.notes import NAME, beside, choice_of
from bridge.dialects.agentscope.objects import usage_report
from bridge.dialects.agentscope.reading import Writer
from bridge.dialects.agentscope.spelling import plain, seconds, text_of
from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason, Heartbeat, MessageStatus, Raw

# Of a content, the names of its message's id and of its number, in the two spellings.
_NUMBERS = {"msg_id": "sequence_number", "msgId": "sequenceNumber"}


class Decoder(JsonDecoder):
    """One per run."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._writer = Writer(self.builder, context.make_id)
        self._messages: dict[str, Message] = {}
        self._seen: list[Message] = []
        self._implicit: Message | None = None
        # The last end other than completion that a message or a content told, with whose it was and what had been said.
        self._noted: tuple[Failure | FinishReason, Message, int] | None = None
        self._reason: FinishReason | None = None
        self._last: tuple[Content, str, object, object] | None = None

    def read(self, event: dict[str, Any], name: str | None) -> None:
        """Most events are another piece of the text that the last one belonged to."""
        last = self._last
        if last is not None and event.get("delta") is True:
            content, key, msg_id, index = last
            text = event.get("text")
            if type(text) is str and event.get(key) == msg_id and event.get("index") == index:
                content.pieces.append(text)
                self.builder.delta(content, text)
                part = self.builder.part(content)
                self.repeat.learn(event, ("text",), part, number=_NUMBERS[key], texts=content.pieces)
                return
        self._event(event)

    def read_unpaired(self, event: dict[str, Any], name: str | None) -> None:
        text = event.get("text")
        self._event(repaired(event), text if isinstance(text, str) else None)

    def end_mark(self) -> None:
        """The end mark of other protocols; an AgentScope stream ends with its response."""
        self.flush()
        self.builder.close()

    def flush(self) -> None:
        """Read what was withheld though it was complete."""
        self._writer.flush_held()

    def malformed(self, data: bytes) -> None:
        self.fail(Failure(ErrorCode.BACKEND_PROTOCOL, "The backend's stream holds an event that is not JSON."))

    def _event(self, event: dict[str, Any], unpaired: str | None = None) -> None:
        self._last = None
        key = "msgId" if "msgId" in event else "msg_id"
        event = plain(event)
        match object_of(event):
            case "content":
                self._on_content(event, unpaired, key)
            case "message":
                self._on_message(event)
            case "response":
                self._on_response(event)
            case "error":
                self._writer.flush_held()
                self.builder.fail(bare_failure(event), {NAME: {"bare": True}})
            case _:
                pass

    # ------------------------------------------------------------------ contents

    def _on_content(self, event: dict[str, Any], unpaired: str | None, key: str) -> None:
        message = self._owner(event)
        if message.done:
            return
        content = message.content(event)
        if content is None:
            return
        self._writer.tell(message, content, event, unpaired)
        self._note_end(message, event)
        if content.streams and unpaired is None and event.get("msg_id"):
            self._last = (content, key, event.get("msg_id"), event.get("index"))

    def _owner(self, event: dict[str, Any]) -> Message:
        """The message of a content; one that was never opened is opened by what the content is (rule 6)."""
        msg_id = event.get("msg_id")
        if not isinstance(msg_id, str) or not msg_id:
            last = self._seen[-1] if self._seen else None
            if last is not None and not last.done and last.takes(event):
                return last
            # Current Java never sends the messages of its texts (capture `java_snakecase_tool`).
            if self._implicit is None:
                self._implicit = self._new(None, "message", "assistant")
            return self._implicit
        known = self._messages.get(msg_id)
        if known is not None:
            return known
        data = event.get("data") if event.get("type") == "data" else None
        kind = "message"
        if isinstance(data, dict) and "arguments" in data:
            kind = "plugin_call"
        elif isinstance(data, dict) and "output" in data:
            kind = "plugin_call_output"
        message = self._new(msg_id, kind, "assistant")
        message.implied = True
        return message

    def _new(self, msg_id: str | None, kind: str, role: str) -> Message:
        """A message not seen before; whatever an earlier one holds back has come as far as it will."""
        self._writer.flush_held()
        message = Message(msg_id, kind, role)
        self._seen.append(message)
        if msg_id is not None:
            self._messages[msg_id] = message
        return message

    def _end_implicit(self) -> None:
        if self._implicit is not None:
            message, self._implicit = self._implicit, None
            self._finish(message, MessageStatus.COMPLETED)

    # ------------------------------------------------------------------ messages

    def _on_message(self, event: dict[str, Any]) -> None:
        kind = kind_of(event)
        if kind == "heartbeat":
            self.builder.emit(Heartbeat())
            return
        msg_id = event.get("id")
        msg_id = msg_id if isinstance(msg_id, str) and msg_id else None
        message = self._messages.get(msg_id) if msg_id else None
        if message is not None and message.done and message.kind != kind:
            # Some servers give the thinking and the text that follows it one id.
            message = None
        last = self._seen[-1] if self._seen else None
        if message is None and last is not None and self._is_end_of(last, kind, event):
            message, self._implicit = last, None
        self._end_implicit()
        if message is None:
            message = self._new(msg_id, kind, role_of(event))
            message.done = self._writer.knows(kind, event)
        self._tell(message, event)

    @staticmethod
    def _is_end_of(last: Message, kind: str, event: dict[str, Any]) -> bool:
        """Return whether a completed message without its id is the one that was opened, or whose contents arrived."""
        unnamed = last.id is None and not last.done and last.kind == kind
        return unnamed and bool(status_of(event)) and last.repeated_by(event)

    def _tell(self, message: Message, event: dict[str, Any]) -> None:
        """Read a message object, on its own or inside the response's output."""
        self._note(event)
        if message.done:
            return
        if message.implied:
            message.implied = False
            message.kind = kind if is_known(kind := kind_of(event)) else message.kind
        metadata = event.get("metadata")
        if isinstance(metadata, dict):
            message.metadata.update(metadata)
        message.usage = event.get("usage") or message.usage
        if message.kind == "message" and not message.contents:
            message.role = role_of(event)
        end = said_of_end(event)
        status = end.get("status") or status_of(event)
        if message.kind == "error" and (status or event.get("code") is not None):
            self._error(message, event)
        elif status:
            message.end = end
            self._complete(message, event, ENDS[status])
        elif message.known:
            self._contents(message, event, final=False)

    def _note(self, event: dict[str, Any]) -> None:
        report = usage_report(event.get("usage"))
        if report is not None:
            self.builder.usage(report)
        metadata = event.get("metadata")
        if isinstance(metadata, dict):
            reason, model = metadata.get("finish_reason"), metadata.get("model")
            if isinstance(reason, str) and not choice_of(metadata):
                self._reason = FINISHES.get(reason, self._reason)
            if isinstance(model, str):
                self.builder.begin(model=model)

    def _note_end(self, message: Message, event: dict[str, Any]) -> None:
        """The agent reports an end by itself: that of the run, unless visible content follows."""
        end = end_of(event)
        if end is None:
            return
        earlier, _, spoken = self._noted or (None, None, 0)
        # What is around a content that failed ends, too, mostly without a word of its own.
        bare = isinstance(end, FinishReason) or end == failure_of(None)
        told = isinstance(earlier, Failure) and earlier != failure_of(None) and spoken == self._writer.spoken
        if not (bare and told):
            self._noted = end, message, self._writer.spoken

    def _error(self, message: Message, event: dict[str, Any]) -> None:
        """A message of type `error`."""
        error = event.get("error")
        message.done = True
        self._writer.flush_held()
        failure = failure_of(error if has_error(error) else event, status=event.get("status"))
        self._noted = failure, message, self._writer.spoken
        self.builder.emit(Raw(NAME, event))

    def _complete(self, message: Message, event: dict[str, Any], status: MessageStatus) -> None:
        """The message that has ended: contents not seen before are passed on, others get what is missing (rule 8)."""
        if not message.known:
            # A type that nobody here understands passes whole; an empty list means what was accumulated.
            message.done = True
            said = event.get("content")
            items = [plain(i) for i in said if isinstance(i, dict)] if isinstance(said, list) else []
            self.builder.emit(Raw(NAME, {**event, "type": message.kind, "content": items or message.raw}))
        else:
            self._contents(message, event, final=True)
            self._finish(message, status)
        self._note_end(message, event)

    def _contents(self, message: Message, event: dict[str, Any], *, final: bool) -> None:
        """Read the contents of a message object; in one that continues they are snapshots."""
        for content, item in message.retold(event.get("content")):
            status = (status_of(item) or "completed") if final else "in_progress"
            done = content.done
            self._writer.tell(message, content, {**item, "delta": False, "status": status}, None)
            if not done:
                self._note_end(message, item)

    def _finish(self, message: Message, status: MessageStatus) -> None:
        message.done = True
        if status is MessageStatus.COMPLETED and self._noted is not None and self._noted[1] is not message:
            # The agent went on after an end that was no error.
            self._noted = None if isinstance(self._noted[0], FinishReason) else self._noted
        self._writer.finish(message, complete=status is not MessageStatus.FAILED)
        if message.kind == "mcp_approval_request":
            self._approval(message)
        note = {**beside(message.metadata, message.usage), **message.end}
        if message.end:
            self._writer.open_message(message)
        reason = FINISHES.get(text_of(message.metadata.get("finish_reason"))) if choice_of(message.metadata) else None
        self.builder.end_message(message, status, reason, {NAME: note} if note else None)

    def _approval(self, message: Message) -> None:
        mine = {"id": message.id, **beside(message.metadata, message.usage)}
        for content in message.contents.values():
            data = content.value if isinstance(content.value, dict) else {}
            self.builder.interrupt(interrupted(data, message.metadata, mine, self._writer.make_id))

    # ------------------------------------------------------------------ the response

    def _on_response(self, event: dict[str, Any]) -> None:
        self._begin(event)
        self._end_implicit()
        status, error = status_of(event), event.get("error")
        if not status:
            return
        self._output(event.get("output"))
        report = usage_report(event.get("usage"))
        if report is not None:
            self.builder.usage(report)
        if status == "failed" or has_error(error):
            self._fail(failure_of(error, status=status), status)
            return
        for message in self._seen:
            if not message.done:
                self._tell_end(message)
        end, _, spoken = self._noted or (None, None, 0)
        if end == failure_of(None) and status != "completed":
            end = None  # the Java form has no other word for a message that its response cut short
        if isinstance(end, Failure):
            if spoken == self._writer.spoken:
                self._fail(end, status)
                return
            # The agent went on after its error, which only its message tells.
            self.builder.emit(Raw(NAME, {"object": "error", "type": "error"}))
            end = None
        said = {NAME: {"status": status}} if status != "completed" else None
        self.builder.finish(REASONS.get(status) or end or self._reason, said)
        self.builder.end()

    def _fail(self, failure: Failure, status: str) -> None:
        """The run has failed: what is open is over, and a status that hides it is not passed on."""
        self._writer.flush_held()
        for message in self._seen:
            if not message.done and not message.known and message.raw:
                self._complete(message, self._unended(message, "incomplete"), MessageStatus.FAILED)
        said = {"code": failure.backend_code, "status": "failed" if status == "completed" else status}
        self.builder.fail(failure, {NAME: said})

    def _begin(self, event: dict[str, Any]) -> None:
        wire_id, session = event.get("id"), event.get("session_id")
        self.builder.begin(
            created_at=seconds(event.get("created_at")),
            thread_id=session if isinstance(session, str) else None,
            extras={NAME: {"id": wire_id}} if isinstance(wire_id, str) else None,
        )

    def _tell_end(self, message: Message) -> None:
        """A message still open when the response is complete counts as complete; an unused one leaves no trace."""
        if message.known:
            self._finish(message, MessageStatus.COMPLETED)
        elif message.raw:
            self._complete(message, self._unended(message, "completed"), MessageStatus.COMPLETED)

    @staticmethod
    def _unended(message: Message, status: str) -> dict[str, Any]:
        """A message that passes as a whole and whose end never came."""
        return {"object": "message", "id": message.id, "role": message.role, "status": status}

    def _output(self, output: object) -> None:
        """Messages that only the response tells, matched by id, else by position (rule 9)."""
        items = [plain(i) for i in output if isinstance(i, dict)] if isinstance(output, list) else []
        ids = {i["id"] for i in items if isinstance(i.get("id"), str)}
        seen = [m for m in self._seen if m.contents or m.done]
        for place, item in enumerate(items):
            item_id, kind = item.get("id"), kind_of(item)
            if kind == "heartbeat":
                continue
            known = self._messages.get(item_id) if isinstance(item_id, str) else None
            if known is None and place < len(seen) and seen[place].id not in ids and seen[place].kind == kind:
                known = seen[place]
            if known is None:
                known = self._new(item_id if isinstance(item_id, str) and item_id else None, kind, role_of(item))
                known.done = self._writer.knows(kind, item)
            self._tell(known, {**item, "status": status_of(item) or "completed"})
