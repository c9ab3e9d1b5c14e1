"""The base of decoders whose frames are JSON objects: OpenAI, Anthropic, AG-UI, AgentScope and most others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract.context import Context
from bridge.contract.wire import FrameLike
from bridge.errors import ErrorCode, Failure
from bridge.model.builder import Builder
from bridge.model.events import Event
from bridge.model.jsontext import MAX_DEPTH, NESTABLE, deeper_than, loads, loads_unpaired, may_nest
from bridge.model.surrogates import repaired
from bridge.toolkit.repeat import Repeat

_END_MARK = b"[DONE]"
_PIECES = frozenset({
    "arguments", "content", "delta", "inputTextDelta", "partial_json", "reasoning", "reasoning_content", "refusal",
    "text", "thinking",
})  # fmt: skip
"""The members that hold pieces of a text, of which one may end in the middle of a character."""


class JsonDecoder:
    """Reads one run from a backend that sends JSON objects, one per frame.

    A subclass implements `read`, which passes the content of one object to `self.builder`::

        class Decoder(JsonDecoder):
            def read(self, event, name):
                if event.get("type") == "text":
                    self.builder.flow(0, PartKind.TEXT, event["content"])
                elif event.get("type") == "done":
                    self.builder.finish()
                    self.builder.end()

    The base class parses the frames and handles invalid ones, so that no data raises an exception: data that is
    not JSON and objects nested deeper than `MAX_DEPTH` fail the run; blank frames, and JSON that is not an object, are
    ignored. Characters that were cut in two between pieces of a text are joined. Nothing is read after the end of the
    run. Override the other methods where the protocol differs.

    `read` must accept any JSON object: check the type of each field before using it.
    """

    __slots__ = ("_repeat", "builder", "saw_unknown")

    def __init__(self, context: Context) -> None:
        self.builder: Builder = context.builder()
        self._repeat: Repeat | None = None
        self.saw_unknown = False
        """True if `read` met an object that its dialect does not have; see `finish`."""

    @property
    def repeat(self) -> Repeat:
        """Decodes frames that differ from the previous one only in their text; `read` may call `repeat.learn`.

        An answer in one piece has none.
        """
        if self._repeat is None:
            self._repeat = Repeat(self.builder)
        return self._repeat

    # ------------------------------------------------------------- the contract of a decoder

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        """Return the events of these frames."""
        return (self._repeat or self.repeat).feed(frames, self.payload)

    def close(self, failure: Failure | None = None) -> list[Event]:
        """Return the last events: the input ended, or broke off because of `failure`."""
        if not self.builder.done:
            self.builder.cutting = True
            self.flush()
            self.builder.close(failure)
        return self.builder.take()

    # ------------------------------------------------------------- what a subclass implements

    def read(self, event: dict[str, Any], name: str | None) -> None:
        """Pass the content of one object to the builder. `name` is the name of its SSE event, if it has one."""
        raise NotImplementedError

    def read_value(self, value: Any, name: str | None) -> None:
        """Read a JSON value that is not an object. Ignored by default."""

    def read_error(self, value: Any) -> bool:
        """Read an SSE event named ``error`` that is not an object: `value` is its text, or another JSON value.

        Return False, as by default, to have it treated like an event of any other name.
        """
        return False

    def end_mark(self) -> None:
        """Handle ``[DONE]``, with which the streams of OpenAI end. Ignored by default."""

    def flush(self) -> None:
        """Pass on what was held back; called before the run fails and when the input is over.

        A finish reason that was held back comes first: without one, what ends here was cut off.
        """

    def malformed(self, data: bytes) -> None:
        """Handle a frame that is not JSON."""
        self.fail(Failure(ErrorCode.BACKEND_PROTOCOL, "The backend sent an event that is not valid JSON."))

    # ------------------------------------------------------------- the gate

    def finish(self) -> None:
        """Finish a run at the end of its stream. It fails if there were only events of another dialect."""
        if self.saw_unknown and self.builder.is_empty and not self.builder.finishing:
            self.fail(Failure(ErrorCode.BACKEND_PROTOCOL, "The backend's answer has no event of its dialect."))
        else:
            self.builder.finish()

    def fail(self, failure: Failure) -> None:
        """End the run with `failure`, after passing on what was held back."""
        self.builder.cutting = True
        self.flush()
        self.builder.fail(failure)

    def payload(self, data: bytes, name: str | None) -> None:
        """Parse the data of one frame and pass it to the method that reads it."""
        if data == _END_MARK:
            self.end_mark()
            return
        try:
            value = loads(data)
        except ValueError:
            self._refused(data, name)
            return
        if len(data) > NESTABLE and may_nest(data) and deeper_than(value, MAX_DEPTH):
            self._too_deep()
        elif type(value) is dict:
            self.read(value, name)
        else:
            self._no_object(value, name)

    def _refused(self, data: bytes, name: str | None) -> None:
        """Handle what orjson rejects: an end mark between blanks, blanks alone, unpaired surrogates, invalid JSON."""
        text = data.strip()
        if text == _END_MARK:
            self.end_mark()
            return
        if not text:
            return
        try:
            value = loads_unpaired(text)
        except ValueError:
            if name != "error" or not self.read_error(text.decode("utf-8", "replace")):
                self.malformed(text)
            return
        if deeper_than(value, MAX_DEPTH):
            self._too_deep()
        elif isinstance(value, dict):
            self.builder.join_halves()
            self.read(repaired(value, _PIECES), name)
        else:
            self._no_object(repaired(value), name)

    def _no_object(self, value: Any, name: str | None) -> None:
        if name != "error" or not self.read_error(value):
            self.read_value(value, name)

    def _too_deep(self) -> None:
        self.fail(Failure(ErrorCode.BACKEND_PROTOCOL, "An event of the backend is nested too deep."))
