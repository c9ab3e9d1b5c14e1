"""The options of a route (front) or a backend (back) of the agent run API."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options, QueuedRunsOptions
from bridge.toolkit.units import Seconds


class FrontOptions(QueuedRunsOptions):
    """Options of a route."""

    sse_event_name: bool = Field(
        False, description="Write `event: <TYPE>` into each frame; such frames do not reach EventSource.onmessage."
    )
    access_token: bool = Field(
        False, description="Accept a key in the query parameter access_token of the events endpoint, for EventSource."
    )
    reasoning_events: Literal["reasoning", "thinking", "none"] = Field(
        "reasoning", description="Reasoning events: REASONING_*, THINKING_* for the oldest clients, or none."
    )


class BackOptions(Options):
    """Options of a backend."""

    runtime_mode: Literal["chat", "automation"] | None = Field(
        None, description="Mode of the runs that the bridge starts; null = the client's mode, else chat."
    )
    part_style: Literal["binary", "media"] = Field(
        "binary", description="Format of media: the parts of AG-UI 0.x, or those of 1.0."
    )
    idle_limit: int | None = Field(
        None,
        ge=1,
        le=3600,
        description="Number of polls without an event after which a stream is closed; null = the backend's default.",
    )
    reconnect: tuple[Seconds, ...] = Field(
        (0.2, 0.5, 1.0, 2.0, 5.0),
        description="Delays in seconds before each attempt to resume a stream; each event resets them; after the "
        "last one the run fails.",
    )
    forward_props: bool = Field(
        False, description="Send model, sampling, tool choice and response format in forwardedProps."
    )
    reasoning_history: bool = Field(True, description="Send earlier reasoning as messages.")
