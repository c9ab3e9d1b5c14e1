"""What an encoder keeps for the end of a run, and the events of the end."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context, Feature
from bridge.dialects.ag_ui.errors import run_error
from bridge.dialects.ag_ui.reports import write_interrupt, write_usage
from bridge.dialects.ag_ui.wholes import Subagents
from bridge.dialects.ag_ui.wire import NOTED, TOOL_INPUT, UNNAMED, own
from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason, Interrupted, RunFinished, UsageReported
from bridge.model.jsontext import input_of

_Wire = dict[str, Any]
_FILTERED = Failure(ErrorCode.CONTENT_FILTER, "A content filter stopped the answer.")


class Ending:
    """`run` holds the ids the client gave; `pending` the calls without a result, each with its name and the pieces of
    its arguments; `steps` those that are open, each with its subagent."""

    def __init__(self, context: Context, new: bool) -> None:
        self._context = context
        self._new = new
        self.run: _Wire = {}
        self.model: str | None = None
        self.pending: dict[str, tuple[str, list[str]]] = {}
        request = context.request
        self._tools = {tool.name for tool in request.tools or ()} if request is not None else set()
        self.steps: dict[tuple[str | None, str], None] = {}
        self.subagents = Subagents()
        self.interrupts: list[Interrupted] = []
        self.usage: UsageReported | None = None

    def failed(self, failure: Failure, metadata: _Wire | None = None) -> list[_Wire]:
        wire = run_error(failure)
        if metadata:
            wire["metadata"] = {**wire.get("metadata", {}), **metadata}
        return [*self._closing(), *self._question(), {**wire, **self._reported()}]

    def finished(self, event: RunFinished, has_words: bool, held: _Wire | None) -> list[_Wire]:
        """`said`: there was an answer. `held`: the end of the last text, which carries the reason if it is the last.

        Calls that wait for a result are named, and so is what the run waits for.
        """
        reason = event.reason
        note = {"finish_reason": str(reason)} if str(reason) in NOTED else {}
        if reason is FinishReason.CONTENT_FILTER and not has_words and not self.interrupts:
            return self.failed(_FILTERED, note)
        if note and held is not None:
            held["metadata"] = {**held.get("metadata", {}), **note}
            note = {}
        result = own(event.extras).get("result")
        wire = {"type": "RUN_FINISHED", **self.run, **({} if result is None else {"result": result})}
        wire.update(self._outcome(reason))
        wire.update(self._reported())
        if metadata := {**(own(event.extras).get("metadata") or {}), **note}:
            wire["metadata"] = metadata
        said = self._question() if reason is FinishReason.CANCELED else self._inputs()
        return [*self._closing(), *said, wire]

    def _closing(self) -> list[_Wire]:
        steps: list[_Wire] = []
        for owner, name in self.steps:
            step = {"type": "STEP_FINISHED", "stepName": name}
            steps.append({**step, "subagentRunId": owner} if owner else step)
        return [*steps, *self.subagents.closing()]

    def _question(self) -> list[_Wire]:
        """Write the open questions of a failed or canceled run, as its end has no place for them."""
        if any("told" in own(i.extras) for i in self.interrupts):
            return []  # as the agent told them
        return [{"type": "CUSTOM", "name": UNNAMED, "value": write_interrupt(i)} for i in self.interrupts]

    def _inputs(self) -> list[_Wire]:
        """Write the calls of the client's tools once more, whole, for clients that run them on this event only."""
        if self.interrupts:
            return []
        calls = [(each, name, pieces) for each, (name, pieces) in self.pending.items() if name in self._tools]
        return [
            {
                "type": "CUSTOM",
                "name": TOOL_INPUT,
                "value": {"toolCallId": call_id, "toolName": name, "input": input_of("".join(pieces))},
            }
            for call_id, name, pieces in calls
        ]

    def _reported(self) -> _Wire:
        usage = write_usage(self.usage, self.model or self._context.model) if self.usage else []
        if self.model and not usage:
            self._context.lost.add(Feature.MODEL, "there is no usage report to carry it")
        return {"usage": usage} if usage else {}

    def _outcome(self, reason: FinishReason) -> _Wire:
        if reason is FinishReason.CANCELED:
            return {"outcome": {"type": "cancelled"}}
        if self.interrupts:
            return {"outcome": {"type": "interrupt", "interrupts": [write_interrupt(i) for i in self.interrupts]}}
        if not self._new:
            return {}
        pending = {"pendingToolCallIds": list(self.pending)} if self.pending else {}
        return {"outcome": {"type": "success", **pending}}
