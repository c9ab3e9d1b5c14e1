"""The capabilities of chat completions."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, entries
from bridge.codec.capabilities import RunsTools
from bridge.model import HistoryMode

_AS_MARKDOWN = "Markdown in the content; option media: drop"
_NO_FIELD = "the wire has no field for it"
_NO_EVENT = "the wire has no event for it"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.IMAGE: "Markdown in the content; option media: images, or drop",
            Feature.VIDEO: _AS_MARKDOWN,
            Feature.FILE: _AS_MARKDOWN,
            Feature.DATA: "JSON in the content; option media: drop",
            Feature.INTERRUPT: "its own call that waits, else the question in the content; what comes next answers it",
        },
        drop={
            Feature.REASONING_SIGNATURE: "option reasoning_field: reasoning_details",
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.TOOL_RESULT: "answers have no results; option server_tools tells them otherwise",
            Feature.STATE: _NO_EVENT,
            Feature.STEP: _NO_EVENT,
            Feature.CUSTOM: _NO_EVENT,
            Feature.RAW: "that of other dialects; its own passes unchanged",
            Feature.PART_BORDERS: "texts become one, with a blank line between messages; option message_separator",
        },
        refuse={Feature.FINISH_CANCELED: "told as an error with the code canceled, never as a finish"},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={Feature.DATA: "JSON as a text part"},
        drop={
            Feature.REASONING_HISTORY: "sent as reasoning_content with tool calls; option reasoning_history",
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.THREAD_ID: "the wire has no threads; every request carries the whole talk",
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
        },
        refuse={
            Feature.RESUME: "nobody there waits for an answer: the wire has no interrupts",
            Feature.AUDIO_URL: "the wire takes bytes only; option unsupported_media: text, or parts",
            Feature.VIDEO_URL: "no part for it; option unsupported_media: text, or parts",
            Feature.VIDEO_INLINE: "no part for it; option unsupported_media: text, or parts",
            Feature.FILE_URL: "the wire takes ids and bytes only; option unsupported_media: text, or parts",
        },
    ),
    history=HistoryMode.FULL,
    keeps_history=False,
    eager_start=False,
    client_runs_calls=True,
    usage_on_failure=False,
    inline_media_only=True,
    audio_last=True,
    media_types=False,
    separator="\n\n",
    tool_names="[a-zA-Z0-9_-]{1,64}",
    runs_tools=RunsTools.NEVER,
    caches_marks=True,
)
