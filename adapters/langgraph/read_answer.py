"""Reads the stream of a run, event by event: what is in one goes to `Messages` and to `ThreadState`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.contract import Context
from bridge.dialects.langgraph.errors import canceled, run_failure
from bridge.dialects.langgraph.options import BackOptions
from bridge.dialects.langgraph.read_messages import PLACE, Messages, is_answer
from bridge.dialects.langgraph.thread_state import ThreadState
from bridge.dialects.langgraph.wire import INTERRUPT, NAME, Wire, id_of
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Custom,
    FinishReason,
    Raw,
)
from bridge.model.events import Event
from bridge.model.jsontext import dict_of, text_of
from bridge.toolkit import JsonDecoder
from bridge.toolkit.errors import error_in

_MESSAGES = "messages"
_ENDS = frozenset({FinishReason.LENGTH, FinishReason.CONTENT_FILTER})
"""What the reason of the last message says about the run; everything else is an end like any other."""


class Decoder(JsonDecoder):
    """Reads one run. Nothing in a stream says that it is complete: `complete` is called if the run says so.

    Without anybody to ask, a stream that ends cleanly after the last values of the state is a complete one.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._options = BackOptions.of(context)
        self._began = False
        self._holds_messages = False
        self._messages = Messages(self.builder)
        self._thread = ThreadState(self.builder, steps=self._options.steps)
        self.run_id = ""
        self.settled = False
        """True if the last event was the state of the thread after a step."""
        self.over = False
        """True if the server has told how the run ended."""
        self.marked = False
        """True if the stream had its end mark, which does not tell how the run ended."""

    # ------------------------------------------------------------------ what a caller tells

    @property
    def waits(self) -> bool:
        """True if the run has stopped for an answer."""
        return self._thread.waits

    @property
    def done(self) -> bool:
        """True if the run has ended."""
        return self.builder.done

    def complete(self) -> list[Event]:
        """The run is complete, as its server says."""
        self._finish()
        return self.builder.take()

    def failed(self, failure: Failure) -> list[Event]:
        """The run has failed, as its server says."""
        self.fail(failure)
        return self.builder.take()

    def again(self) -> None:
        """Another run of the thread follows, which is a part of the same answer."""
        self._began = self.settled = self._messages.joined = self.over = self.marked = False
        self.run_id = ""

    def rejoin(self) -> None:
        """The stream was opened again, so that something may be missing."""
        self._messages.joined = True

    def values(self, state: Any) -> list[Event]:
        """Read the last values of the thread, of which the stream may have lost some."""
        self.rejoin()
        if isinstance(state, dict) and self._began:
            self._values(state, "")
        return self.builder.take()

    def close(self, failure: Failure | None = None) -> list[Event]:
        if failure is None and (self.settled or self.marked or self.waits):
            self._finish()
        elif failure is None and self.saw_unknown and self.builder.is_empty:
            failure = Failure(ErrorCode.BACKEND_PROTOCOL, "The backend's answer has no event of its dialect.")
        return super().close(failure)

    def flush(self) -> None:
        self._thread.end()

    # ------------------------------------------------------------------ reading

    def read(self, event: dict[str, Any], name: str | None) -> None:
        self.read_value(event, name)

    def read_value(self, value: Any, name: str | None) -> None:
        if self.builder.done:
            return
        if name is None:
            if (error := error_in(value)) is not None:
                self.over = True
                self.fail(run_failure(error))
            else:
                self.saw_unknown = True
            return
        mode, _, namespace = name.partition("|")
        reader = _READERS.get(mode)
        if reader is not None:
            reader(self, value, namespace)
        elif mode not in _PASSED_OVER:
            self._thread.tell()
            self.builder.emit(Raw(NAME, {"type": mode, "data": value}))

    def read_error(self, value: Any) -> bool:
        self._error(value, "")
        return True

    def _metadata(self, value: Any, namespace: str) -> None:
        self.run_id = self.run_id or id_of(dict_of(value).get("run_id"))
        if self.run_id:
            self.builder.begin(extras={NAME: {"run_id": self.run_id}})

    def _error(self, value: Any, namespace: str) -> None:
        self.over = True
        self.fail(run_failure(value))

    def _end(self, value: Any, namespace: str) -> None:
        """The end mark of aegra, which says `success` of every run, and of old servers."""
        self.marked = True
        status = dict_of(value).get("status")
        if status in (None, "success") or (status == "interrupted" and self.waits):
            return
        self.over = True
        self.fail(canceled() if status == "interrupted" else run_failure(dict_of(value).get("error")))

    def _custom(self, value: Any, namespace: str) -> None:
        self._thread.tell()
        self.settled = False
        named = isinstance(value, dict) and value.keys() == {"name", "value"} and isinstance(value["name"], str)
        self.builder.emit(Custom(value["name"], value["value"]) if named else Custom(NAME, value))

    # ------------------------------------------------------------------ messages

    def _message_pair(self, value: Any, namespace: str) -> None:
        """A message and its metadata, as `messages-tuple` has them."""
        message, metadata = [*map(dict_of, value), {}, {}][:2] if isinstance(value, list) else ({}, {})
        model = text_of(metadata.get("ls_model_name"))
        if model:
            self.builder.begin(model=model)
        self._thread.tell()
        self.settled = False
        node = text_of(metadata.get("langgraph_node"))
        if self._options.nodes is not None and node not in self._options.nodes and is_answer(message):
            self._messages.hide(message)
            return
        if not namespace:
            self._thread.step(node)
        self._messages.read(message)

    def _messages_so_far(self, value: Any, namespace: str) -> None:
        """The messages that begin the text of a stream in the mode `messages`, each as far as it has come."""
        self._thread.tell()
        self.settled = False
        for message in value if isinstance(value, list) else ():
            if isinstance(message, dict):
                self._messages.so_far(message)

    def _again(self, message: Wire) -> None:
        """Read a message of an update or of the state. Fails the run if the stream has lost a part of it."""
        self._messages.again(message)
        if self._messages.failure is not None:
            self.fail(self._messages.failure)

    def _messages_complete(self, value: Any, namespace: str) -> None:
        self._thread.tell()
        self.settled = False
        for message in value if isinstance(value, list) else ():
            if isinstance(message, dict):
                self._again(message)

    # ------------------------------------------------------------------ nodes and the state

    def _updates(self, value: Any, namespace: str) -> None:
        self._thread.tell()
        for node, changes in dict_of(value).items():
            if node == INTERRUPT:
                self._thread.ask(changes)
                continue
            self.settled = False
            for change in changes if isinstance(changes, list) else [changes]:
                for message in _messages_in(change):
                    if text_of(message.get("id")) in self._messages.answers:
                        self._again(message)
            if not namespace:
                self._thread.end_step(node)

    def _values(self, value: Any, namespace: str) -> None:
        state = dict_of(value)
        # aegra tells a breakpoint by values without a state.
        self._thread.ask(state.get(INTERRUPT), tells_pause=state.keys() == {INTERRUPT})
        if self._messages.joined and self._holds_messages and _MESSAGES not in state and not namespace:
            self._updates(value, namespace)  # aegra replays updates under this name
            return
        self._holds_messages = self._holds_messages or (_MESSAGES in state and not namespace)
        messages = _messages_in(state)
        if namespace or (state.keys() <= {INTERRUPT}):
            self.settled = not namespace and self.waits
            return
        first, self._began = not self._began, True
        if first:
            # What the thread holds, and the input.
            self._messages.known.update(_identity(message, n) for n, message in enumerate(messages))
        else:
            self.settled = True
            for n, message in enumerate(messages):
                if _identity(message, n) not in self._messages.known and self._is_shown(message):
                    self._thread.tell()
                    self._again({**message, "id": _identity(message, n)})
        self._thread.note({name: each for name, each in state.items() if name not in (_MESSAGES, INTERRUPT)})
        if not first:
            self._thread.tell()

    def _is_shown(self, message: Wire) -> bool:
        """Return whether a message of the state is part of the answer: with the option `nodes`, what came in events."""
        return (
            self._options.nodes is None
            or not is_answer(message)
            or text_of(message.get("id")) in self._messages.answers
        )

    # ------------------------------------------------------------------ the end

    def _finish(self) -> None:
        if self.builder.done:
            return
        self.flush()
        self._messages.end()
        self._thread.interrupt(self._messages.calls)
        last = self._messages.last
        end = last.reason if last is not None else None
        self.builder.finish(end if end in _ENDS and not self.waits else None)
        self.builder.end()


def _messages_in(change: Any) -> list[Wire]:
    """Return the messages of a state or of an update of it: a list, or a single one."""
    found = dict_of(change).get(_MESSAGES)
    listed = found if isinstance(found, list) else [found]
    return [message for message in listed if isinstance(message, dict)]


def _identity(message: Wire, place: int) -> str:
    return text_of(message.get("id")) or f"{PLACE}{place}"


_Reader = Callable[[Decoder, Any, str], None]
_READERS: dict[str, _Reader] = {
    "metadata": Decoder._metadata,
    "messages": Decoder._message_pair,
    "messages/partial": Decoder._messages_so_far,
    "messages/complete": Decoder._messages_complete,
    "values": Decoder._values,
    "updates": Decoder._updates,
    "custom": Decoder._custom,
    "error": Decoder._error,
    "end": Decoder._end,
}
"""The handlers by the name of the event, without the subgraph that it comes from."""
_PASSED_OVER = frozenset({"messages/metadata", "checkpoints", "tasks", "debug", "events", "heartbeat", "feedback"})
"""Events that tell the same in other words, or nothing about the answer."""
