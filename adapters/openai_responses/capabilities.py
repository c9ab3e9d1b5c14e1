"""The capabilities of Responses."""

from __future__ import annotations

from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, CallSignatures, Capabilities, Feature, entries
from bridge.contract.capabilities import RunsTools
from bridge.contract.demands import Demands, SchemaDemands
from bridge.dialects.openai_responses.wire import NAME
from bridge.model import HistoryMode

_AS_MARKDOWN = "Markdown in the text; option media: drop"
_NO_FIELD = "the protocol has no field for it"
_NO_EVENT = "the protocol has no event for it"

_DEMANDS = Demands(
    own=NAME,
    longest_call_id=64,
    results_follow_calls=True,
    results_anywhere=True,
    stored_by=frozenset({"previous_response_id", "conversation"}),
    object_arguments=True,
    media_types=True,
    tool_schemas=SchemaDemands(object_root=True, root_properties=True),
    own_tool_schemas=SchemaDemands(object_root=True, root_properties=True),
    least_output=16,
)
"""Of OpenAI's API: "No tool output found for function call", "Duplicate function_call_output", "object schema missing
properties", "Expected a value >= 16".
"""

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.IMAGE: _AS_MARKDOWN + "; images of its own image_generation_call pass unchanged",
            Feature.AUDIO: _AS_MARKDOWN,
            Feature.VIDEO: _AS_MARKDOWN,
            Feature.FILE: _AS_MARKDOWN,
            Feature.DATA: "JSON in the text; option media: drop",
            Feature.INTERRUPT: "the pending tool call, or else a question in a message; the next message answers it",
        },
        drop={
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.TOOL_RESULT: "answers carry no tool results; option server_tools: text or reasoning",
            Feature.STATE: _NO_EVENT,
            Feature.STEP: _NO_EVENT,
            Feature.CUSTOM: _NO_EVENT,
            Feature.RAW: "events of other dialects; its own items and events pass unchanged",
            Feature.CHOICES: "one answer; only the first choice is sent",
        },
        refuse={
            Feature.FINISH_CANCELED: "sent as a failed response, never as completed; a background response is cancelled"
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={Feature.DATA: "JSON as a text part"},
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.SAMPLING: "temperature, top_p and max_tokens are sent; the protocol has no field for the others",
            Feature.REASONING_HISTORY: "only reasoning of this dialect is sent, with its content or encrypted",
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.THREAD_ID: "requests carry the whole conversation; clients may send previous_response_id",
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
            Feature.RESUME: _NO_FIELD,
        },
        refuse={
            Feature.AUDIO_URL: "inline data only; option unsupported_media: text",
            Feature.VIDEO_URL: "no content part for it; option unsupported_media: text",
            Feature.VIDEO_INLINE: "no content part for it; option unsupported_media: text",
        },
    ),
    demands=_DEMANDS,
    history=HistoryMode.FULL,
    keeps_history=False,
    eager_start=False,
    client_runs_calls=True,
    cache_writes=True,
    usage_on_failure=True,
    tool_names="[a-zA-Z0-9_-]{1,64}",
    runs_tools=RunsTools.NEVER,
    caches_marks=True,
    logprobs=True,
    clients_cache=True,
    vendor="openai",
    call_signatures=CallSignatures.IN_REASONING,
    citations=True,
    opaque_values="one",
)

_MEDIA = (Feature.IMAGE, Feature.AUDIO, Feature.VIDEO, Feature.FILE, Feature.DATA)


@lru_cache
def card(media: str, *, background: bool = False) -> Capabilities:
    """Return the card of a route with this option; responses that run in the background can be canceled."""
    drop = dict.fromkeys(_MEDIA, "dropped by option media") if media == "drop" else {}
    return CAPABILITIES.changed(exact=(Feature.FINISH_CANCELED,) if background else (), drop=drop)
