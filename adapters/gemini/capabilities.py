"""The capabilities of the Gemini API."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries
from bridge.model import HistoryMode

_NO_FIELD = "the wire has no field for it"
_NO_PART = "the wire has no part for it"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.REFUSAL: "a text part",
            Feature.DATA: "JSON in a text part",
            Feature.INTERRUPT: "the call that waits, else the question in a text part; what comes next answers it",
        },
        drop={
            Feature.REASONING_SIGNATURE: "that of other dialects; Gemini's own stays with its part",
            Feature.TOOL_ORIGIN: "every call is a functionCall",
            Feature.TOOL_RESULT: "only Google's own tools have parts; option server_tools tells others",
            Feature.STATE: _NO_PART,
            Feature.STEP: _NO_PART,
            Feature.CUSTOM: _NO_PART,
            Feature.RAW: "that of other dialects; its own (code execution, unknown parts) passes unchanged",
            Feature.PART_BORDERS: "texts that follow each other are one flowing text",
        },
        refuse={Feature.FINISH_CANCELED: "told as an error, never as a finish reason"},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.DATA: "JSON in a text part",
            Feature.REFUSAL_HISTORY: "a text part",
        },
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.PARALLEL_TOOL_CALLS: _NO_FIELD,
            Feature.REASONING_HISTORY: "servers read no thoughts but their own; option reasoning_history",
            Feature.TOOL_ORIGIN: "every call is a functionCall",
            Feature.USER_ID: _NO_FIELD,
            Feature.THREAD_ID: "the wire has no threads; every request carries the whole talk",
            Feature.METADATA: _NO_FIELD,
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
            Feature.RESUME: _NO_FIELD,
        },
        refuse={Feature.FILE_REF: "only files of Google's own stores: gs://, files/ and their addresses"},
    ),
    history=HistoryMode.FULL,
    keeps_history=False,
    eager_start=False,
    client_runs_calls=True,
    usage_on_failure=False,
    tool_names="[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}",
    exact_arguments=False,
    runs_tools=RunsTools.NEVER,
)
