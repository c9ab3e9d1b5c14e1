"""What may be configured on a route whose clients speak the agent run API."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.codec import Context, KeptOptions


class FrontOptions(KeptOptions):
    """Options of a route."""

    sse_event_name: bool = Field(
        False, description="Write `event: <TYPE>` into each frame; such frames do not reach EventSource.onmessage."
    )
    access_token: bool = Field(
        False, description="Take a key from the query parameter access_token on the events endpoint, for EventSource."
    )
    reasoning_events: Literal["reasoning", "thinking", "none"] = Field(
        "reasoning", description="Events that tell reasoning: REASONING_*, THINKING_* for the oldest clients, or none."
    )


def front(context: Context) -> FrontOptions:
    """The front's options, or the defaults when a stream is translated without a route."""
    return context.options if isinstance(context.options, FrontOptions) else FrontOptions()
