"""The capabilities of the UI message stream."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries

_AS_DATA = "a data part, which applications read by its name"
_BY_OPTION = "no field for it; backend option body_fields sends it beside the messages"
_NO_FIELD = "the wire has no field for it"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={Feature.REFUSAL: "a text part: there is no part for it"},
        custom={Feature.STATE: _AS_DATA, Feature.STEP: _AS_DATA},
        drop={
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.CHOICES: "one answer; choices above 0 are left out",
            Feature.RAW: "clients end the answer at a chunk of an unknown type",
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.SYSTEM: "before the first text of the user; backend option system has other places",
            Feature.DATA: "JSON as text",
            Feature.REFUSAL_HISTORY: "part of the assistant's text",
        },
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.TOOLS: _BY_OPTION,
            Feature.TOOL_CHOICE: "tools are the server's",
            Feature.PARALLEL_TOOL_CALLS: "tools are the server's",
            Feature.RESPONSE_FORMAT: _NO_FIELD,
            Feature.SAMPLING: _BY_OPTION,
            Feature.REASONING_EFFORT: _BY_OPTION,
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.USER_ID: _BY_OPTION,
            Feature.METADATA: _BY_OPTION,
            Feature.CONTEXT: _BY_OPTION,
            Feature.STATE: _BY_OPTION,
        },
        refuse={Feature.FILE_REF: "files have an address or are part of the message"},
    ),
    # A failure before the answer is an HTTP status, which clients show; there is nothing to show before content.
    eager_start=False,
    client_runs_calls=False,
    exact_results=False,
    runs_tools=RunsTools.ANY,
)
