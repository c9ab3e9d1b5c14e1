"""The capabilities of AG-UI."""

from __future__ import annotations

from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Demands, Feature, RunsTools, entries
from bridge.dialects.ag_ui.options import FrontOptions
from bridge.model import HistoryMode

_AS_MARKDOWN = "Markdown in a text message; the protocol has no event for it"
_BY_OPTION = "the protocol has no field for it; backend option forward_props sends it in forwardedProps"
_NO_FIELD = "the protocol has no field for it"

DEMANDS = Demands(
    own="ag-ui",
    object_arguments=True,  # LangGraph, Pydantic AI, ADK: agents parse them, or hand them to the model's API
    media_types=True,  # mealie-recipes/mealie#5897: the model's API behind the agent refuses image/jpg
)
"""Of the frameworks behind the agents, which hand a history to the API of a model."""

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.REFUSAL: "a text message; the protocol has no event for it",
            Feature.IMAGE: _AS_MARKDOWN,
            Feature.AUDIO: _AS_MARKDOWN,
            Feature.VIDEO: _AS_MARKDOWN,
            Feature.FILE: _AS_MARKDOWN,
            Feature.DATA: "JSON in a text message",
        },
        drop={
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.CHOICES: "one answer; only the first choice is sent",
            Feature.MODEL: "only in the usage report",
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.DATA: "JSON as text",
            Feature.REFUSAL_HISTORY: "part of the assistant's text",
        },
        drop={
            Feature.TOOL_CHOICE: _BY_OPTION,
            Feature.PARALLEL_TOOL_CALLS: _BY_OPTION,
            Feature.RESPONSE_FORMAT: _BY_OPTION,
            Feature.SAMPLING: _BY_OPTION,
            Feature.REASONING_EFFORT: _BY_OPTION,
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.USER_ID: _BY_OPTION,
            Feature.METADATA: _NO_FIELD,
        },
    ),
    history=HistoryMode.FULL,
    keeps_history=False,
    eager_start=True,
    # A client runs what is pending when the run has finished: calls started minus results.
    client_runs_calls=False,
    runs_tools=RunsTools.UNLISTED,
    cache_writes=True,
    demands=DEMANDS,
    opaque_values="one",
)


@lru_cache
def card(options: FrontOptions, *, new: bool) -> Capabilities:
    """Return the card of a route with these options; `new`: for a client of version 1.0."""
    no_value = {Feature.REASONING_SIGNATURE: "THINKING_* events have no place for it"}
    hidden = dict.fromkeys((Feature.REASONING, Feature.REASONING_SIGNATURE), "dropped by option reasoning_events")
    drop = {"reasoning": {}, "thinking": no_value, "none": hidden}[options.reasoning_events]
    # Clients of 0.0.57 to 0.0.59 refuse the whole run for the outcome of a canceled one.
    refuse = {} if new else {Feature.FINISH_CANCELED: "sent as an error to clients before 1.0"}
    return CAPABILITIES.changed(drop=drop, refuse=refuse)
