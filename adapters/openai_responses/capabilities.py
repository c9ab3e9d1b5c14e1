"""The capabilities of Responses."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, entries
from bridge.codec.capabilities import RunsTools
from bridge.model import HistoryMode

_AS_MARKDOWN = "Markdown in the text; option media: drop"
_NO_FIELD = "the wire has no field for it"
_NO_EVENT = "the wire has no event for it"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.IMAGE: _AS_MARKDOWN + "; that of its own image_generation_call passes unchanged",
            Feature.AUDIO: _AS_MARKDOWN,
            Feature.VIDEO: _AS_MARKDOWN,
            Feature.FILE: _AS_MARKDOWN,
            Feature.DATA: "JSON in the text; option media: drop",
            Feature.INTERRUPT: "its own call that waits, else the question in a message; what comes next answers it",
        },
        drop={
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.TOOL_RESULT: "answers have no results; option server_tools tells them otherwise",
            Feature.STATE: _NO_EVENT,
            Feature.STEP: _NO_EVENT,
            Feature.CUSTOM: _NO_EVENT,
            Feature.RAW: "that of other dialects; its own items and events pass unchanged",
            Feature.CHOICES: "one answer; choices above 0 are left out",
        },
        refuse={Feature.FINISH_CANCELED: "told as a failed response, never as completed; in the background cancelled"},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={Feature.DATA: "JSON as a text part"},
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.SAMPLING: "temperature, top_p and max_tokens are sent; the wire has no field for the others",
            Feature.REASONING_HISTORY: "only that of this dialect, with its content or encrypted",
            Feature.TOOL_ORIGIN: "every call is a function call",
            Feature.THREAD_ID: "requests carry the whole talk; of clients, previous_response_id but no conversation",
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
            Feature.RESUME: _NO_FIELD,
        },
        refuse={
            Feature.AUDIO_URL: "the wire takes bytes only; option unsupported_media: text",
            Feature.VIDEO_URL: "no part for it; option unsupported_media: text",
            Feature.VIDEO_INLINE: "no part for it; option unsupported_media: text",
        },
    ),
    history=HistoryMode.FULL,
    keeps_history=False,
    eager_start=False,
    client_runs_calls=True,
    usage_on_failure=True,
    tool_names="[a-zA-Z0-9_-]{1,64}",
    runs_tools=RunsTools.NEVER,
    caches_marks=True,
    vendor="openai",
)
