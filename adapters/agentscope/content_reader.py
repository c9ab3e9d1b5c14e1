"""Contents of the stream -> events, without repetitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from bridge.dialects.agentscope.calls import CALLS, OUTPUTS, arguments_of, call_of, origin_of, result_of
from bridge.dialects.agentscope.contents import part_of
from bridge.dialects.agentscope.extras import NAME, choice_of, message_extras, own, reasoning_of
from bridge.dialects.agentscope.fields import end_fields, status_of
from bridge.dialects.agentscope.merge import Merged
from bridge.dialects.agentscope.normalization import normalized, payload_of
from bridge.dialects.agentscope.open_messages import PART_KINDS, Content, Message
from bridge.model import Builder, Extras, PartKind, Raw
from bridge.model.surrogates import repair
from bridge.toolkit.pieces import Pieces

_NEVER_JOINED = ("call_id", "name", "server_label", "id")


def _growing(content: Content) -> Merged:
    """The value of a content as one that deltas are merged into."""
    if not isinstance(content.merged, Merged):
        content.merged = Merged(content.merged)
    return content.merged


class ContentReader:
    """Passes contents to the builder, without repetitions."""

    def __init__(self, builder: Builder, make_id: Callable[[str], str]) -> None:
        self.make_id = make_id
        self._builder = builder
        self.output_count = 0
        """The number of pieces of the answer emitted so far: an error followed by output did not end the run."""
        self._pending: dict[Content, Message] = {}
        self._calls: set[str] = set()
        self._generated_ids: deque[str] = deque()  # generated ids of calls without a result so far
        self._without_message: set[tuple[str, str]] = set()

    def read(self, message: Message, content: Content, event: dict[str, Any]) -> None:
        """Read one content event: a delta, a snapshot, or the final value."""
        if content.done:
            return
        content.end = content.end or end_fields(event)
        final = bool(content.end) or (bool(status_of(event)) and event.get("delta") is not True)
        if content.kind in PART_KINDS:
            self._text(message, content, event, final)
        else:
            self._accumulate(content, event)
            if content.kind == "call":
                self._call_delta(message, content, event)
            content.final = content.final or final
            # Usage, metadata and a failure of the tool come with the end of an output's message.
            waits_for_message = content.kind == "output" and message.id is not None and not message.implied
            if final and not waits_for_message:
                self._complete(message, content)
            else:
                self._pending[content] = message

    def finish(self, message: Message, *, complete: bool) -> None:
        """End a message: emits its pending contents with their present values, unless it failed."""
        for content in message.contents.values():
            if content.kind in PART_KINDS:
                content.done = True
                self._end_text(message, content)
            elif not content.done and (complete or content.final or content.kind in ("media", "unknown")):
                self._complete(message, content)

    def flush_pending(self) -> None:
        """Emit pending contents that are not completed (capture `text_and_image`), when another message begins."""
        for content, message in list(self._pending.items()):
            if (content.final or content.kind in ("media", "data", "unknown")) and not content.done:
                self._complete(message, content)

    # ------------------------------------------------------------------ text

    def _text(self, message: Message, content: Content, event: dict[str, Any], final: bool) -> None:
        text = event.get(content.type)
        text = text if isinstance(text, str) else ""
        if event.get("delta") is True:
            self._add_text(message, content, text)
            return
        # A snapshot or the final value replaces earlier text: only what it appends can be emitted.
        self._add_rest(message, content, text)
        if final:
            content.done = True
            if content.kind != "reasoning":
                self._end_text(message, content)

    def _end_text(self, message: Message, content: Content) -> None:
        """End a text. Reasoning ends with its message, whose metadata may hold its signature."""
        reasoning = reasoning_of("", message.metadata if content.kind == "reasoning" else None)
        if content.end or reasoning.signature is not None or reasoning.redacted is not None:
            self._open_text(message, content)
        extras = _end_extras(content)
        self._builder.end_part(content, signature=reasoning.signature, redacted=reasoning.redacted, extras=extras)

    def _add_rest(self, message: Message, content: Content, text: str) -> None:
        if 2 * len(text) < content.pieces.size:
            return  # too short even with surrogate pairs combined
        sent = content.pieces.text
        if not text.startswith(sent):
            sent = repair(sent)
        if text.startswith(sent):
            self._add_text(message, content, text[len(sent) :])

    def _add_text(self, message: Message, content: Content, text: str) -> None:
        if not text:
            return
        self._open_text(message, content)
        self.output_count += content.kind != "reasoning"
        content.pieces.append(text)
        self._builder.delta(content, text)

    def _open_text(self, message: Message, content: Content) -> None:
        if not content.opened:
            content.opened = True
            self.open_message(message)
            self._builder.open_part(content, message, PART_KINDS[content.kind])

    def open_message(self, message: Message) -> None:
        """Open a message in the builder, if it is not open yet."""
        self._builder.message(message, message_id=message.id, role=message.role, choice=choice_of(message.metadata))

    # ------------------------------------------------------------------ calls, outputs, data, media

    def _accumulate(self, content: Content, event: dict[str, Any]) -> None:
        """Merge deltas into the value, replace it by anything else; of media the whole content is stored.

        Fields of calls and outputs are replaced separately, since some servers omit some of them at the end.
        """
        delta = event.get("delta") is True
        if content.kind == "unknown":
            self._merge_or_replace(content, payload_of(event), delta=delta)
            return
        if content.kind == "media":
            if delta and content.merged:
                _growing(content).add_media(event)
            else:
                content.merged = dict(event)
            return
        data, is_object = event.get("data"), isinstance(content.merged, (dict, Merged))
        of_tool = content.kind in ("call", "output")
        if event.get("wrapped") is True and isinstance(data, dict):
            content.merged = data.get("value")
            content.wrapped = True
        elif delta and is_object and isinstance(data, dict):
            _growing(content).add(data, _NEVER_JOINED if of_tool else ())
        elif of_tool and is_object and isinstance(data, dict):
            _growing(content).replace({k: v for k, v in data.items() if v not in (None, "")})
        elif data is not None:
            content.merged = data

    def _merge_or_replace(self, content: Content, payload: dict[str, Any], *, delta: bool) -> None:
        if delta and content.merged:
            _growing(content).add(payload)
        else:
            content.merged = payload

    def _call_delta(self, message: Message, content: Content, event: dict[str, Any]) -> None:
        """Emit argument deltas at once; snapshots wait, since one need not be a prefix of the next."""
        if event.get("delta") is not True or not isinstance(content.merged, (dict, Merged)):
            content.follows = None
            return
        if not content.merged.get("name") or content.follows is False:
            return
        arguments = content.merged.get("arguments")
        if content.follows and isinstance(arguments, Pieces):
            self._pass_on(content, arguments[-1] if arguments.size > content.pieces.size else "")
            return
        if isinstance(arguments, Merged):
            return  # an object that grew is written once it is whole
        text = arguments.text if isinstance(arguments, Pieces) else arguments_of(arguments)
        if len(text) < content.pieces.size:
            return  # it may still become what was sent
        content.follows = content.pieces.begins(text)
        if content.follows:
            self._open_call(message, content)
            self._pass_on(content, text[content.pieces.size :])

    def _pass_on(self, content: Content, arguments: str) -> None:
        if arguments:
            content.pieces.append(arguments)
            self._builder.delta(content, arguments)

    def _open_call(self, message: Message, content: Content) -> None:
        """Open the call's part. A call without an id gets a generated one, also used for the next output without id."""
        if content.opened:
            return
        content.opened = True
        kind = message.kind if message.kind in CALLS else "plugin_call"
        data = content.value if isinstance(content.value, dict) else {}
        wire_id = data.get("call_id")
        call_id = wire_id if isinstance(wire_id, str) and wire_id else self.make_id("call")
        if call_id not in self._calls:
            self._calls.add(call_id)
            if call_id != wire_id:
                self._generated_ids.append(call_id)
        if message.id is None:
            self._without_message.add(("call", call_id))
        call = call_of(kind, data, message.metadata, call_id)
        self.open_message(message)
        self._builder.open_part(
            content, message, PartKind.TOOL_CALL, call_id=call_id, name=call.name,
            origin=origin_of(kind, message.metadata), server_label=call.server_label, extras=call.extras,
        )  # fmt: skip

    def _complete(self, message: Message, content: Content) -> None:
        content.done = True
        self._pending.pop(content, None)
        match content.kind:
            case "call":
                self._end_call(message, content)
            case "output":
                self._output(message, content)
            case "media":
                self._add_part(message, content, content.value)
            case "data":
                wrapped = {"data": {"value": content.value}, "wrapped": True}
                self._add_part(
                    message, content, {"type": "data", **(wrapped if content.wrapped else {"data": content.value})}
                )
            case "unknown":
                self._add_unknown(message, content)
            case _:
                pass

    def _add_part(self, message: Message, content: Content, value: dict[str, Any]) -> None:
        part = part_of(normalized(value))
        if part is not None:
            self.output_count += 1
            self.open_message(message)
            part.extras = _end_extras(content)
            self._builder.add(message, part)

    def _add_unknown(self, message: Message, content: Content) -> None:
        """Emit a content of an unknown type."""
        self.output_count += 1
        owner = self._builder.message(message, message_id=message.id, role=message.role)
        message_fields = {"type": message.kind, "role": message.role}
        value = {"object": "content", "type": content.type, "msg_id": owner, **content.end, **content.value}
        self._builder.emit(Raw(NAME, value, {NAME: message_fields}))

    def _end_call(self, message: Message, content: Content) -> None:
        self._open_call(message, content)
        data = content.value if isinstance(content.value, dict) else {}
        arguments = arguments_of(data.get("arguments"))
        if content.pieces.begins(arguments):
            self._builder.delta(content, arguments[content.pieces.size :])
        self._builder.end_part(content, extras=_end_extras(content))

    def _output(self, message: Message, content: Content) -> None:
        data = content.value if isinstance(content.value, dict) else {}
        kind = message.kind if message.kind in OUTPUTS else "plugin_call_output"
        result = result_of(kind, data, message.metadata, self._answered_call_id(data.get("call_id")))
        if message.id is None:
            self._without_message.add(("output", result.call_id))
        end = {"end": content.end} if content.end else {}
        self._builder.result(
            result.call_id, result.parts, name=result.name, is_error=result.is_error or bool(content.end),
            message_id=message.id,
            extras={NAME: {**own(result.extras), **message_extras(message.metadata, message.usage), **end}},
        )  # fmt: skip

    def _answered_call_id(self, wire_id: object) -> str:
        """Return the call id of an output: its own, else the oldest generated one."""
        call_id = wire_id if isinstance(wire_id, str) and wire_id else None
        if call_id in self._calls:
            return str(call_id)
        while self._generated_ids and not self._builder.is_unanswered(self._generated_ids[0]):
            self._generated_ids.popleft()
        oldest = self._generated_ids[0] if self._generated_ids else call_id or self._builder.oldest_call
        return oldest or self.make_id("call")

    def was_read(self, kind: str, item: dict[str, Any]) -> bool:
        """Return whether contents without a message already brought the calls or outputs of a message object."""
        if kind not in CALLS and kind not in OUTPUTS:
            return False
        side = "call" if kind in CALLS else "output"
        contents = item.get("content")
        data = [c.get("data") for c in contents if isinstance(c, dict)] if isinstance(contents, list) else []
        ids = [d.get("call_id") for d in data if isinstance(d, dict)]
        return bool(ids) and all(isinstance(i, str) and (side, i) in self._without_message for i in ids)


def _end_extras(content: Content) -> Extras | None:
    """Return extras with a content's end, for frontends of the same dialect."""
    return {NAME: content.end} if content.end else None
