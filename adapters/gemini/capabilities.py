"""The capabilities of the Gemini API."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, CallSignatures, Capabilities, Feature, RunsTools, entries
from bridge.contract.demands import Demands, SchemaDemands, SystemPlace
from bridge.dialects.gemini.wire import NAME
from bridge.model import HistoryMode

_NO_FIELD = "the protocol has no field for it"
_NO_PART = "the protocol has no part for it"

DEMANDS = Demands(
    own=NAME,
    most_temperature=2.0,
    results_follow_calls=True,
    results_in_order=True,
    system=SystemPlace.FIRST,
    needs_user=True,
    no_blank_texts=True,
    media_types=True,
    unique_tools=True,
    tool_schemas=SchemaDemands(object_root=True),
    most_stops=5,
)
"""Of Google's API: "the number of function response parts is equal to the number of function call parts of the function
call turn"; the limits are those of its reference.
"""

INSIDE_KEPT = replace(DEMANDS, system=SystemPlace.ANYWHERE)
"""With option `system_inside: user`."""

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.REFUSAL: "a text part",
            Feature.DATA: "JSON in a text part",
            Feature.INTERRUPT: "the pending tool call, or else a question in a text part; the next message answers it",
        },
        drop={
            Feature.REASONING_SIGNATURE: "signatures of other dialects; Gemini's own stay with their part",
            Feature.TOOL_ORIGIN: "every call is a functionCall",
            Feature.TOOL_RESULT: "only Google's own tools have parts; option server_tools: text or reasoning",
            Feature.STATE: _NO_PART,
            Feature.STEP: _NO_PART,
            Feature.CUSTOM: _NO_PART,
            Feature.RAW: "events of other dialects; its own code execution and unknown parts pass unchanged",
            Feature.PART_BORDERS: "texts are joined, with a blank line between messages",
        },
        refuse={Feature.FINISH_CANCELED: "sent as an error, never as a finish reason"},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.DATA: "JSON in a text part",
            Feature.REFUSAL_HISTORY: "a text part",
        },
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.PARALLEL_TOOL_CALLS: _NO_FIELD,
            Feature.REASONING_HISTORY: "servers read only their own thoughts; option reasoning_history",
            Feature.TOOL_ORIGIN: "every call is a functionCall",
            Feature.USER_ID: _NO_FIELD,
            Feature.THREAD_ID: "the protocol has no threads; every request carries the whole conversation",
            Feature.METADATA: _NO_FIELD,
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
            Feature.RESUME: _NO_FIELD,
        },
        refuse={Feature.FILE_REF: "only files in Google's stores: gs://, files/ and their URLs"},
    ),
    demands=DEMANDS,
    history=HistoryMode.FULL,
    keeps_history=False,
    eager_start=False,
    client_runs_calls=True,
    usage_on_failure=False,
    separator="\n\n",
    tool_names="[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}",
    exact_arguments=False,
    runs_tools=RunsTools.NEVER,
    logprobs=True,
    call_signatures=CallSignatures.IN_PART,
    citations=True,
)

_MEDIA = (Feature.IMAGE, Feature.AUDIO, Feature.VIDEO, Feature.FILE)


@lru_cache
def card(media: str) -> Capabilities:
    """Return the card of a route with these options."""
    dropped = dict.fromkeys(_MEDIA if media == "drop" else (), "dropped by option media")
    return CAPABILITIES.changed(drop=dropped)
