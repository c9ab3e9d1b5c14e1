"""The options of a route (front) or a backend (back) of the agent run API."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options, QueuedRunsOptions
from bridge.toolkit.units import Seconds


class FrontOptions(QueuedRunsOptions):
    """Options of a route."""

    sse_event_name: bool = Field(
        False,
        description="Write `event: <TYPE>` into each frame; such frames do not reach EventSource.onmessage."
        " For: clients that listen for named events.",
    )
    access_token: bool = Field(
        False,
        description="Accept a key in the query parameter access_token of the events endpoint, for EventSource."
        " For: pages that use EventSource, which sends no headers.",
    )
    reasoning_events: Literal["reasoning", "thinking", "none"] = Field(
        "reasoning",
        description="Reasoning events: REASONING_*, THINKING_* for the oldest clients, or none."
        " For: clients of AG-UI before 0.0.47 (thinking), or that fail at both (none).",
    )


class BackOptions(Options):
    """Options of a backend."""

    runtime_mode: Literal["chat", "automation"] | None = Field(
        None,
        description="Mode of the runs that the bridge starts; null = the client's mode, else chat."
        " For: clients of other dialects, which have no modes.",
    )
    part_style: Literal["binary", "media"] = Field(
        "binary", description="Format of media: the parts of AG-UI 0.x, or those of 1.0. For: servers of AG-UI 1.0."
    )
    idle_limit: int | None = Field(
        None,
        ge=1,
        le=3600,
        description="Number of polls without an event after which a stream is closed; null = the backend's default."
        " For: agents that are silent for long.",
    )
    reconnect: tuple[Seconds, ...] = Field(
        (0.2, 0.5, 1.0, 2.0, 5.0),
        description="Delays before each attempt to resume a stream; each event resets them; after the "
        "last one the run fails."
        " For: servers that need longer to restart.",
    )
    forward_props: bool = Field(
        False,
        description="Send model, sampling, tool choice and response format in forwardedProps."
        " For: servers that read them, such as another bridge.",
    )
    reasoning_history: bool = Field(
        True, description="Send earlier reasoning as messages. For: servers whose AG-UI library rejects such messages."
    )
