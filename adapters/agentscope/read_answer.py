"""AgentScope stream -> events, for one run: all three written forms and the variations of real servers.

The protocol sends most data several times - as deltas, as a completed content, in the completed message, in the
response's output - and every server omits some of these. So each content stores what was emitted, and every
repetition only adds what is missing.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import Context
from bridge.dialects.agentscope.approvals import interrupted
from bridge.dialects.agentscope.content_reader import ContentReader
from bridge.dialects.agentscope.errors import failure_of, has_error
from bridge.dialects.agentscope.extras import NAME, choice_of, message_extras
from bridge.dialects.agentscope.fields import (
    ENDS,
    REASONS,
    bare_failure,
    cut_by,
    end_fields,
    end_of,
    kind_of,
    object_of,
    role_of,
    status_of,
)
from bridge.dialects.agentscope.normalization import normalized, seconds
from bridge.dialects.agentscope.objects import usage_report
from bridge.dialects.agentscope.open_messages import Content, Message, is_known
from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason, Heartbeat, MessageStatus, Raw
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.errors import error_in

# Field of a content's message id -> field of its sequence number, in snake_case and camelCase.
_NUMBER_FIELDS = {"msg_id": "sequence_number", "msgId": "sequenceNumber"}


class Decoder(JsonDecoder):
    """Decodes the stream of one run."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._reader = ContentReader(self.builder, context.make_id)
        self._messages: dict[str, Message] = {}
        self._message_order: list[Message] = []
        self._implicit: Message | None = None
        # The last end other than completion of a message or content, with the message and the output count then.
        self._reported_end: tuple[Failure | FinishReason, Message, int] | None = None
        self._reason: FinishReason | Failure | None = None
        self._last_text: tuple[Content, str, object, object] | None = None

    def read(self, event: dict[str, Any], name: str | None) -> None:
        """Read an event; most are further deltas of the text of the previous event."""
        last = self._last_text
        if last is not None and event.get("delta") is True:
            content, key, msg_id, index = last
            text = event.get("text")
            if type(text) is str and event.get(key) == msg_id and event.get("index") == index:
                content.pieces.append(text)
                self.builder.delta(content, text)
                part = self.builder.part(content)
                self.repeat.learn(event, ("text",), part, number=_NUMBER_FIELDS[key], texts=content.pieces)
                return
        self._event(event)

    def end_mark(self) -> None:
        """Read `[DONE]`, the end mark of other protocols; an AgentScope stream ends with its response."""
        self.flush()
        self.builder.close()

    def flush(self) -> None:
        """Emit contents that were withheld although complete."""
        self._reader.flush_pending()

    def malformed(self, data: bytes) -> None:
        self.fail(Failure(ErrorCode.BACKEND_PROTOCOL, "The backend sent an event that is not JSON."))

    def _event(self, event: dict[str, Any]) -> None:
        self._last_text = None
        key = "msgId" if "msgId" in event else "msg_id"
        event = normalized(event)
        match object_of(event):
            case "content":
                self._on_content(event, key)
            case "message":
                self._on_message(event)
            case "response":
                self._on_response(event)
            case "error":
                self._reader.flush_pending()
                self.builder.fail(bare_failure(event), {NAME: {"bare": True}})
            case _:
                error = error_in(event)
                if error is not None:
                    self._reader.flush_pending()
                    self.builder.fail(failure_of(error))

    # ------------------------------------------------------------------ contents

    def _on_content(self, event: dict[str, Any], key: str) -> None:
        message = self._message_of(event)
        if message.done:
            return
        content = message.content(event)
        if content is None:
            return
        self._reader.read(message, content, event)
        self._record_end(message, event)
        if content.streams and event.get("msg_id"):
            self._last_text = (content, key, event.get("msg_id"), event.get("index"))

    def _message_of(self, event: dict[str, Any]) -> Message:
        """Return the message of a content; opens one of a type inferred from the content if needed (rule 6)."""
        msg_id = event.get("msg_id")
        if not isinstance(msg_id, str) or not msg_id:
            last = self._message_order[-1] if self._message_order else None
            if last is not None and not last.done and last.accepts(event):
                return last
            # Current Java never sends the messages of its texts (capture `java_snakecase_tool`).
            if self._implicit is None:
                self._implicit = self._new_message(None, "message", "assistant")
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
        message = self._new_message(msg_id, kind, "assistant")
        message.implied = True
        return message

    def _new_message(self, msg_id: str | None, kind: str, role: str) -> Message:
        """Open a new message, after emitting the pending contents of earlier ones."""
        self._reader.flush_pending()
        message = Message(msg_id, kind, role)
        self._message_order.append(message)
        if msg_id is not None:
            self._messages[msg_id] = message
        return message

    def _end_implicit(self) -> None:
        if self._implicit is not None:
            message, self._implicit = self._implicit, None
            self._finish_message(message, MessageStatus.COMPLETED)

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
            # Some servers use one id for reasoning and the text after it.
            message = None
        last = self._message_order[-1] if self._message_order else None
        if message is None and last is not None and self._is_completion_of(last, kind, event):
            message, self._implicit = last, None
        self._end_implicit()
        if message is None:
            message = self._new_message(msg_id, kind, role_of(event))
            message.done = self._reader.was_read(kind, event)
        self._read_message(message, event)

    @staticmethod
    def _is_completion_of(last: Message, kind: str, event: dict[str, Any]) -> bool:
        """Return whether a completed message without its id is the one that was opened, or whose contents arrived."""
        unnamed = last.id is None and not last.done and last.kind == kind
        return unnamed and bool(status_of(event)) and last.is_repeated_by(event)

    def _read_message(self, message: Message, event: dict[str, Any]) -> None:
        """Read a message object, on its own or inside the response's output."""
        self._read_metadata(event)
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
        end = end_fields(event)
        status = end.get("status") or status_of(event)
        if message.kind == "error" and (status or event.get("code") is not None):
            self._read_error(message, event)
        elif status:
            message.end = end
            self._complete(message, event, ENDS[status])
        elif message.known:
            self._read_contents(message, event, final=False)

    def _read_metadata(self, event: dict[str, Any]) -> None:
        report = usage_report(event.get("usage"))
        if report is not None:
            self.builder.usage(report)
        metadata = event.get("metadata")
        if isinstance(metadata, dict):
            reason, model = metadata.get("finish_reason"), metadata.get("model")
            if isinstance(reason, str) and not choice_of(metadata):
                self._reason = cut_by(reason) or self._reason
            if isinstance(model, str):
                self.builder.begin(model=model)

    def _record_end(self, message: Message, event: dict[str, Any]) -> None:
        """Record an end that the agent reports: that of the run, unless visible content follows."""
        end = end_of(event)
        if end is None:
            return
        earlier, _, output_count = self._reported_end or (None, None, 0)
        # The message of a failed content ends, too, mostly without an error of its own.
        has_no_detail = isinstance(end, FinishReason) or end == failure_of(None)
        has_failure = (
            isinstance(earlier, Failure) and earlier != failure_of(None) and output_count == self._reader.output_count
        )
        if not (has_no_detail and has_failure):
            self._reported_end = end, message, self._reader.output_count

    def _read_error(self, message: Message, event: dict[str, Any]) -> None:
        """Read a message of type `error`."""
        error = event.get("error")
        message.done = True
        self._reader.flush_pending()
        failure = failure_of(error if has_error(error) else event, status=event.get("status"))
        self._reported_end = failure, message, self._reader.output_count
        self.builder.emit(Raw(NAME, event))

    def _complete(self, message: Message, event: dict[str, Any], status: MessageStatus) -> None:
        """Read a message that has ended: emits new contents and what is missing of others (rule 8)."""
        if not message.known:
            # A message of an unknown type is passed on whole; with an empty list, the accumulated contents are.
            message.done = True
            contents = event.get("content")
            items = [normalized(i) for i in contents if isinstance(i, dict)] if isinstance(contents, list) else []
            self.builder.emit(Raw(NAME, {**event, "type": message.kind, "content": items or message.raw}))
        else:
            self._read_contents(message, event, final=True)
            self._finish_message(message, status)
        self._record_end(message, event)

    def _read_contents(self, message: Message, event: dict[str, Any], *, final: bool) -> None:
        """Read the contents of a message object; in one that continues they are snapshots."""
        for content, item in message.repeated_contents(event.get("content")):
            status = (status_of(item) or "completed") if final else "in_progress"
            done = content.done
            self._reader.read(message, content, {**item, "delta": False, "status": status})
            if not done:
                self._record_end(message, item)

    def _finish_message(self, message: Message, status: MessageStatus) -> None:
        message.done = True
        if (
            status is MessageStatus.COMPLETED
            and self._reported_end is not None
            and self._reported_end[1] is not message
        ):
            # The agent continued after an end that was not an error.
            self._reported_end = None if isinstance(self._reported_end[0], FinishReason) else self._reported_end
        self._reader.finish(message, complete=status is not MessageStatus.FAILED)
        if message.kind == "mcp_approval_request":
            self._approval(message)
        own_extras = {**message_extras(message.metadata, message.usage), **message.end}
        if message.end:
            self._reader.open_message(message)
        reason = cut_by(message.metadata.get("finish_reason")) if choice_of(message.metadata) else None
        if isinstance(reason, Failure):
            self._reason, reason = reason, None
        self.builder.end_message(message, status, reason, {NAME: own_extras} if own_extras else None)

    def _approval(self, message: Message) -> None:
        own_extras = {"id": message.id, **message_extras(message.metadata, message.usage)}
        for content in message.contents.values():
            data = content.value if isinstance(content.value, dict) else {}
            self.builder.interrupt(interrupted(data, message.metadata, own_extras, self._reader.make_id))

    # ------------------------------------------------------------------ the response

    def _on_response(self, event: dict[str, Any]) -> None:
        self._begin_run(event)
        self._end_implicit()
        status, error = status_of(event), event.get("error")
        if not status:
            return
        self._read_output(event.get("output"))
        report = usage_report(event.get("usage"))
        if report is not None:
            self.builder.usage(report)
        if status == "failed" or has_error(error):
            self._fail_run(failure_of(error, status=status), status)
            return
        for message in self._message_order:
            if not message.done:
                self._end_message(message)
        end, _, output_count = self._reported_end or (None, None, 0)
        if end == failure_of(None) and status != "completed":
            end = None  # the Java form has no other status for a message that its response truncated
        if isinstance(end, Failure):
            if output_count == self._reader.output_count:
                self._fail_run(end, status)
                return
            # The agent continued after its error, which stays in its message.
            self.builder.emit(Raw(NAME, {"object": "error", "type": "error"}))
            end = None
        extras = {NAME: {"status": status}} if status != "completed" else None
        reason = REASONS.get(status) or end or self._reason
        if isinstance(reason, Failure):
            self._fail_run(reason, status)
            return
        self.builder.finish(reason, extras)
        self.builder.end()

    def _fail_run(self, failure: Failure, status: str) -> None:
        """Fail the run: closes what is open; a status `completed` is replaced by `failed`."""
        self._reader.flush_pending()
        for message in self._message_order:
            if not message.done and not message.known and message.raw:
                self._complete(message, self._unfinished_object(message, "incomplete"), MessageStatus.FAILED)
        own_extras = {"code": failure.backend_code, "status": "failed" if status == "completed" else status}
        self.builder.fail(failure, {NAME: own_extras})

    def _begin_run(self, event: dict[str, Any]) -> None:
        wire_id, session = event.get("id"), event.get("session_id")
        self.builder.begin(
            created_at=seconds(event.get("created_at")),
            thread_id=session if isinstance(session, str) else None,
            extras={NAME: {"id": wire_id}} if isinstance(wire_id, str) else None,
        )

    def _end_message(self, message: Message) -> None:
        """End a message still open when the response ended: as completed, or silently if it was not used."""
        if message.known:
            self._finish_message(message, MessageStatus.COMPLETED)
        elif message.raw:
            self._complete(message, self._unfinished_object(message, "completed"), MessageStatus.COMPLETED)

    @staticmethod
    def _unfinished_object(message: Message, status: str) -> dict[str, Any]:
        """Return the object of a message that is passed on whole and was never ended."""
        return {"object": "message", "id": message.id, "role": message.role, "status": status}

    def _read_output(self, output: object) -> None:
        """Read the response's messages, matched to known ones by id, else by position (rule 9)."""
        items = [normalized(i) for i in output if isinstance(i, dict)] if isinstance(output, list) else []
        ids = {i["id"] for i in items if isinstance(i.get("id"), str)}
        used = [m for m in self._message_order if m.contents or m.done]
        for position, item in enumerate(items):
            item_id, kind = item.get("id"), kind_of(item)
            if kind == "heartbeat":
                continue
            known = self._messages.get(item_id) if isinstance(item_id, str) else None
            if known is None and position < len(used) and used[position].id not in ids and used[position].kind == kind:
                known = used[position]
            if known is None:
                known = self._new_message(
                    item_id if isinstance(item_id, str) and item_id else None, kind, role_of(item)
                )
                known.done = self._reader.was_read(kind, item)
            self._read_message(known, {**item, "status": status_of(item) or "completed"})
