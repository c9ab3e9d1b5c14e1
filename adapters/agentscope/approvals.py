"""Interrupts <-> approval requests and their answers: the confirm and cancel buttons of the web frontend.

An interrupt of another dialect becomes an approval request, too. Its reason and payload are kept beside it: in the
message's metadata, or inside `data` where a written form has no metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.dialects.agentscope.notes import NAME
from bridge.model import Interrupted, Resume, json_text


def approval_data(event: Interrupted) -> tuple[dict[str, Any], dict[str, Any]]:
    """`data` of an approval request, and the note that keeps what it cannot say."""
    payload = event.payload if isinstance(event.payload, dict) else {}
    looks = isinstance(payload.get("name"), str) and "arguments" in payload
    if looks and event.reason == "approval" and payload.get("id") == event.interrupt_id:
        return payload, {}
    arguments = payload["arguments"] if looks else event.payload
    data: dict[str, Any] = {
        "id": event.interrupt_id,
        "name": payload["name"] if looks else event.reason or "interrupt",
        "arguments": arguments if isinstance(arguments, str) else json_text(arguments),
        "server_label": payload.get("server_label") or "",
    }
    if event.call_id:
        data["call_id"] = event.call_id
    return data, {"interrupt": {"reason": event.reason, "payload": event.payload}}


def interrupted(
    data: dict[str, Any], metadata: dict[str, Any], beside: dict[str, Any], make_id: Callable[[str], str]
) -> Interrupted:
    """Return the interrupt in an approval request. `beside` holds fields for frontends of the same dialect."""
    said, call_id = data.get("id"), data.get("call_id")
    noted = metadata.get("interrupt") or data.get("interrupt")
    if not isinstance(noted, dict):
        noted = {"reason": "approval", "payload": data}
    reason = noted.get("reason")
    return Interrupted(
        said if isinstance(said, str) and said else make_id("interrupt"),
        reason if isinstance(reason, str) else None,
        noted.get("payload"),
        call_id if isinstance(call_id, str) else None,
        {NAME: beside},
    )


def answer_data(resume: Resume) -> dict[str, Any]:
    """`data` of the answer to an approval request."""
    payload = resume.payload if isinstance(resume.payload, dict) else {}
    reason = payload.get("reason")
    return {
        "approve": resume.agrees,
        "id": resume.interrupt_id,
        "approval_request_id": resume.interrupt_id,
        "reason": reason if isinstance(reason, str) else resume.payload if isinstance(resume.payload, str) else None,
    }
