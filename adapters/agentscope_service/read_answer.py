"""Converts events of a session's stream to events of the model, for one reply."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.contract import Context
from bridge.dialects.agentscope_service.calls import ASKING, Block, Waiting, shown_id
from bridge.dialects.agentscope_service.errors import ERRORS, reply_failure
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Custom,
    FinishReason,
    Inline,
    Interrupted,
    Media,
    Part,
    PartKind,
    StepEnded,
    StepStarted,
    Text,
    Url,
    UsageReported,
)
from bridge.model.events import Event
from bridge.model.jsontext import whole
from bridge.toolkit import JsonDecoder
from bridge.toolkit.errors import error_in
from bridge.toolkit.media import kind_of
from bridge.toolkit.words import end_of

_GAP = "Events of the run were lost while its stream was opened again."
_ECHOES = {"USER_CONFIRM_RESULT": "confirm_results", "EXTERNAL_EXECUTION_RESULT": "execution_results"}
NAME = "agentscope-service"


@dataclass
class _Medium:
    """A medium that comes in pieces, each of which is base64 by itself."""

    mime: str | None
    name: str | None = None
    pieces: list[str] = field(default_factory=list)
    url: str | None = None

    def take(self, event: dict[str, Any]) -> None:
        self.mime = text_in(event, "media_type") or self.mime
        self.url = text_in(event, "url") or self.url
        if data := text_in(event, "data"):
            self.pieces.append(data)

    def part(self) -> Media | None:
        """The whole medium; None if nothing came. Raises `ValueError` for what is not base64."""
        kind = kind_of(self.mime)
        if self.url is not None:
            return Media(kind, Url(self.url), self.mime, self.name)
        if not self.pieces:
            return None
        joined = self.pieces[0]
        if len(self.pieces) > 1:
            joined = b64encode(b"".join(b64decode(piece, validate=True) for piece in self.pieces)).decode()
        return Media(kind, Inline(joined), self.mime, self.name)


@dataclass
class _Result:
    """A tool's result that is coming."""

    name: str | None
    parts: list[list[str] | _Medium] = field(default_factory=list)
    """Texts as their pieces."""

    def say(self, text: str) -> None:
        last = self.parts[-1] if self.parts else None
        if isinstance(last, list):
            last.append(text)
        else:
            self.parts.append([text])

    def show(self, block: str, event: dict[str, Any], known: dict[str, _Medium]) -> None:
        medium = known.get(block)
        if medium is None:
            medium = known[block] = _Medium(None)
            self.parts.append(medium)
        medium.take(event)

    def whole(self) -> list[Part]:
        made = (part.part() if isinstance(part, _Medium) else Text("".join(part)) for part in self.parts)
        return [part for part in made if part is not None]


class Decoder(JsonDecoder):
    """Reads the first reply that begins; those of others on the same stream are left out.

    A stream that ends while the reply waits for a permission or for a result ends the run so; `goes_on` is called for a
    reply that waited and continues, and `reopened` if its events are about to come again.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._context = context
        self._reply: str | None = None
        self._message_id: str | None = None
        self._seen: set[str] = set()
        self._joined = True
        self._numbers: Counter[str] = Counter()
        self._calls: dict[str, str] = {}
        self._asked: dict[str, Interrupted] = {}
        self._external: set[str] = set()
        self._brought: frozenset[str] = frozenset()
        self._echoes: dict[str, str] = {}
        self._media: dict[str, _Medium] = {}
        self._results: dict[str, _Result] = {}
        self._step: str | None = None
        self._input = self._output = self._cached = self._written = 0

    # ------------------------------------------------------------------ what a caller tells

    def goes_on(self, waiting: Waiting, answered: Mapping[str, Block], brought: frozenset[str]) -> None:
        """The reply waited, and continues with these answers. `brought` are the calls whose results the client sent."""
        self._reply = waiting.reply_id
        self._numbers = Counter(waiting.numbers)
        for shown, block in waiting.calls.items():
            self._calls[block["id"]] = shown
        # The replayed part of the reply is known already. It continues after the first echo of an answer.
        self._echoes = {block["id"]: text_in(block, "created_at") or "" for block in answered.values()}
        self._brought = brought

    def reopened(self) -> None:
        """The stream begins again: it must come to what is known before anything new does."""
        self._joined = not self._seen

    def wait(self, waiting: Waiting) -> None:
        """The reply waits for these calls, which its stream did not show this time."""
        for shown, block in waiting.calls.items():
            if block.get("state") == ASKING:
                self._ask(shown, block)
            elif shown not in self._external:
                self._external.add(shown)
                key = ("call", shown)
                name, arguments = text_in(block, "name"), text_in(block, "input")
                self.builder.open_part(key, self._reply, PartKind.TOOL_CALL, call_id=shown, name=name)
                self.builder.delta(key, arguments or "")
                self.builder.end_part(key)

    def rest(self) -> Decoder:
        """Return a decoder for the rest of the stream of this reply."""
        rest = Decoder(self._context)
        rest._reply = self._reply
        return rest

    @property
    def has_begun(self) -> bool:
        """True if the reply is known: it has begun, or continues."""
        return self._reply is not None

    @property
    def heard(self) -> bool:
        """The answers have arrived: what comes now is new."""
        return not self._echoes

    @property
    def waits(self) -> bool:
        """True if the reply waits, according to the stream."""
        return bool(self._asked or self._external)

    # ------------------------------------------------------------------ reading

    def read(self, event: dict[str, Any], name: str | None) -> None:
        kind = event.get("type")
        if not isinstance(kind, str):
            if (error := error_in(event)) is not None:
                self.fail(ERRORS.failure(error))
            return
        if not self._is_new(event, kind):
            return
        if kind in _ECHOES:
            self._echo(event, _ECHOES[kind])
            return
        if self._echoes:
            return
        if kind == "REPLY_START":
            self._start(event)
            return
        if self._reply is None or event.get("reply_id", self._reply) != self._reply:
            return
        reader = _READERS.get(kind)
        if reader is not None:
            reader(self, event)

    def _is_new(self, event: dict[str, Any], kind: str) -> bool:
        """Return whether the event did not come before.

        Fails the run if a stream that was opened again left some out.
        """
        name = text_in(event, "id")
        if name is None:
            return self._joined
        if name in self._seen:
            self._joined = True
            return False
        if not self._joined:
            if self._reply is not None and event.get("reply_id") == self._reply and not self._echoes:
                self.fail(Failure(ErrorCode.TRUNCATED_STREAM, _GAP))
            return False
        self._seen.add(name)
        return True

    def _echo(self, event: dict[str, Any], key: str) -> None:
        """An answer has arrived. One that is older than the question is that of an earlier round."""
        results = event.get(key)
        for result in results if isinstance(results, list) else ():
            call = result.get("tool_call", result) if isinstance(result, dict) else None
            call_id = text_in(call, "id") if isinstance(call, dict) else None
            if call_id is None:
                continue
            if (text_in(event, "created_at") or "~") >= self._echoes.get(call_id, "~~"):
                self._echoes.clear()
            self._settled(self._calls.get(call_id, ""))

    def _settled(self, shown: str) -> None:
        self._asked.pop(shown, None)
        self._external.discard(shown)

    def _start(self, event: dict[str, Any]) -> None:
        reply = text_in(event, "reply_id")
        if self._reply is None and reply:
            self._reply = self._message_id = reply

    def _message(self) -> str:
        """Return the key of the message of the reply, which has its id unless an earlier run sent a part of it."""
        assert self._reply is not None
        self.builder.message(self._reply, message_id=self._message_id)
        return self._reply

    # ------------------------------------------------------------------ the model

    def _model_start(self, event: dict[str, Any]) -> None:
        self._end_step()
        name = text_in(event, "model_name") or "model"
        self.builder.begin(model=name)
        self._step = name
        self.builder.emit(StepStarted(name))

    def _model_end(self, event: dict[str, Any]) -> None:
        self._input += whole(event.get("input_tokens")) or 0
        self._output += whole(event.get("output_tokens")) or 0
        self._cached += whole(event.get("cache_input_tokens")) or 0
        self._written += whole(event.get("cache_creation_input_tokens")) or 0
        if self._input or self._output:  # an interrupted call counts nothing
            total = self._input + self._output
            report = UsageReported(self._input, self._output, total, self._cached, written=self._written or None)
            self.builder.usage(report)
        self._end_step()

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            self.builder.emit(StepEnded(step))

    # ------------------------------------------------------------------ blocks

    def _block_start(self, event: dict[str, Any], kind: PartKind) -> None:
        block = text_in(event, "block_id") or ""
        self.builder.open_part(block, self._message(), kind)

    def _text_start(self, event: dict[str, Any]) -> None:
        self._block_start(event, PartKind.TEXT)

    def _thinking_start(self, event: dict[str, Any]) -> None:
        self._block_start(event, PartKind.REASONING)

    def _text_delta(self, event: dict[str, Any]) -> None:
        self._block_delta(event, PartKind.TEXT)

    def _thinking_delta(self, event: dict[str, Any]) -> None:
        self._block_delta(event, PartKind.REASONING)

    def _block_delta(self, event: dict[str, Any], kind: PartKind) -> None:
        block, text = text_in(event, "block_id") or "", text_in(event, "delta")
        if text:
            if self.builder.part(block) is None:
                self._block_start(event, kind)
            self.builder.delta(block, text)

    def _block_end(self, event: dict[str, Any]) -> None:
        self.builder.end_part(text_in(event, "block_id") or "")

    def _data(self, event: dict[str, Any]) -> None:
        block = text_in(event, "block_id") or ""
        medium = self._media.setdefault(block, _Medium(None, text_in(event, "name")))
        medium.take(event)

    def _data_end(self, event: dict[str, Any]) -> None:
        medium = self._media.pop(text_in(event, "block_id") or "", None)
        try:
            part = medium.part() if medium is not None else None
        except ValueError:
            self._not_base64()
            return
        if part is not None:
            self.builder.add(self._message(), part)

    def _not_base64(self) -> None:
        self.fail(Failure(ErrorCode.BACKEND_PROTOCOL, "The backend sent media that are not base64."))

    # ------------------------------------------------------------------ tools

    def _call_start(self, event: dict[str, Any]) -> None:
        call = text_in(event, "tool_call_id") or ""
        self._numbers[call] += 1
        shown = self._calls[call] = shown_id(self._reply or "", call, self._numbers[call])
        name = text_in(event, "tool_call_name")
        self.builder.open_part(("call", shown), self._message(), PartKind.TOOL_CALL, call_id=shown, name=name)

    def _call_delta(self, event: dict[str, Any]) -> None:
        self.builder.delta(("call", self._shown(event)), text_in(event, "delta") or "")

    def _call_end(self, event: dict[str, Any]) -> None:
        self.builder.end_part(("call", self._shown(event)))

    def _shown(self, event: dict[str, Any]) -> str:
        call = text_in(event, "tool_call_id") or ""
        return self._calls.get(call) or shown_id(self._reply or "", call)

    def _result_start(self, event: dict[str, Any]) -> None:
        shown = self._shown(event)
        self._results[shown] = _Result(text_in(event, "tool_call_name"))

    def _result(self, event: dict[str, Any]) -> _Result:
        return self._results.setdefault(self._shown(event), _Result(None))

    def _result_text(self, event: dict[str, Any]) -> None:
        self._result(event).say(text_in(event, "delta") or "")

    def _result_data(self, event: dict[str, Any]) -> None:
        self._result(event).show(text_in(event, "block_id") or "", event, self._media)

    def _result_end(self, event: dict[str, Any]) -> None:
        shown = self._shown(event)
        result = self._results.pop(shown, None) or _Result(None)
        self._settled(shown)
        if shown in self._brought:
            return
        try:
            parts = result.whole()
        except ValueError:
            self._not_base64()
            return
        state = event.get("state")
        self.builder.result(shown, parts, name=result.name, is_error=state not in ("success", None))

    def _require_confirm(self, event: dict[str, Any]) -> None:
        for block in _blocks(event):
            self._ask(self._calls.get(block["id"]) or shown_id(self._reply or "", block["id"]), block)

    def _ask(self, shown: str, block: Block) -> None:
        rules = block.get("suggested_rules")
        payload = {
            "message": "The agent wants to run this tool. Is it allowed?",
            "name": text_in(block, "name") or "",
            "arguments": text_in(block, "input") or "",
            **({"suggested_rules": rules} if rules else {}),
        }
        self._asked[shown] = Interrupted(shown, "confirmation", payload, shown)

    def _require_external(self, event: dict[str, Any]) -> None:
        for block in _blocks(event):
            self._external.add(self._calls.get(block["id"]) or shown_id(self._reply or "", block["id"]))

    # ------------------------------------------------------------------ the rest

    def _custom(self, event: dict[str, Any]) -> None:
        if name := text_in(event, "name"):
            self.builder.emit(Custom(f"agentscope.{name}", event.get("value")))

    def _reply_end(self, event: dict[str, Any]) -> None:
        self._end_step()
        reason = event.get("finished_reason")
        if reason == "error" or event.get("error"):
            self.fail(reply_failure(event.get("error")))
            return
        end = end_of(reason, answered=self.builder.answered)
        if isinstance(end, Failure):
            self.fail(end)
            return
        extras = {NAME: {"finished_reason": reason}} if reason == "exceed_max_iters" else None
        self.builder.finish(end, extras)
        self.builder.end()

    def flush(self) -> None:
        self._end_step()

    def close(self, failure: Failure | None = None) -> list[Event]:
        if failure is None and self.waits and not self.builder.done:
            self._end_step()
            for question in self._asked.values():
                self.builder.interrupt(question)
            self.builder.finish(FinishReason.STOP)
        return super().close(failure)


def text_in(value: dict[str, Any], key: str) -> str | None:
    """The string under this key; None for anything else."""
    found = value.get(key)
    return found if isinstance(found, str) else None


def _blocks(event: dict[str, Any]) -> list[Block]:
    calls = event.get("tool_calls")
    found = calls if isinstance(calls, list) else []
    return [block for block in found if isinstance(block, dict) and isinstance(block.get("id"), str)]


_READERS: dict[str, Callable[[Decoder, dict[str, Any]], None]] = {
    "TEXT_BLOCK_START": Decoder._text_start,
    "TEXT_BLOCK_DELTA": Decoder._text_delta,
    "TEXT_BLOCK_END": Decoder._block_end,
    "THINKING_BLOCK_START": Decoder._thinking_start,
    "THINKING_BLOCK_DELTA": Decoder._thinking_delta,
    "THINKING_BLOCK_END": Decoder._block_end,
    "DATA_BLOCK_START": Decoder._data,
    "DATA_BLOCK_DELTA": Decoder._data,
    "DATA_BLOCK_END": Decoder._data_end,
    "TOOL_CALL_START": Decoder._call_start,
    "TOOL_CALL_DELTA": Decoder._call_delta,
    "TOOL_CALL_END": Decoder._call_end,
    "TOOL_RESULT_START": Decoder._result_start,
    "TOOL_RESULT_TEXT_DELTA": Decoder._result_text,
    "TOOL_RESULT_DATA_DELTA": Decoder._result_data,
    "TOOL_RESULT_END": Decoder._result_end,
    "REQUIRE_USER_CONFIRM": Decoder._require_confirm,
    "REQUIRE_EXTERNAL_EXECUTION": Decoder._require_external,
    "MODEL_CALL_START": Decoder._model_start,
    "MODEL_CALL_END": Decoder._model_end,
    "CUSTOM": Decoder._custom,
    "REPLY_END": Decoder._reply_end,
}
"""The handlers by type of event. Hints contain the service's own prompts, and are ignored."""
