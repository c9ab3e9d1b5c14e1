"""Events -> the answers of one turn.

By default a turn is one HOLD_RESPONSE: many clients read exactly one answer for each inquiry. The task of a turn is
finished with it, or broken with the error if the turn failed.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import Context
from bridge.dialects.aip.capabilities import card
from bridge.dialects.aip.content import item_of
from bridge.dialects.aip.errors import error_text
from bridge.dialects.aip.options import FrontOptions
from bridge.dialects.aip.read_request import Inquiry
from bridge.dialects.aip.wire import ContentItem, SessionStatus, TaskStatus
from bridge.errors import ErrorCode
from bridge.model import FinishReason, Media, PartKind
from bridge.model import events as ev
from bridge.model.jsontext import dumps
from bridge.toolkit import Encoder
from bridge.toolkit.counts import counts_of
from bridge.toolkit.media import answer_feature

_MARK = "[reasoning] "
_UNREACHED = frozenset({ErrorCode.BACKEND_UNAVAILABLE, ErrorCode.BACKEND_AUTH, ErrorCode.OVERLOADED})


class TurnEncoder(Encoder):
    """Trusts the grammar. `stops` is set when the last frame ends the session."""

    free = Encoder.free | {ev.RunFinished, ev.RunFailed}

    def __init__(self, context: Context) -> None:
        self._options = options = FrontOptions.of(context)
        super().__init__(context, card(options))
        self._inquiry = Inquiry.of(context.request)
        self._items: list[ContentItem] = []
        self._texts: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._model = context.model
        self.stops = False

    def batch_ended(self) -> None:
        self._flush_pieces()

    # ------------------------------------------------------------------ content

    def text(self, event: ev.TextDelta) -> None:
        self._say(event.text)

    def _say(self, text: str) -> None:
        if not text:
            return
        if self._options.stream == "delta" and not self._options.flush:
            self._send(TaskStatus.EXECUTING, [ContentItem(text=text)])
        else:
            self._texts.append(text)

    def _flush_pieces(self) -> None:
        """Write the text collected for this batch as one message."""
        if self._texts and self._options.stream == "delta":
            text, self._texts = "".join(self._texts), []
            self._send(TaskStatus.EXECUTING, [ContentItem(text=text)])

    def _item(self, item: ContentItem) -> None:
        if self._options.stream == "delta":
            self._flush_pieces()
            self._send(TaskStatus.EXECUTING, [ContentItem(text=""), item])
        else:
            self._flush_text()
            self._items.append(item)

    def _flush_text(self) -> None:
        if self._texts:
            self._items.append(ContentItem(text="".join(self._texts)))
            self._texts = []

    def part_started(self, event: ev.PartStarted) -> None:
        if event.kind is PartKind.REASONING:
            self._thoughts[event.part_id] = []

    def reasoning(self, event: ev.ReasoningDelta) -> None:
        self._thoughts[event.part_id].append(event.text)

    def part_ended(self, event: ev.PartEnded) -> None:
        thought = "".join(self._thoughts.pop(event.part_id, ()))
        self._say("".join(f"{_MARK}{line}\n" for line in thought.splitlines()))

    def content(self, event: ev.ContentAdded) -> None:
        item = item_of(event.part) if isinstance(event.part, Media) else None
        if item is None:
            self.lost.add(answer_feature(event.part), "its data is not base64")
        else:
            self._item(item)

    # ------------------------------------------------------------------ the end

    def finished(self, event: ev.RunFinished) -> None:
        self._flush_pieces()
        self._flush_text()
        items, self._items = self._items, []
        if self._options.extras == "embedded":
            items.append(ContentItem(embedded=self._extras(event.reason)))
        self.stops = self._options.close_after_turn
        status = SessionStatus.STOP_RESPONSE if self.stops else SessionStatus.HOLD_RESPONSE
        self._send(TaskStatus.FINISH, items, status)

    def failed(self, event: ev.RunFailed) -> None:
        """Write the error after what was sent before. It ends the session if no backend can be reached."""
        self._flush_pieces()
        self._flush_text()
        items, self._items = self._items, []
        if items:
            self._send(TaskStatus.EXECUTING, items)
        choice = self._options.on_error
        self.stops = choice == "stop" or (choice == "auto" and event.error.code in _UNREACHED)
        self.stops = self.stops or self._options.close_after_turn
        status = SessionStatus.STOP_RESPONSE if self.stops else SessionStatus.HOLD_RESPONSE
        self._send(TaskStatus.BREAK, [ContentItem(text=error_text(event.error))], status)

    def _extras(self, reason: FinishReason) -> bytes:
        usage = self.usage
        extras: dict[str, Any] = {"aip_extras": 1, "finish_reason": str(reason), "model": self._model}
        if usage is not None:
            extras["usage"] = counts_of(usage)
        return dumps(extras)

    def _send(
        self, task: TaskStatus, items: list[ContentItem], status: SessionStatus = SessionStatus.HOLD_RESPONSE
    ) -> None:
        """One message. Clients read the text of the first item, so there is one, and it is text."""
        if not items or items[0].text is None:
            items = [ContentItem(text=""), *items]
        self.out.append(self._inquiry.answer(self.context, status, task, items).to_bytes())

    # ------------------------------------------------------------------ the rest

    def run_started(self, event: ev.RunStarted) -> None:
        self._model = event.model or self._model
