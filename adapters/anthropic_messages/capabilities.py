"""The capabilities of Anthropic Messages."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, entries
from bridge.codec.capabilities import RunsTools
from bridge.model import HistoryMode

_AS_MARKDOWN = "Markdown in a text block; option media: drop"
_NO_FIELD = "the wire has no field for it"
_NO_EVENT = "the wire has no event for it"
_NO_BLOCK = "no block for it; option unsupported_media: text"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.REFUSAL: "a text block; the stop reason refusal is for answers that were cut",
            Feature.IMAGE: _AS_MARKDOWN,
            Feature.AUDIO: _AS_MARKDOWN,
            Feature.VIDEO: _AS_MARKDOWN,
            Feature.FILE: _AS_MARKDOWN,
            Feature.DATA: "JSON in a text block; option media: drop",
            Feature.INTERRUPT: "its own call that waits, else the question in a text block; what comes next answers it",
        },
        drop={
            Feature.TOOL_ORIGIN: "every call is a tool_use",
            Feature.TOOL_RESULT: "only Anthropic's own server tools have blocks; option server_tools tells others",
            Feature.STATE: _NO_EVENT,
            Feature.STEP: _NO_EVENT,
            Feature.CUSTOM: _NO_EVENT,
            Feature.RAW: "that of other dialects; its own (server tools, unknown blocks) passes unchanged",
            Feature.CHOICES: "an answer is one message; the first choice is told",
        },
        refuse={Feature.FINISH_CANCELED: "told as an error, never as a stop reason"},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.DATA: "JSON in a text block",
            Feature.REFUSAL_HISTORY: "a text block",
        },
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.TOOL_CHOICE: "a choice among several tools; auto, any, none and one tool pass",
            Feature.RESPONSE_FORMAT: "JSON without a schema; a schema passes",
            Feature.SAMPLING: "seed, n, penalties; temperatures above 1; any with version 2026-10-21",
            Feature.REASONING_HISTORY: "what has no signature; option reasoning_history",
            Feature.TOOL_ORIGIN: "every call is a tool_use",
            Feature.THREAD_ID: "the wire has no threads; every request carries the whole talk",
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
    history=HistoryMode.FULL,
    keeps_history=False,
    eager_start=False,
    client_runs_calls=True,
    usage_on_failure=False,
    tool_names="[a-zA-Z0-9_-]{1,128}",
    runs_tools=RunsTools.NEVER,
    caches_marks=True,
    vendor="anthropic",
    wants_signatures=True,
)
