"""The capabilities of the protocol."""

from __future__ import annotations

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, FeatureSupport, RunsTools, entries
from bridge.model import HistoryMode

_NO_UPDATE = "the protocol has no event for it"
_NO_FIELD = "the protocol has no field for it"
_LINK = "a link"
_OWN_TOOLS = "agents have their own tools"

_REQUESTS: dict[Feature, FeatureSupport] = entries(
    REQUEST_FEATURES,
    text={
        Feature.SYSTEM: "a line before the message",
        Feature.IMAGE_URL: _LINK,
        Feature.AUDIO_URL: _LINK,
        Feature.VIDEO_URL: _LINK,
        Feature.FILE_URL: _LINK,
        Feature.DATA: "JSON in the text",
        Feature.REFUSAL_HISTORY: "a line before the message",
        Feature.RESUME: "the answer to the open question, else text",
    },
    drop={
        Feature.MESSAGE_NAME: _NO_FIELD,
        Feature.TOOLS: _OWN_TOOLS,
        Feature.TOOL_CHOICE: _OWN_TOOLS,
        Feature.PARALLEL_TOOL_CALLS: _OWN_TOOLS,
        Feature.RESPONSE_FORMAT: _NO_FIELD,
        Feature.SAMPLING: _NO_FIELD,
        Feature.REASONING_EFFORT: _NO_FIELD,
        Feature.REASONING_HISTORY: "the agent has its own",
        Feature.TOOL_HISTORY: "the agent has its own",
        Feature.TOOL_ORIGIN: "the agent has its own",
        Feature.USER_ID: _NO_FIELD,
        Feature.METADATA: _NO_FIELD,
        Feature.CONTEXT: _NO_FIELD,
        Feature.STATE: _NO_FIELD,
        Feature.EXTRAS: _NO_FIELD,
    },
    refuse={
        Feature.VIDEO_INLINE: "content is text, image, audio or a file",
        Feature.FILE_REF: "an agent cannot fetch by id",
    },
)

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
    requests=_REQUESTS,
    history=HistoryMode.DELTA,
    # An editor shows what the agent did, and runs nothing of it.
    client_runs_calls=False,
    # Failures are JSON-RPC errors, which have no place for it.
    cache_writes=True,
    usage_on_failure=False,
    exact_arguments=False,
    runs_tools=RunsTools.ANY,
    # As a backend, an agent names its sessions and remembers them.
    keeps_history=True,
    names_threads=True,
    # A canceled prompt is part of its session, which goes on.
    keeps_canceled=True,
)
