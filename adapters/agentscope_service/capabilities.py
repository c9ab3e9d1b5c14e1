"""The card of an AgentScope 2 agent service."""

from __future__ import annotations

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries

_MODEL = "the model belongs to the session; backend option chat_model_config"
_NO_FIELD = "the protocol has no field for it"
_NOT_TOLD = "the protocol has no event for it"
_OWN_TOOLS = "the service has its own tools; clients cannot add any"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        drop={
            Feature.REASONING_SIGNATURE: "the service keeps it",
            Feature.REFUSAL: "sent as text",
            Feature.TOOL_ORIGIN: _NOT_TOLD,
            Feature.DATA: _NOT_TOLD,
            Feature.USAGE_DETAILS: "only cached tokens are reported",
            Feature.FINISH_LENGTH: "the service reports only its own limit of model calls",
            Feature.FINISH_CONTENT_FILTER: "the service does not report the model's finish reason",
            Feature.STATE: "the protocol has no shared state",
            Feature.RAW: _NOT_TOLD,
            Feature.CHOICES: "one answer",
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.SYSTEM: "put before the user's first text; backend option system",
            Feature.DATA: "messages contain only text and media",
            Feature.REFUSAL_HISTORY: "messages contain only text and media",
            Feature.TOOL_HISTORY: "sent as text; results of pending calls are sent as results",
        },
        drop={
            Feature.TOOLS: _OWN_TOOLS,
            Feature.TOOL_CHOICE: _OWN_TOOLS,
            Feature.PARALLEL_TOOL_CALLS: _MODEL,
            Feature.RESPONSE_FORMAT: _NO_FIELD,
            Feature.SAMPLING: f"{_MODEL}; temperature, top_p and max_tokens are set when a session is created",
            Feature.REASONING_EFFORT: _MODEL,
            Feature.REASONING_HISTORY: "the service keeps its own",
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.USER_ID: "the user of the service; backend option user_id",
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: "the protocol has no shared state",
            Feature.EXTRAS: _NO_FIELD,
        },
        refuse={Feature.FILE_REF: "files cannot be uploaded"},
    ),
    # A session made for one request is deleted after it, so that the next one needs the whole conversation.
    keeps_history=True,
    wants_whole=True,
    runs_tools=RunsTools.ANY,
)
