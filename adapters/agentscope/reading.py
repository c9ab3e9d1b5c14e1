"""Contents on the wire -> events, each fact once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from bridge.dialects.agentscope.calls import CALLS, OUTPUTS, arguments_of, call_of, origin_of, result_of
from bridge.dialects.agentscope.contents import part_of
from bridge.dialects.agentscope.fields import said_of_end, status_of
from bridge.dialects.agentscope.merge import join_media, merge
from bridge.dialects.agentscope.messages import PART_KINDS, Content, Message
from bridge.dialects.agentscope.notes import NAME, beside, choice_of, own, reasoning_of
from bridge.dialects.agentscope.spelling import payload_of, plain
from bridge.model import Builder, Extras, PartKind, Raw
from bridge.model.surrogates import mend

_ONCE = ("call_id", "name", "server_label", "id")


class Writer:
    """Tells the builder what contents say, each fact once."""

    def __init__(self, builder: Builder, make_id: Callable[[str], str]) -> None:
        self.make_id = make_id
        self._builder = builder
        self.spoken = 0
        """The number of pieces of an answer that went out: an error reported before one was not the end."""
        self._held: dict[Content, Message] = {}
        self._calls: set[str] = set()
        self._given: deque[str] = deque()  # ids that we had to make, of calls that nothing answered yet
        self._loose: set[tuple[str, str]] = set()

    def tell(self, message: Message, content: Content, event: dict[str, Any], unpaired: str | None) -> None:
        """One content event: a delta, a snapshot, or the final value."""
        if content.done:
            return
        content.end = content.end or said_of_end(event)
        final = bool(content.end) or (bool(status_of(event)) and event.get("delta") is not True)
        if content.kind in PART_KINDS:
            self._text(message, content, event, final, unpaired)
        else:
            self._accumulate(content, event)
            if content.kind == "call":
                self._call_piece(message, content, event)
            content.final = content.final or final
            # What the message says beside an output, its end tells: usage, metadata, whether the tool failed.
            waits = content.kind == "output" and message.id is not None and not message.implied
            if final and not waits:
                self._whole(message, content)
            else:
                self._held[content] = message

    def finish(self, message: Message, *, complete: bool) -> None:
        """The message is over: what its contents hold back is their value, unless it failed."""
        for content in message.contents.values():
            if content.kind in PART_KINDS:
                content.done = True
                self._end_text(message, content)
            elif not content.done and (complete or content.final or content.kind in ("media", "unknown")):
                self._whole(message, content)

    def flush_held(self) -> None:
        """Pictures whose completion never comes (capture `text_and_image`) go out when something else begins."""
        for content, message in list(self._held.items()):
            if (content.final or content.kind in ("media", "data", "unknown")) and not content.done:
                self._whole(message, content)

    # ------------------------------------------------------------------ text

    def _text(
        self, message: Message, content: Content, event: dict[str, Any], final: bool, unpaired: str | None
    ) -> None:
        text = event.get(content.type)
        text = text if isinstance(text, str) else ""
        if event.get("delta") is True:
            self._pass(message, content, text, unpaired)
            return
        # A snapshot or the final value replaces what came before: only what it adds can still be told.
        self._rest(message, content, text)
        if final:
            content.done = True
            if content.kind != "reasoning":
                self._end_text(message, content)

    def _end_text(self, message: Message, content: Content) -> None:
        """Reasoning ends with its message, whose metadata may hold the signature that belongs to it."""
        note = reasoning_of("", message.metadata if content.kind == "reasoning" else None)
        if content.end or note.signature is not None or note.redacted is not None:
            self._open_text(message, content)
        extras = _ending(content)
        self._builder.end_part(content, signature=note.signature, redacted=note.redacted, extras=extras)

    def _rest(self, message: Message, content: Content, text: str) -> None:
        sent = "".join(content.pieces)
        content.pieces[:] = [sent]
        if 2 * len(text) < len(sent):
            return  # not even if halves of surrogate pairs become one
        if not text.startswith(sent):
            sent = mend(sent)
        if text.startswith(sent):
            self._pass(message, content, text[len(sent) :], None)

    def _pass(self, message: Message, content: Content, text: str, unpaired: str | None) -> None:
        if not text:
            return
        self._open_text(message, content)
        self.spoken += content.kind != "reasoning"
        content.pieces.append(text if unpaired is None else unpaired)
        if unpaired is None:
            self._builder.delta(content, text)
        else:
            self._builder.unpaired(content, unpaired)

    def _open_text(self, message: Message, content: Content) -> None:
        if not content.opened:
            content.opened = True
            self.open_message(message)
            self._builder.open_part(content, message, PART_KINDS[content.kind])

    def open_message(self, message: Message) -> None:
        """Opens a message that nothing has opened yet."""
        self._builder.message(message, message_id=message.id, role=message.role, choice=choice_of(message.metadata))

    # ------------------------------------------------------------------ calls, outputs, data, media

    def _accumulate(self, content: Content, event: dict[str, Any]) -> None:
        """Deltas are merged, everything else replaces; media are kept as the whole content.

        Of a call and an output each field is replaced apart, since some servers complete them with less than all.
        """
        delta = event.get("delta") is True
        if content.kind == "unknown":
            told = payload_of(event)
            content.value = merge(content.value, told) if delta and content.value else told
            return
        if content.kind == "media":
            content.value = join_media(content.value, event) if delta and content.value else dict(event)
            return
        data = event.get("data")
        if event.get("wrapped") is True and isinstance(data, dict):
            content.value = data.get("value")
            content.wrapped = True
        elif delta and isinstance(content.value, dict) and isinstance(data, dict):
            content.value = merge(content.value, data, once=_ONCE if content.kind in ("call", "output") else ())
        elif content.kind in ("call", "output") and isinstance(content.value, dict) and isinstance(data, dict):
            content.value = {**content.value, **{k: v for k, v in data.items() if v not in (None, "")}}
        elif data is not None:
            content.value = data

    def _call_piece(self, message: Message, content: Content, event: dict[str, Any]) -> None:
        """True argument deltas go on at once; snapshots wait, since one need not begin the next."""
        if event.get("delta") is not True or not isinstance(content.value, dict):
            return
        arguments, sent = arguments_of(content.value.get("arguments")), "".join(content.pieces)
        if content.value.get("name") and arguments.startswith(sent):
            self._open_call(message, content)
            if arguments != sent:
                content.pieces.append(arguments[len(sent) :])
                self._builder.delta(content, content.pieces[-1])

    def _open_call(self, message: Message, content: Content) -> None:
        """Opens the call's part. A call without an id gets one, which the next lonely output shares."""
        if content.opened:
            return
        content.opened = True
        kind = message.kind if message.kind in CALLS else "plugin_call"
        data = content.value if isinstance(content.value, dict) else {}
        said = data.get("call_id")
        call_id = said if isinstance(said, str) and said else self.make_id("call")
        if call_id not in self._calls:
            self._calls.add(call_id)
            if call_id != said:
                self._given.append(call_id)
        if message.id is None:
            self._loose.add(("call", call_id))
        call = call_of(kind, data, message.metadata, call_id)
        self.open_message(message)
        self._builder.open_part(
            content, message, PartKind.TOOL_CALL, call_id=call_id, name=call.name,
            origin=origin_of(kind, message.metadata), server_label=call.server_label, extras=call.extras,
        )  # fmt: skip

    def _whole(self, message: Message, content: Content) -> None:
        content.done = True
        self._held.pop(content, None)
        match content.kind:
            case "call":
                self._end_call(message, content)
            case "output":
                self._output(message, content)
            case "media":
                self._add(message, content, content.value)
            case "data":
                wrapped = {"data": {"value": content.value}, "wrapped": True}
                self._add(
                    message, content, {"type": "data", **(wrapped if content.wrapped else {"data": content.value})}
                )
            case "unknown":
                self._pass_whole(message, content)
            case _:
                pass

    def _add(self, message: Message, content: Content, value: dict[str, Any]) -> None:
        part = part_of(plain(value))
        if part is not None:
            self.spoken += 1
            self.open_message(message)
            part.extras = _ending(content)
            self._builder.add(message, part)

    def _pass_whole(self, message: Message, content: Content) -> None:
        """A content of a type that nobody here understands."""
        self.spoken += 1
        owner = self._builder.message(message, message_id=message.id, role=message.role)
        beside = {"type": message.kind, "role": message.role}
        said = {"object": "content", "type": content.type, "msg_id": owner, **content.end, **content.value}
        self._builder.emit(Raw(NAME, said, {NAME: beside}))

    def _end_call(self, message: Message, content: Content) -> None:
        self._open_call(message, content)
        data = content.value if isinstance(content.value, dict) else {}
        arguments, sent = arguments_of(data.get("arguments")), "".join(content.pieces)
        if arguments.startswith(sent):
            self._builder.delta(content, arguments[len(sent) :])
        self._builder.end_part(content, extras=_ending(content))

    def _output(self, message: Message, content: Content) -> None:
        data = content.value if isinstance(content.value, dict) else {}
        kind = message.kind if message.kind in OUTPUTS else "plugin_call_output"
        result = result_of(kind, data, message.metadata, self._partner(data.get("call_id")))
        if message.id is None:
            self._loose.add(("output", result.call_id))
        end = {"end": content.end} if content.end else {}
        self._builder.result(
            result.call_id, result.parts, name=result.name, is_error=result.is_error or bool(content.end),
            message_id=message.id,
            extras={NAME: {**own(result.extras), **beside(message.metadata, message.usage), **end}},
        )  # fmt: skip

    def _partner(self, said: object) -> str:
        """The call that an output answers: its own id, else the oldest call to which we had to give one."""
        named = said if isinstance(said, str) and said else None
        if named in self._calls:
            return str(named)
        while self._given and not self._builder.is_unanswered(self._given[0]):
            self._given.popleft()
        oldest = self._given[0] if self._given else named or self._builder.oldest_call
        return oldest or self.make_id("call")

    def knows(self, kind: str, item: dict[str, Any]) -> bool:
        """Return whether contents without a message already brought the calls or outputs of a message object."""
        if kind not in CALLS and kind not in OUTPUTS:
            return False
        what = "call" if kind in CALLS else "output"
        contents = item.get("content")
        data = [c.get("data") for c in contents if isinstance(c, dict)] if isinstance(contents, list) else []
        ids = [d.get("call_id") for d in data if isinstance(d, dict)]
        return bool(ids) and all(isinstance(i, str) and (what, i) in self._loose for i in ids)


def _ending(content: Content) -> Extras | None:
    """Extras that bring a content's end to a frontend of the same dialect."""
    return {NAME: content.end} if content.end else None
