"""The capabilities of the protocol."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries
from bridge.model import HistoryMode

_NO_UPDATE = "the protocol has no event for it"
_NO_FIELD = "the protocol has no field for it"
_AGENT = "the agent has its own"
_LOST = "agents get texts only"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={Feature.REFUSAL: "a message of the agent", Feature.DATA: "JSON as text"},
        drop={
            Feature.REASONING_SIGNATURE: _NO_FIELD,
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.STATE: _NO_UPDATE,
            Feature.STEP: _NO_UPDATE,
            Feature.CUSTOM: _NO_UPDATE,
            Feature.RAW: "clients drop updates of an unknown type",
            Feature.CHOICES: "one answer; only the first choice is sent",
            Feature.MODEL: _NO_FIELD,
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.SYSTEM: "put before the first text",
            Feature.DATA: "JSON as text",
            Feature.REFUSAL_HISTORY: _LOST,
        },
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.TOOLS: _AGENT,
            Feature.TOOL_CHOICE: _AGENT,
            Feature.PARALLEL_TOOL_CALLS: _AGENT,
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.RESPONSE_FORMAT: _NO_FIELD,
            Feature.SAMPLING: _NO_FIELD,
            Feature.REASONING_EFFORT: _NO_FIELD,
            Feature.REASONING_HISTORY: _LOST,
            Feature.TOOL_HISTORY: _LOST,
            Feature.USER_ID: _NO_FIELD,
            Feature.METADATA: _NO_FIELD,
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
        },
        refuse={
            Feature.FILE_REF: "files are sent by URL or inline",
            Feature.VIDEO_INLINE: "the protocol has pictures and sounds",
        },
    ),
    history=HistoryMode.DELTA,
    # An editor shows what the agent did, and runs nothing of it.
    client_runs_calls=False,
    # Failures are JSON-RPC errors, which have no place for it.
    usage_on_failure=False,
    exact_arguments=False,
    runs_tools=RunsTools.ANY,
)
