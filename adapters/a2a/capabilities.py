"""The capabilities of A2A."""

from __future__ import annotations

from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries
from bridge.model import HistoryMode

_NO_FIELD = "the protocol has no field for it"
_REASONING = "dropped without option reasoning: status"
_TOOLS = "dropped without option tools: status"
_CALLS = "pending calls in the metadata of the task; other calls only with option tools: status"
_METADATA = "dropped without backend option metadata"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={Feature.REFUSAL: "a text part"},
        custom={Feature.TOOL_CALL: _CALLS},
        drop={
            Feature.REASONING: _REASONING,
            Feature.REASONING_SIGNATURE: _REASONING,
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.TOOL_RESULT: _TOOLS,
            Feature.STATE: _NO_FIELD,
            Feature.STEP: _NO_FIELD,
            Feature.CUSTOM: _NO_FIELD,
            Feature.RAW: "events of other dialects",
            Feature.CHOICES: "only the first choice is sent",
            Feature.MODEL: _NO_FIELD,
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.SYSTEM: "a text part",
            Feature.REFUSAL_HISTORY: "a text part",
        },
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.TOOLS: _NO_FIELD,
            Feature.TOOL_CHOICE: _NO_FIELD,
            Feature.PARALLEL_TOOL_CALLS: _NO_FIELD,
            Feature.RESPONSE_FORMAT: _NO_FIELD,
            Feature.SAMPLING: _NO_FIELD,
            Feature.REASONING_EFFORT: _NO_FIELD,
            Feature.REASONING_HISTORY: "the agent keeps its own",
            Feature.TOOL_HISTORY: "the agent keeps its own; results of pending calls are sent",
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.USER_ID: _METADATA,
            Feature.METADATA: _METADATA,
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
        },
        refuse={Feature.FILE_REF: "files are sent by URL or inline"},
    ),
    history=HistoryMode.DELTA,
    keeps_history=True,
    names_threads=True,
    awaits_results=True,
    eager_start=True,
    client_runs_calls=False,
    cache_writes=True,
    usage_on_failure=True,
    exact_arguments=False,
    exact_results=False,
    runs_tools=RunsTools.ANY,
    names_interrupts=False,
    opaque_values="signature",
    file_ids=False,
)


@lru_cache
def card(*, thoughts: bool) -> Capabilities:
    """Return the card of a route; `thoughts`: option `reasoning` sends reasoning in the status of the task."""
    return CAPABILITIES.changed(exact=(Feature.REASONING, Feature.REASONING_SIGNATURE)) if thoughts else CAPABILITIES
