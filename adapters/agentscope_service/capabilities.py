"""The card of an AgentScope 2 agent service."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries

_MODEL = "the model belongs to the session; option chat_model_config"
_NO_FIELD = "there is no field for it"
_NOT_TOLD = "its events do not tell it"
_OWN_TOOLS = "all tools are the service's own; a client's cannot be sent"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        drop={
            Feature.REASONING_SIGNATURE: "the service keeps it",
            Feature.REFUSAL: "the service tells it as text",
            Feature.TOOL_ORIGIN: _NOT_TOLD,
            Feature.DATA: _NOT_TOLD,
            Feature.USAGE_DETAILS: "only cached tokens are told",
            Feature.FINISH_LENGTH: "told of the limit of model calls alone; the model's own reason is lost",
            Feature.FINISH_CONTENT_FILTER: "the model's own reason is lost",
            Feature.STATE: "there is no shared state",
            Feature.RAW: _NOT_TOLD,
            Feature.CHOICES: "there is one answer",
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.SYSTEM: "before the user's first text; option system",
            Feature.DATA: "messages hold text and media only",
            Feature.REFUSAL_HISTORY: "messages hold text and media only",
            Feature.TOOL_HISTORY: "earlier calls and results are refused in messages; those that the service waits for "
            "are told to it as such",
        },
        drop={
            Feature.TOOLS: _OWN_TOOLS,
            Feature.TOOL_CHOICE: _OWN_TOOLS,
            Feature.PARALLEL_TOOL_CALLS: _MODEL,
            Feature.RESPONSE_FORMAT: _NO_FIELD,
            Feature.SAMPLING: f"{_MODEL}, which takes temperature, top_p and max_tokens along when a session is made",
            Feature.REASONING_EFFORT: _MODEL,
            Feature.REASONING_HISTORY: "the service keeps its own",
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.USER_ID: "the user is who the whole service belongs to; option user_id",
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: "there is no shared state",
            Feature.EXTRAS: _NO_FIELD,
        },
        refuse={Feature.FILE_REF: "files cannot be uploaded beforehand"},
    ),
    # A session that was made for one request is gone after it, so that the next one needs all that was said.
    keeps_history=True,
    wants_whole=True,
    runs_tools=RunsTools.ANY,
)
