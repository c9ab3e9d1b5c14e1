"""The capabilities of AIP (docs/dialects/aip.md)."""

from __future__ import annotations

from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries
from bridge.dialects.aip.options import FrontOptions
from bridge.model import HistoryMode

_NO_MESSAGE = "the protocol has no message for it"
_NO_FIELD = "the protocol has no field for it"
_NO_FINISH = "the protocol has no finish reasons"
_ADDRESS = "the URL as text"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.REFUSAL: "as ordinary text",
            Feature.VIDEO: "as a link in the text",
            Feature.DATA: "JSON in the text",
            Feature.INTERRUPT: "the question as text; the next inquiry answers it",
        },
        drop={
            Feature.REASONING: "AIP has no reasoning content; option reasoning: text",
            Feature.REASONING_SIGNATURE: _NO_FIELD,
            Feature.TOOL_CALL: "callers run no tools: agents find tools at the gateway",
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.TOOL_RESULT: _NO_MESSAGE,
            Feature.USAGE: _NO_FIELD + "; option extras: embedded",
            Feature.USAGE_DETAILS: _NO_FIELD,
            Feature.FINISH_LENGTH: _NO_FINISH,
            Feature.FINISH_CONTENT_FILTER: _NO_FINISH,
            Feature.STATE: _NO_MESSAGE,
            Feature.STEP: _NO_MESSAGE,
            Feature.CUSTOM: _NO_MESSAGE,
            Feature.RAW: _NO_MESSAGE,
            Feature.CHOICES: "one answer; only the first choice is sent",
            Feature.PART_BORDERS: "texts are joined, with a blank line between messages",
            Feature.MODEL: _NO_FIELD + "; option extras: embedded",
        },
        refuse={Feature.FINISH_CANCELED: "sent as an error, never as a normal end"},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.SYSTEM: "a line before the last message; AIP has no roles",
            Feature.IMAGE_URL: _ADDRESS,
            Feature.AUDIO_URL: _ADDRESS,
            Feature.VIDEO_URL: _ADDRESS,
            Feature.FILE_URL: _ADDRESS,
            Feature.DATA: "JSON in the text",
            Feature.REFUSAL_HISTORY: "as ordinary text",
            Feature.TOOL_HISTORY: "lines before the last message",
            Feature.USER_ID: "appended to the sender's id",
        },
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.TOOLS: "agents find tools at the gateway; option expose_client_tools registers them there",
            Feature.TOOL_CHOICE: _NO_FIELD,
            Feature.PARALLEL_TOOL_CALLS: _NO_FIELD,
            Feature.RESPONSE_FORMAT: _NO_FIELD,
            Feature.SAMPLING: _NO_FIELD + "; n above 1 is refused",
            Feature.REASONING_EFFORT: _NO_FIELD,
            Feature.REASONING_HISTORY: "AIP has no reasoning content",
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.THREAD_ID: "used as the session id with option session: keep",
            Feature.METADATA: _NO_FIELD,
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
            Feature.RESUME: _NO_FIELD,
            Feature.EXTRAS: _NO_FIELD,
        },
        refuse={
            Feature.VIDEO_INLINE: "content is text, image, audio or embedded",
            Feature.FILE_REF: "an agent cannot fetch by id",
        },
    ),
    history=HistoryMode.DELTA,
    keeps_history=False,
    client_runs_calls=False,
    cache_writes=True,
    usage_on_failure=False,
    names_interrupts=False,
    separator="\n\n",
    inline_media_only=True,
    media_types=False,
    runs_tools=RunsTools.ANY,
)


@lru_cache
def card(options: FrontOptions) -> Capabilities:
    """Return the card of a route with these options."""
    found = CAPABILITIES
    if options.extras == "embedded":
        found = found.changed(exact=(Feature.USAGE, Feature.USAGE_DETAILS, Feature.MODEL))
    if options.reasoning == "text":
        found = found.changed(text={Feature.REASONING: "as marked lines of the text"})
    return found
