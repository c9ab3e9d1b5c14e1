"""The end of a run: outcomes, interrupts and usage, in both directions."""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from typing import Any

from bridge.dialects.ag_ui.wire import OURS, UNNAMED, camel, noted, own
from bridge.model import Interrupted, Resume, UsageReported, question_of
from bridge.model.jsontext import loads
from bridge.toolkit.counts import counts_in

# ------------------------------------------------------------------ usage

_COUNTS = (
    ("input", "inputTokens"),
    ("output", "outputTokens"),
    ("total", "totalTokens"),
    ("cached", "cachedInputTokens"),
    ("reasoning", "reasoningTokens"),
    ("written", "cacheWriteInputTokens"),
)
_NAMES = [theirs for _, theirs in _COUNTS]
_counts_of = attrgetter(*(ours for ours, _ in _COUNTS))


def write_usage(usage: UsageReported, model: str | None) -> list[dict[str, Any]]:
    """Return the list of the wire: an AG-UI backend's own entries unchanged, else one entry; empty if there is none."""
    usage_sent = own(usage.extras).get("usage")
    if isinstance(usage_sent, list):
        return usage_sent
    counts = zip(_NAMES, _counts_of(usage), strict=True)
    entry: dict[str, Any] = {name: count for name, count in counts if count is not None}
    if not entry:
        return []
    if usage.estimated:
        entry["estimated"] = True
    return [{"model": model, **entry} if model else entry]


def read_usage(value: Any) -> UsageReported | None:
    """The entries summed; None when they hold no number."""
    entries = [camel(e) for e in (value if isinstance(value, list) else [value]) if isinstance(e, dict)]
    sums: dict[str, Any] = {}
    for entry in entries:
        for name, count in counts_in(entry).items():
            sums[name] = sums.get(name, 0) + count
    if not sums:
        return None
    clean = [{k: v for k, v in e.items() if v is not None} for e in entries]
    exact = all(_fits(e) for e in clean)
    estimated = any(e.get("estimated") is True for e in entries)
    return UsageReported(**sums, extras=noted({"usage": clean}) if exact else None, estimated=estimated)


def _fits(entry: dict[str, Any]) -> bool:
    """Return whether a client accepts this entry unchanged."""
    return all(
        isinstance(v, str) if k in ("provider", "model") else type(v) is int and 0 <= v < 2**53
        for k, v in entry.items()
    )


# ------------------------------------------------------------------ interrupts

# Fields of an interrupt besides its id, reason and call, which form the payload.
_FIELDS: dict[str, type] = {
    "message": str,
    "responseSchema": dict,
    "expiresAt": str,
    "metadata": dict,
    "subagentRunId": str,
}


_SUSPENDED = "mastra_suspend"


def write_interrupt(event: Interrupted) -> dict[str, Any]:
    """The interrupt of the wire; a payload of another protocol travels whole in the metadata."""
    payload = event.payload
    ours: dict[str, Any] = {}
    wire: dict[str, Any] = {"id": event.interrupt_id, "reason": event.reason or _reason(event)}
    if event.reason is None:
        ours["reason"] = None
    if event.call_id:
        wire["toolCallId"] = event.call_id
    if isinstance(payload, dict) and payload and _is_native(payload):
        wire.update(payload)
    elif payload is not None:
        ours["payload"] = payload
        wire["message"] = question_of(event)
    if ours:
        wire["metadata"] = {**wire.get("metadata", {}), OURS: ours}
    return wire


def _reason(event: Interrupted) -> str:
    return "tool_call" if event.call_id else "input_required"


def _is_native(payload: dict[str, Any]) -> bool:
    fits = all(k in _FIELDS and isinstance(v, _FIELDS[k]) for k, v in payload.items())
    return fits and payload.get("metadata") != {} and OURS not in payload.get("metadata", {})


def read_interrupt(value: dict[str, Any], made_id: str) -> Interrupted:
    """The event for an interrupt of the wire."""
    value = {k: v for k, v in camel(value).items() if v is not None}
    metadata = value.get("metadata")
    theirs = dict(metadata) if isinstance(metadata, dict) else {}
    ours = theirs.pop(OURS, None)
    reason, call_id = value.get("reason"), value.get("toolCallId")
    payload: Any = {k: v for k, v in value.items() if k not in ("id", "reason", "toolCallId")} or None
    if isinstance(ours, dict):
        if "reason" in ours:
            reason = None
        if "payload" in ours:
            payload = ours["payload"]
        elif payload:
            rest = {k: v for k, v in payload.items() if k != "metadata"}
            payload = {**rest, "metadata": theirs} if theirs else rest
            payload = payload or None
    wanted = value.get("id")
    return Interrupted(
        wanted if isinstance(wanted, str) and wanted else made_id,
        reason if isinstance(reason, str) else None,
        payload,
        call_id if isinstance(call_id, str) and call_id else None,
        extras=noted({"notes": {"metadata": theirs} if theirs else None}),
    )


def read_unnamed(value: Any, said: Any, made_id: str) -> Interrupted:
    """The event for the `value` of a CUSTOM event `on_interrupt`; `said` is what it holds if it is JSON text.

    Mastra describes a suspended call in it: that is the interrupt of its outcomes. Its id holds what `unnamed_event`
    needs.
    """
    if not isinstance(said, dict) or said.get("type") != _SUSPENDED:
        return read_interrupt(said, made_id) if isinstance(value, dict) else Interrupted(made_id, None, said)
    schema, run_id, call_id = said.get("resumeSchema"), said.get("runId"), said.get("toolCallId")
    if isinstance(schema, str):
        with suppress(ValueError):
            schema = loads(schema)
    told = {"reason": "mastra:tool_suspend", "toolCallId": call_id, "metadata": {"mastra": said}}
    known = isinstance(run_id, str) and isinstance(call_id, str)
    return read_interrupt(
        {**told, "responseSchema": schema if isinstance(schema, dict) else None},
        f"{UNNAMED}_{run_id}::{call_id}" if known else made_id,
    )


def unnamed_event(interrupt_id: str) -> dict[str, Any] | None:
    """What Mastra needs of the event that asked, besides the answer; None if another agent asked."""
    run_id, known, call_id = interrupt_id.removeprefix(f"{UNNAMED}_").partition("::")
    return {"type": _SUSPENDED, "toolCallId": call_id, "runId": run_id} if known else None


def metadata_of(answer: Resume) -> dict[str, Any] | None:
    """The metadata of the question that is answered: some agents check a proof in it (AG2)."""
    notes = own(answer.extras).get("notes")
    return notes.get("metadata") if isinstance(notes, dict) else None
