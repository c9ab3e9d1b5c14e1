"""The three objects of the protocol with all fields in order, and usage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.model import UsageReported
from bridge.toolkit.counts import counts_in


def content_object(
    number: Any,
    status: str,
    kind: str,
    index: int,
    delta: bool,
    msg_id: str,
    payload: dict[str, Any],
    error: object = None,
) -> dict[str, Any]:
    return {
        "sequence_number": number,
        "object": "content",
        "status": status,
        "error": error,
        "type": kind,
        "index": index,
        "delta": delta,
        "msg_id": msg_id,
        **payload,
    }


@dataclass(slots=True)
class WireMessage:
    """A message that is being written. `owner`: the id of the model's message whose parts it holds."""

    id: str
    kind: str
    role: str
    owner: str
    contents: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] | None = None
    status: str = "completed"
    ended: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def opening(self, number: int | None) -> dict[str, Any]:
        return self._object(number, "in_progress", None, None)

    def closing(self, number: int | None) -> dict[str, Any]:
        return self._object(number, self.status, self.contents, self.usage)

    def _object(
        self, number: int | None, status: str, content: list[dict[str, Any]] | None, usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        return {
            "sequence_number": number,
            "object": "message",
            "status": status,
            "error": None,
            "id": self.id,
            "type": self.kind,
            "role": self.role,
            "content": content,
            "code": None,
            "message": None,
            "usage": usage,
            "metadata": self.metadata or None,
            **self.extra,
        }


@dataclass(slots=True)
class WireResponse:
    """The fields that are the same in all response events of one run."""

    id: str
    created_at: int
    session_id: str

    def event(
        self,
        number: int | None,
        status: str,
        *,
        output: list[dict[str, Any]] | None = None,
        usage: dict[str, Any] | None = None,
        completed_at: int | None = None,
        error: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        return {
            "sequence_number": number,
            "object": "response",
            "status": status,
            "error": error,
            "id": self.id,
            "created_at": self.created_at,
            "completed_at": completed_at,
            "output": output,
            "usage": usage,
            "session_id": self.session_id,
        }


def usage_object(report: UsageReported) -> dict[str, Any] | None:
    """Return `usage`: what the web frontend shows, with details named as in the OpenAI Responses API."""
    total = report.total
    if total is None and report.input is not None and report.output is not None:
        total = report.input + report.output
    counts = {"input_tokens": report.input, "output_tokens": report.output, "total_tokens": total}
    usage: dict[str, Any] = {k: v for k, v in counts.items() if v is not None}
    read = {"cached_tokens": report.cached, "cache_write_tokens": report.written}
    if details := {k: v for k, v in read.items() if v is not None}:
        usage["input_tokens_details"] = details
    if report.reasoning is not None:
        usage["output_tokens_details"] = {"reasoning_tokens": report.reasoning}
    return {**usage, "estimated": True} if report.estimated else usage or None


def usage_report(usage: object) -> UsageReported | None:
    """Return token counts from any spelling; None if there are none."""
    counts = counts_in(usage)
    return UsageReported(**counts) if counts else None
