"""The capabilities of Anthropic Messages."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, CallSignatures, Capabilities, Feature, entries
from bridge.contract.capabilities import RunsTools
from bridge.contract.demands import Demands, SchemaDemands, SystemPlace
from bridge.dialects.anthropic_messages.wire import NAME
from bridge.model import HistoryMode

_AS_MARKDOWN = "Markdown in a text block; option media: drop"
_NO_FIELD = "the protocol has no field for it"
_NO_EVENT = "the protocol has no event for it"
_NO_BLOCK = "no content block for it; option unsupported_media: text"

_OUTPUT = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "maxItems"}
    | {"uniqueItems", "minProperties", "maxProperties", "patternProperties", "propertyNames"}
)

DEMANDS = Demands(
    own=NAME,
    results_follow_calls=True,
    system=SystemPlace.FIRST,
    needs_user=True,
    no_blank_texts=True,
    media_types=True,
    unique_tools=True,
    tool_schemas=SchemaDemands(object_root=True, plain_root=True),
    own_tool_schemas=SchemaDemands(object_root=True),
    output_schemas=SchemaDemands(closed=True, forbidden=_OUTPUT, most_min_items=1),
    no_trailing_blank=True,
    no_blank_stops=True,
    most_temperature=1.0,
    temperature_or_top_p=True,
)
"""Of Anthropic's API: "tool_use ids must be unique", "final assistant content cannot end with trailing whitespace",
"input_schema does not support oneOf, allOf, or anyOf at the top level", "temperature and top_p cannot both be
specified", "each stop sequence must contain non-whitespace"; the subset of schemas is that of structured outputs.
"""

INSIDE_KEPT = replace(DEMANDS, system=SystemPlace.ANYWHERE)
"""With option `system_inside: system`."""

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.REFUSAL: "a text block; the stop reason refusal means that the answer was cut off",
            Feature.IMAGE: _AS_MARKDOWN,
            Feature.AUDIO: _AS_MARKDOWN,
            Feature.VIDEO: _AS_MARKDOWN,
            Feature.FILE: _AS_MARKDOWN,
            Feature.DATA: "JSON in a text block; option media: drop",
            Feature.INTERRUPT: "the pending tool call, or else a question in a text block; the next message answers it",
        },
        drop={
            Feature.TOOL_ORIGIN: "every call is a tool_use",
            Feature.TOOL_RESULT: "only Anthropic's server tools have blocks; option server_tools: text or reasoning",
            Feature.STATE: _NO_EVENT,
            Feature.STEP: _NO_EVENT,
            Feature.CUSTOM: _NO_EVENT,
            Feature.RAW: "events of other dialects; its own server tools and unknown blocks pass unchanged",
            Feature.CHOICES: "an answer is one message; only the first choice is sent",
        },
        refuse={Feature.FINISH_CANCELED: "sent as an error, never as a stop reason"},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.DATA: "JSON in a text block",
            Feature.REFUSAL_HISTORY: "a text block",
        },
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.TOOL_CHOICE: "a choice among several tools is dropped; auto, any, none and one tool are sent",
            Feature.RESPONSE_FORMAT: "JSON mode without a schema is dropped; a schema is sent",
            Feature.SAMPLING: "seed, n, penalties; temperatures above 1; from version 2026-10-21 temperature, top_p",
            Feature.REASONING_HISTORY: "reasoning without a signature is dropped; option reasoning_history",
            Feature.TOOL_ORIGIN: "every call is a tool_use",
            Feature.THREAD_ID: "the protocol has no threads; every request carries the whole conversation",
            Feature.METADATA: "only the user's id is sent",
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
            Feature.RESUME: _NO_FIELD,
        },
        refuse={
            Feature.AUDIO_URL: _NO_BLOCK,
            Feature.AUDIO_INLINE: _NO_BLOCK,
            Feature.VIDEO_URL: _NO_BLOCK,
            Feature.VIDEO_INLINE: _NO_BLOCK,
        },
    ),
    demands=DEMANDS,
    history=HistoryMode.FULL,
    keeps_history=False,
    eager_start=False,
    client_runs_calls=True,
    cache_writes=True,
    totals=False,
    usage_on_failure=False,
    tool_names="[a-zA-Z0-9_-]{1,128}",
    runs_tools=RunsTools.NEVER,
    caches_marks=True,
    clients_cache=True,
    vendor="anthropic",
    wants_signatures=True,
    call_signatures=CallSignatures.IN_REASONING,
    citations=True,
)

_MEDIA = (Feature.IMAGE, Feature.AUDIO, Feature.VIDEO, Feature.FILE, Feature.DATA)
_REASONING = (Feature.REASONING, Feature.REASONING_SIGNATURE)


@lru_cache
def card(reasoning: str, media: str) -> Capabilities:
    """Return the card of a route with these options."""
    drop = dict.fromkeys(_REASONING, "dropped by option reasoning") if reasoning == "drop" else {}
    drop |= dict.fromkeys(_MEDIA, "dropped by option media") if media == "drop" else {}
    return CAPABILITIES.changed(drop=drop)
