"""The AG-UI dialect, whose events this API serves; it is found by name, since dialects do not import each other."""

from __future__ import annotations

from dataclasses import replace

from bridge.contract import Context, Dialect, registry
from bridge.dialects.agent_runs.options import BackOptions, FrontOptions
from bridge.model import HistoryMode

NAME = "agent-runs"
BASE = "ag-ui"
MODES = ("chat", "automation")

AGUI: Dialect = registry.get(BASE)
# Messages are compared by id: the whole conversation and only new messages are both legal. A backend keeps the
# conversation by its thread, and is sent the whole of it all the same.
CAPABILITIES = replace(AGUI.capabilities, history=HistoryMode.DELTA, keeps_history=True, wants_whole=True)


def inner(context: Context) -> Context:
    """The context as AG-UI's front wants it. The server keeps ids apart over the whole thread, so that the encoder
    need not: what it calls a message is what the history calls it."""
    chosen: FrontOptions = FrontOptions.of(context)
    options = AGUI.front_options.model_validate({"reasoning_events": chosen.reasoning_events})
    request = context.request and replace(context.request, history=HistoryMode.FULL)
    return replace(context, options=options, request=request)


def outer(context: Context) -> Context:
    """The context as AG-UI's back wants it."""
    chosen: BackOptions = BackOptions.of(context)
    fields = {
        "forward_props": chosen.forward_props,
        "reasoning_history": chosen.reasoning_history,
        "part_style": "binary",
    }
    return replace(context, options=AGUI.back_options.model_validate(fields))
