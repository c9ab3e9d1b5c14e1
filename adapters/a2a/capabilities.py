"""The capabilities of A2A."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries
from bridge.model import HistoryMode

_NO_FIELD = "the wire has no field for it"
_BY_OPTION = "told by option"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={Feature.REFUSAL: "a text part, marked in its metadata"},
        drop={
            Feature.REASONING: _BY_OPTION,
            Feature.REASONING_SIGNATURE: _BY_OPTION,
            Feature.TOOL_CALL: _BY_OPTION,
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.TOOL_RESULT: _BY_OPTION,
            Feature.STATE: _NO_FIELD,
            Feature.STEP: _NO_FIELD,
            Feature.CUSTOM: _NO_FIELD,
            Feature.RAW: "that of other dialects",
            Feature.CHOICES: "one answer; choices above 0 are left out",
            Feature.MODEL: _NO_FIELD,
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.SYSTEM: "a text part before the first of a new context",
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
            Feature.REASONING_HISTORY: "the agent remembers its own",
            Feature.TOOL_HISTORY: "the agent remembers its own; a call that waits is answered",
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.USER_ID: _BY_OPTION,
            Feature.METADATA: _BY_OPTION,
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
        },
        refuse={Feature.FILE_REF: "files have an address or are part of the message"},
    ),
    history=HistoryMode.DELTA,
    keeps_history=True,
    names_threads=True,
    eager_start=True,
    client_runs_calls=False,
    usage_on_failure=True,
    exact_arguments=False,
    exact_results=False,
    runs_tools=RunsTools.ANY,
)
