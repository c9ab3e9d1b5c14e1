"""The capabilities of AG-Kit, for generation 1; generation 2 carries more."""

from __future__ import annotations

from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries
from bridge.contract.demands import Demands
from bridge.dialects.ag_kit.options import FrontOptions
from bridge.model import HistoryMode

_NO_EVENT = "the protocol has no event for it"
_NO_FIELD = "the protocol has no field for it"
_NO_FINISH = "the protocol has no finish reasons; option finish_notice: error"
_MARKDOWN = "Markdown in the text; option media: drop"
_TEXT_ONLY = "messages are plain strings; option unsupported_media: text"

DEMANDS = Demands(
    own="ag-kit",
    one_message_per_turn=True,  # the reference server of generation 1 reads the calls of a turn in one message
    object_arguments=True,  # the page: the joined pieces of a call's arguments are valid JSON
)

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.REFUSAL: "as ordinary text",
            Feature.IMAGE: _MARKDOWN,
            Feature.AUDIO: _MARKDOWN,
            Feature.VIDEO: _MARKDOWN,
            Feature.FILE: _MARKDOWN,
            Feature.DATA: "JSON in the text; option media: drop",
        },
        drop={
            Feature.REASONING: _NO_EVENT + "; option reasoning: text",
            Feature.REASONING_SIGNATURE: _NO_EVENT,
            Feature.TOOL_ORIGIN: "a call does not name the provider of the tool",
            Feature.USAGE: _NO_EVENT,
            Feature.USAGE_DETAILS: _NO_EVENT,
            Feature.FINISH_LENGTH: _NO_FINISH,
            Feature.FINISH_CONTENT_FILTER: _NO_FINISH,
            Feature.STATE: _NO_EVENT,
            Feature.STEP: _NO_EVENT,
            Feature.CUSTOM: _NO_EVENT,
            Feature.RAW: "events of other dialects; its own pass unchanged",
            Feature.CHOICES: "one answer; only the first choice is sent",
            Feature.PART_BORDERS: "texts are joined, with a blank line between messages",
            Feature.MODEL: _NO_EVENT,
        },
        refuse={Feature.FINISH_CANCELED: "sent as an error, never as a normal end"},
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={
            Feature.DATA: "JSON in the text",
            Feature.REFUSAL_HISTORY: "as ordinary text",
            Feature.TOOL_HISTORY: "completed tool calls become text; the reference server fails on replayed calls",
            Feature.RESUME: "the payload is sent as a string, which every server accepts",
        },
        drop={
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.TOOL_CHOICE: "none removes the tools; other values are not sent",
            Feature.PARALLEL_TOOL_CALLS: _NO_FIELD,
            Feature.RESPONSE_FORMAT: _NO_FIELD,
            Feature.SAMPLING: _NO_FIELD + "; n above 1 is refused",
            Feature.REASONING_EFFORT: _NO_FIELD,
            Feature.REASONING_HISTORY: _NO_FIELD,
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.USER_ID: _NO_FIELD,
            Feature.METADATA: _NO_FIELD,
            Feature.CONTEXT: _NO_FIELD,
            Feature.STATE: _NO_FIELD,
        },
        refuse={
            Feature.IMAGE_URL: _TEXT_ONLY,
            Feature.IMAGE_INLINE: _TEXT_ONLY,
            Feature.AUDIO_URL: _TEXT_ONLY,
            Feature.AUDIO_INLINE: _TEXT_ONLY,
            Feature.VIDEO_URL: _TEXT_ONLY,
            Feature.VIDEO_INLINE: _TEXT_ONLY,
            Feature.FILE_URL: _TEXT_ONLY,
            Feature.FILE_INLINE: _TEXT_ONLY,
            Feature.FILE_REF: _TEXT_ONLY,
        },
    ),
    history=HistoryMode.DELTA,
    keeps_history=True,
    eager_start=False,
    # Clients run calls of tools that they offered and only watch all others, so calls that a
    # backend ran itself are shown with their results instead of being withheld.
    client_runs_calls=False,
    usage_on_failure=False,
    separator="\n\n",
    # Generation 2 answers an interrupt without saying which one it is.
    names_interrupts=False,
    runs_tools=RunsTools.UNLISTED,
    demands=DEMANDS,
)


_MEDIA = (Feature.IMAGE, Feature.AUDIO, Feature.VIDEO, Feature.FILE, Feature.DATA)
_BY_OPTION = "dropped by option media"


@lru_cache
def card(options: FrontOptions) -> Capabilities:
    """Return the card of a route of generation 1 with these options."""
    found = CAPABILITIES
    if options.media == "drop":
        found = found.changed(drop=dict.fromkeys(_MEDIA, _BY_OPTION))
    if options.reasoning == "text":
        found = found.changed(text={Feature.REASONING: "as text between <think> and </think>"})
    return found
