"""The card of a LangGraph server."""

from __future__ import annotations

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Demands, Feature, RunsTools, entries

_GRAPH = "the graph chooses its model; backend option configurable"
_NO_FIELD = "the protocol has no field for it"
_NOT_TOLD = "the protocol has no event for it"
_OWN_TOOLS = "the graph has its own tools; backend option tools"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        drop={
            Feature.TOOL_ORIGIN: _NOT_TOLD,
            Feature.DATA: _NOT_TOLD,
            Feature.CHOICES: "one answer",
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.DATA: "sent as text",
            Feature.REFUSAL_HISTORY: "sent as text",
        },
        drop={
            Feature.TOOLS: _OWN_TOOLS,
            Feature.TOOL_CHOICE: _OWN_TOOLS,
            Feature.PARALLEL_TOOL_CALLS: _GRAPH,
            Feature.RESPONSE_FORMAT: _NO_FIELD,
            Feature.SAMPLING: _GRAPH,
            Feature.REASONING_EFFORT: _GRAPH,
            Feature.REASONING_HISTORY: "the thread keeps it",
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.USER_ID: "backend option user_id",
            Feature.CONTEXT: "backend option context",
            Feature.STATE: "backend option state",
            Feature.EXTRAS: _NO_FIELD,
        },
    ),
    keeps_history=True,
    runs_tools=RunsTools.ANY,
    exact_arguments=False,
    demands=Demands(object_arguments=True),
)
