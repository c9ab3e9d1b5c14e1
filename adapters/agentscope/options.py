"""What a route or a backend of this dialect may be told."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from bridge.codec import Context, Options


class FrontOptions(Options):
    """Options of a route that speaks AgentScope to its clients."""

    call_type: Literal["plugin_call", "function_call"] = Field(
        "plugin_call", description="Message type of ordinary tool calls; the web frontend shows only plugin_call."
    )
    arguments: Literal["completed", "snapshots"] = Field(
        "completed", description="snapshots: arguments also grow while they stream (quadratic in bytes)."
    )
    keepalive: Literal["comment", "message", "off"] = Field(
        "comment", description="What a silent stream carries: an SSE comment, a heartbeat message, or nothing."
    )
    length: Literal["completed", "incomplete"] = Field(
        "completed", description="Status of an answer that ran into its token limit."
    )
    content_filter: Literal["completed", "rejected", "failed"] = Field(
        "completed", description="Status of an answer that a filter stopped."
    )
    honour_stream: bool = Field(
        False, description="true: stream:false is answered by one JSON object. The real server always streams."
    )

    @field_validator("keepalive", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        """YAML reads a bare `off` as false."""
        return "off" if value is False else value


class BackOptions(Options):
    """Options of a backend that speaks AgentScope."""

    path: str = Field("/process", description="Path of the chat endpoint below the base URL.")
    call_type: Literal["plugin_call", "function_call"] = Field(
        "plugin_call", description="Message type of ordinary tool calls in the history that is sent."
    )


def front(context: Context) -> FrontOptions:
    """The front's options, or the defaults when a stream is translated without a route."""
    return context.options if isinstance(context.options, FrontOptions) else FrontOptions()


def back(context: Context) -> BackOptions:
    """The back's options, or the defaults when a stream is translated without a route."""
    return context.options if isinstance(context.options, BackOptions) else BackOptions()
