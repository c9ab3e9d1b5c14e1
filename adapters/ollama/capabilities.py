"""The capabilities of Ollama's API."""

from __future__ import annotations

from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, entries
from bridge.contract.demands import Demands, SchemaDemands
from bridge.dialects.ollama.wire import NAME
from bridge.model import HistoryMode

_NO_FIELD = "the protocol has no field for it"
_AS_TEXT = "a link or JSON in the content; option media"
_BYTES_ONLY = "messages have images only, as bytes"
_AS_ERROR = "sent as an error, never as a finish reason"

DEMANDS = Demands(
    own=NAME,
    results_follow_calls=True,
    results_in_order=True,
    tool_schemas=SchemaDemands(inlined=True),
    own_tool_schemas=SchemaDemands(inlined=True),
)
"""Models' templates take calls and results by their place, and the server drops `$ref` from the schemas of tools."""

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.REFUSAL: "in the content",
            Feature.IMAGE: _AS_TEXT,
            Feature.AUDIO: _AS_TEXT,
            Feature.VIDEO: _AS_TEXT,
            Feature.FILE: _AS_TEXT,
            Feature.DATA: _AS_TEXT,
            Feature.INTERRUPT: "the pending tool call, or else a question in the content; the next message answers it",
        },
        drop={
            Feature.REASONING_SIGNATURE: _NO_FIELD,
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.TOOL_RESULT: "the protocol has no results in answers; option server_tools: text or reasoning",
            Feature.USAGE_DETAILS: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
            Feature.STEP: _NO_FIELD,
            Feature.CUSTOM: _NO_FIELD,
            Feature.RAW: _NO_FIELD,
            Feature.CHOICES: "one answer; only the first choice is sent",
            Feature.PART_BORDERS: "texts are joined, with a blank line between messages",
            Feature.MODEL: "answers name the model as the request named it",
        },
        refuse={Feature.FINISH_CONTENT_FILTER: _AS_ERROR, Feature.FINISH_CANCELED: _AS_ERROR},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={Feature.DATA: "JSON in the content", Feature.REFUSAL_HISTORY: "in the content"},
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.TOOL_CHOICE: "none leaves the tools out; the model chooses among them",
            Feature.PARALLEL_TOOL_CALLS: _NO_FIELD,
            Feature.SAMPLING: "n; the others are sent",
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.USER_ID: _NO_FIELD,
            Feature.THREAD_ID: "the protocol has no threads; every request carries the whole conversation",
            Feature.METADATA: _NO_FIELD,
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
        },
        refuse={
            Feature.IMAGE_URL: _BYTES_ONLY,
            Feature.AUDIO_URL: _BYTES_ONLY,
            Feature.AUDIO_INLINE: _BYTES_ONLY,
            Feature.VIDEO_URL: _BYTES_ONLY,
            Feature.VIDEO_INLINE: _BYTES_ONLY,
            Feature.FILE_URL: _BYTES_ONLY,
            Feature.FILE_INLINE: _BYTES_ONLY,
            Feature.FILE_REF: _BYTES_ONLY,
            Feature.RESUME: "the protocol has no interrupts",
        },
    ),
    demands=DEMANDS,
    history=HistoryMode.FULL,
    totals=False,
    usage_on_failure=False,
    separator="\n\n",
    media_types=False,
    exact_arguments=False,
    drops_invalid_calls=True,
)

_MEDIA = (Feature.IMAGE, Feature.AUDIO, Feature.VIDEO, Feature.FILE, Feature.DATA)


@lru_cache
def card(media: str) -> Capabilities:
    """Return the card of a route with this option."""
    if media == "text":
        return CAPABILITIES
    return CAPABILITIES.changed(drop=dict.fromkeys(_MEDIA, "dropped by option media"))
