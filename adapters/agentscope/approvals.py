"""Interrupts <-> approval requests and their answers: the confirm and cancel buttons of the web frontend.

Interrupts of other dialects become approval requests, too. Their reason and payload are sent in the message's metadata,
or inside `data` in forms without metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.dialects.agentscope.extras import NAME
from bridge.model import Interrupted, Resume, json_text


def approval_data(event: Interrupted, call: tuple[str, str] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `data` of an approval request, and metadata with what has no field in it.

    A question without words shows the name and the arguments of the `call` that it is about.
    """
    payload = event.payload if isinstance(event.payload, dict) else {}
    is_call = isinstance(payload.get("name"), str) and "arguments" in payload
    if is_call and event.reason == "approval" and payload.get("id") == event.interrupt_id:
        return payload, {}
    name, arguments = event.reason or "interrupt", event.payload
    if is_call:
        name, arguments = payload["name"], payload["arguments"]
    elif not arguments and call is not None:
        name, arguments = call
    data: dict[str, Any] = {
        "id": event.interrupt_id,
        "name": name,
        "arguments": arguments if isinstance(arguments, str) else json_text(arguments),
        "server_label": payload.get("server_label") or "",
    }
    if event.call_id:
        data["call_id"] = event.call_id
    return data, {"interrupt": {"reason": event.reason, "payload": event.payload}}


def interrupted(
    data: dict[str, Any], metadata: dict[str, Any], own_extras: dict[str, Any], make_id: Callable[[str], str]
) -> Interrupted:
    """Return the interrupt of an approval request. `own_extras`: extras for frontends of the same dialect."""
    wire_id, call_id = data.get("id"), data.get("call_id")
    interrupt = metadata.get("interrupt") or data.get("interrupt")
    if not isinstance(interrupt, dict):
        interrupt = {"reason": "approval", "payload": data}
    reason = interrupt.get("reason")
    return Interrupted(
        wire_id if isinstance(wire_id, str) and wire_id else make_id("interrupt"),
        reason if isinstance(reason, str) else None,
        interrupt.get("payload"),
        call_id if isinstance(call_id, str) else None,
        {NAME: own_extras},
    )


def answer_data(resume: Resume) -> dict[str, Any]:
    """Return `data` of the answer to an approval request."""
    payload = resume.payload if isinstance(resume.payload, dict) else {}
    reason = payload.get("reason")
    return {
        "approve": resume.agrees,
        "id": resume.interrupt_id,
        "approval_request_id": resume.interrupt_id,
        "reason": reason if isinstance(reason, str) else resume.payload if isinstance(resume.payload, str) else None,
    }
