"""What a run tells beside its messages: the nodes that run, the state of the thread, and what the run waits for."""

from __future__ import annotations

from typing import Any

from bridge.dialects.langgraph.wire import BREAKPOINT, UNNAMED, Wire
from bridge.model import Builder, Interrupted, StateChanged, StateOp, StepEnded, StepStarted
from bridge.model.jsontext import dict_of, dumps, text_of


class ThreadState:
    """The state of one thread, which goes to `builder`; `steps`: the nodes go there, too."""

    def __init__(self, builder: Builder, *, steps: bool) -> None:
        self._builder = builder
        self._tells_steps = steps
        self._asked: dict[str, tuple[Any, str]] = {}
        self._paused = False
        self._state: Wire = {}
        self._changed = False
        self._steps: dict[str, None] = {}

    @property
    def waits(self) -> bool:
        """True if the run has stopped for an answer."""
        return bool(self._asked) or self._paused

    def note(self, state: Wire) -> None:
        """Note a state, which is sent with the next event."""
        if state != self._state:
            self._state, self._changed = state, True

    def tell(self) -> None:
        """Tell the state. The first one waits for the next event, which may name the model of the run."""
        if self._changed:
            self._changed = False
            self._builder.emit(StateChanged(StateOp.SNAPSHOT, self._state))

    def step(self, node: str) -> None:
        """A node runs."""
        if self._tells_steps and node and node not in self._steps:
            self._steps[node] = None
            self._builder.emit(StepStarted(node))

    def end_step(self, node: str) -> None:
        """A node has ended."""
        if self._tells_steps:
            self.step(node)
            del self._steps[node]
            self._builder.emit(StepEnded(node))

    def end(self) -> None:
        """End what is open, since the run is over."""
        self.tell()
        for name in self._steps:
            self._builder.emit(StepEnded(name))
        self._steps.clear()

    # ------------------------------------------------------------------ questions

    def ask(self, value: Any, *, tells_pause: bool = True) -> None:
        """Note questions; an empty list is a breakpoint, where it `tells_pause`."""
        if not isinstance(value, list):
            return
        if not value and tells_pause:
            self._paused = True
        for question in value:
            if isinstance(question, dict):
                name = text_of(question.get("interrupt_id")) or text_of(question.get("id"))
                if not name:
                    same = dumps([question.get("ns"), question.get("value")]).decode()
                    name = next((n for n, q in self._asked.items() if n.startswith(UNNAMED) and q[1] == same), "")
                    name = name or f"{UNNAMED}-{len(self._asked)}"
                    self._asked.setdefault(name, (question.get("value"), same))
                self._asked.setdefault(name, (question.get("value"), ""))

    def interrupt(self, calls: Wire) -> None:
        """Tell what the run waits for. `calls` are the tools of its calls, by their ids."""
        for name, (value, _) in self._asked.items():
            actions = _actions(value)
            of_tool = [i for i, tool in calls.items() if tool == actions[0]] if actions else []
            call_id = next((i for i in of_tool if self._builder.is_unanswered(i)), None)
            reason = "tool_call" if actions else "input_required"
            self._builder.interrupt(Interrupted(name, reason, value, call_id))
        if self._paused and not self._asked:
            text = "The agent has stopped at a breakpoint. Go on?"
            self._builder.interrupt(Interrupted(BREAKPOINT, "confirmation", {"message": text}))


def _actions(question: Any) -> list[str]:
    """Return the names of the tools that a question asks to approve, in the form of the middleware or the older one."""
    asked = dict_of(question).get("action_requests")
    entries = asked if isinstance(asked, list) else question if isinstance(question, list) else []
    requests = [entry if isinstance(asked, list) else dict_of(entry).get("action_request") for entry in entries]
    named = (dict_of(request).get("name") or dict_of(request).get("action") for request in requests)
    return [name for name in named if isinstance(name, str) and name]
