"""The capabilities of the UI message stream."""

from __future__ import annotations

from bridge.contract import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    CallSignatures,
    Capabilities,
    Demands,
    Feature,
    RunsTools,
    entries,
)

_AS_DATA = "a data part with a name, which applications can read"
_BY_OPTION = "the protocol has no field for it; backend option body_fields adds it to the request body"
_NO_FIELD = "the protocol has no field for it"

DEMANDS = Demands(
    own="ai-sdk-ui",
    object_arguments=True,  # validateUIMessages: a tool part has an input that is not null
    media_types=True,  # vercel/ai#20604: convertToModelMessages hands `image/*` to the model's API
)
"""Of `ai` and Pydantic AI, which check a history or hand it to the API of a model."""

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={Feature.REFUSAL: "a text part; the protocol has no part for it"},
        custom={Feature.STATE: _AS_DATA, Feature.STEP: _AS_DATA},
        drop={
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.CHOICES: "one answer; only the first choice is sent",
            Feature.RAW: "clients fail at a chunk of an unknown type",
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.SYSTEM: "put before the user's first text; backend option system",
            Feature.DATA: "JSON as text",
            Feature.REFUSAL_HISTORY: "part of the assistant's text",
        },
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.TOOLS: _BY_OPTION,
            Feature.TOOL_CHOICE: "the server chooses its tools",
            Feature.PARALLEL_TOOL_CALLS: "the server chooses its tools",
            Feature.RESPONSE_FORMAT: _NO_FIELD,
            Feature.SAMPLING: _BY_OPTION,
            Feature.REASONING_EFFORT: _BY_OPTION,
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.USER_ID: _BY_OPTION,
            Feature.METADATA: _BY_OPTION,
            Feature.CONTEXT: _BY_OPTION,
            Feature.STATE: _BY_OPTION,
        },
        refuse={Feature.FILE_REF: "files are sent by URL or inline"},
    ),
    # A failure before the answer is an HTTP status, which clients show; there is nothing to show before content.
    eager_start=False,
    client_runs_calls=False,
    exact_results=False,
    runs_tools=RunsTools.BOTH,
    call_signatures=CallSignatures.IN_PART,
    cache_writes=True,
    citations=True,
    demands=DEMANDS,
    file_ids=False,
)
