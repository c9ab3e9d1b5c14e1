"""Detection of a request's generation by its body, since both use the same path."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context
from bridge.dialects.ag_kit.options import FrontOptions, Generation
from bridge.dialects.ag_kit.wire import request_notes


def generation_of(body: dict[str, Any], context: Context) -> Generation:
    """Return the generation of a request body; the route's option, by default 1, if it has the keys of neither."""
    first = body.get("conversationId") is not None
    second = body.get("threadId") is not None or body.get("runId") is not None
    if first and second:
        return FrontOptions.of(context).generation or (2 if body.get("runId") is not None else 1)
    if not first and not second:
        return FrontOptions.of(context).generation or 1
    return 2 if second else 1


def generation_in(context: Context) -> Generation:
    """Return the generation of this run's request; without a request, that of the front's option."""
    if context.request is not None:
        return 2 if request_notes(context.request.extras).get("generation") == 2 else 1
    return FrontOptions.of(context).generation or 1
