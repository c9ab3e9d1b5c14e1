"""The capabilities of chat completions."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, CallSignatures, Capabilities, Feature, entries
from bridge.contract.capabilities import RunsTools, Support
from bridge.contract.demands import Demands, SchemaDemands, SystemPlace
from bridge.dialects.openai_chat.options import FrontOptions
from bridge.dialects.openai_chat.wire import NAME
from bridge.model import HistoryMode

_AS_MARKDOWN = "Markdown in the content; option media: drop"
_NO_FIELD = "the protocol has no field for it"
_NO_EVENT = "the protocol has no event for it"

DEMANDS = Demands(
    own=NAME,
    longest_call_id=40,
    results_follow_calls=True,
    one_message_per_turn=True,
    object_arguments=True,
    message_names=r"[^\s<|\\/>]+",
    longest_message_name=64,
    media_types=True,
    tool_schemas=SchemaDemands(object_root=True, root_properties=True),
    own_tool_schemas=SchemaDemands(object_root=True, root_properties=True),
    most_stops=4,
    metadata_needs_store=True,
)
"""Of OpenAI's API, whose messages name these limits; most of the others that speak it have some of them."""

HOISTED = replace(DEMANDS, system=SystemPlace.ONE)
"""With option `system_inside: hoist`."""

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.IMAGE: "Markdown in the content; option media: images, or drop",
            Feature.VIDEO: _AS_MARKDOWN,
            Feature.FILE: _AS_MARKDOWN,
            Feature.DATA: "JSON in the content; option media: drop",
            Feature.INTERRUPT: "the pending tool call, or else a question in the content; the next message answers it",
        },
        drop={
            Feature.REASONING_SIGNATURE: "option reasoning_field: reasoning_details",
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.TOOL_RESULT: "answers carry no tool results; option server_tools: text or reasoning",
            Feature.STATE: _NO_EVENT,
            Feature.STEP: _NO_EVENT,
            Feature.CUSTOM: _NO_EVENT,
            Feature.RAW: "events of other dialects; its own pass unchanged",
            Feature.PART_BORDERS: "texts are joined, with a blank line between messages",
        },
        refuse={Feature.FINISH_CANCELED: "sent as an error with the code canceled, never as a finish reason"},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={Feature.DATA: "JSON as a text part"},
        drop={
            Feature.REASONING_HISTORY: "sent as reasoning_content in turns with tool calls; option reasoning_history",
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.THREAD_ID: "the protocol has no threads; every request carries the whole conversation",
            Feature.METADATA: "OpenAI takes it only with store; metadata of chat clients is sent",
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
        },
        refuse={
            Feature.RESUME: "the protocol has no interrupts",
            Feature.AUDIO_URL: "inline data only; option unsupported_media: text, or parts",
            Feature.VIDEO_URL: "no content part for it; option unsupported_media: text, or parts",
            Feature.VIDEO_INLINE: "no content part for it; option unsupported_media: text, or parts",
            Feature.FILE_URL: "file ids and inline data only; option unsupported_media: text, or parts",
        },
    ),
    demands=DEMANDS,
    history=HistoryMode.FULL,
    keeps_history=False,
    eager_start=False,
    client_runs_calls=True,
    cache_writes=True,
    usage_on_failure=False,
    inline_media_only=True,
    audio_last=True,
    media_types=False,
    separator="\n\n",
    tool_names="[a-zA-Z0-9_-]{1,64}",
    runs_tools=RunsTools.NEVER,
    vendor="litellm",  # the only server of this API whose reasoning is signed
    caches_marks=True,
    logprobs=True,
    call_signatures=CallSignatures.IN_CALL,
    citations=True,
)


_MEDIA = (Feature.IMAGE, Feature.VIDEO, Feature.FILE, Feature.DATA)


@lru_cache
def card(media: str, signs: bool) -> Capabilities:
    """Return the card of a route with these options; `signs`: reasoning has its signatures."""
    found = CAPABILITIES
    if media == "drop":
        found = found.changed(drop=dict.fromkeys(_MEDIA, "dropped by option media"), other_media=Support.DROP)
    if signs:
        found = found.changed(exact=(Feature.REASONING_SIGNATURE,))
    return found


def card_of(options: FrontOptions) -> Capabilities:
    """Return the card of a route with these options."""
    return card(options.media, options.reasoning_field == "reasoning_details")
