"""Which generation a request is of: both come on the same path, and the body tells."""

from __future__ import annotations

from typing import Any

from bridge.codec import Context
from bridge.dialects.ag_kit.options import Generation, front
from bridge.dialects.ag_kit.wire import notes


def generation_of(body: dict[str, Any], context: Context) -> Generation:
    """A body with the key of neither generation begins a conversation of the route's generation, by default 1."""
    first = body.get("conversationId") is not None
    second = body.get("threadId") is not None or body.get("runId") is not None
    if first and second:
        return front(context).generation or (2 if body.get("runId") is not None else 1)
    if not first and not second:
        return front(context).generation or 1
    return 2 if second else 1


def generation_in(context: Context) -> Generation:
    """The generation of the request of this run; without a request, what the front's option says."""
    if context.request is not None:
        return 2 if notes(context.request.extras).get("generation") == 2 else 1
    return front(context).generation or 1
