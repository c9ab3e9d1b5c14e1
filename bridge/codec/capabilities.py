"""The card: what a dialect can carry, and what becomes of the rest.

Dialects cannot all say everything. A loss that stands on a card is a fact that users can read and tests check;
a loss that stands nowhere is a bug. `Capabilities.answers` speaks of the frontend role (what the encoder can tell a
client), `Capabilities.requests` of the backend role (what `encode_request` can tell a backend). Every feature of both
lists must be named on every card.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bridge.model.request import HistoryMode


class Feature(StrEnum):
    """Everything that may or may not survive a trip. Names are part of `X-Bridge-Lost`."""

    # answers
    TEXT = "text"
    REASONING = "reasoning"
    REASONING_SIGNATURE = "reasoning_signature"
    REFUSAL = "refusal"
    TOOL_CALL = "tool_call"
    TOOL_ORIGIN = "tool_origin"
    TOOL_RESULT = "tool_result"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"
    DATA = "data"
    USAGE = "usage"
    USAGE_DETAILS = "usage_details"
    FINISH_LENGTH = "finish_length"
    FINISH_CONTENT_FILTER = "finish_content_filter"
    FINISH_CANCELED = "finish_canceled"
    INTERRUPT = "interrupt"
    STATE = "state"
    STEP = "step"
    CUSTOM = "custom"
    RAW = "raw"
    CHOICES = "choices"
    PART_BORDERS = "part_borders"
    MODEL = "model"
    # requests
    SYSTEM = "system"
    MESSAGE_NAME = "message_name"
    TOOLS = "tools"
    TOOL_CHOICE = "tool_choice"
    PARALLEL_TOOL_CALLS = "parallel_tool_calls"
    RESPONSE_FORMAT = "response_format"
    SAMPLING = "sampling"
    REASONING_EFFORT = "reasoning_effort"
    IMAGE_URL = "image_url"
    IMAGE_INLINE = "image_inline"
    AUDIO_URL = "audio_url"
    AUDIO_INLINE = "audio_inline"
    VIDEO_URL = "video_url"
    VIDEO_INLINE = "video_inline"
    FILE_URL = "file_url"
    FILE_INLINE = "file_inline"
    FILE_REF = "file_ref"
    REASONING_HISTORY = "reasoning_history"
    REFUSAL_HISTORY = "refusal_history"
    TOOL_HISTORY = "tool_history"
    USER_ID = "user_id"
    THREAD_ID = "thread_id"
    METADATA = "metadata"
    CONTEXT = "context"
    RESUME = "resume"
    EXTRAS = "extras"


ANSWER_FEATURES: tuple[Feature, ...] = (
    Feature.TEXT,
    Feature.REASONING,
    Feature.REASONING_SIGNATURE,
    Feature.REFUSAL,
    Feature.TOOL_CALL,
    Feature.TOOL_ORIGIN,
    Feature.TOOL_RESULT,
    Feature.IMAGE,
    Feature.AUDIO,
    Feature.VIDEO,
    Feature.FILE,
    Feature.DATA,
    Feature.USAGE,
    Feature.USAGE_DETAILS,
    Feature.FINISH_LENGTH,
    Feature.FINISH_CONTENT_FILTER,
    Feature.FINISH_CANCELED,
    Feature.INTERRUPT,
    Feature.STATE,
    Feature.STEP,
    Feature.CUSTOM,
    Feature.RAW,
    Feature.CHOICES,
    Feature.PART_BORDERS,
    Feature.MODEL,
)
"""What an answer may hold; the keys of `Capabilities.answers`."""

REQUEST_FEATURES: tuple[Feature, ...] = (
    Feature.SYSTEM,
    Feature.MESSAGE_NAME,
    Feature.TOOLS,
    Feature.TOOL_CHOICE,
    Feature.PARALLEL_TOOL_CALLS,
    Feature.RESPONSE_FORMAT,
    Feature.SAMPLING,
    Feature.REASONING_EFFORT,
    Feature.IMAGE_URL,
    Feature.IMAGE_INLINE,
    Feature.AUDIO_URL,
    Feature.AUDIO_INLINE,
    Feature.VIDEO_URL,
    Feature.VIDEO_INLINE,
    Feature.FILE_URL,
    Feature.FILE_INLINE,
    Feature.FILE_REF,
    Feature.DATA,
    Feature.REASONING_HISTORY,
    Feature.REFUSAL_HISTORY,
    Feature.TOOL_HISTORY,
    Feature.TOOL_ORIGIN,
    Feature.USER_ID,
    Feature.THREAD_ID,
    Feature.METADATA,
    Feature.CONTEXT,
    Feature.STATE,
    Feature.RESUME,
    Feature.EXTRAS,
)
"""What a request may hold; the keys of `Capabilities.requests`."""


class Support(StrEnum):
    """What becomes of a feature."""

    EXACT = "exact"
    TEXT = "as text"
    CUSTOM = "as custom"
    DROP = "dropped"
    REFUSE = "refused"


@dataclass(frozen=True, slots=True)
class FeatureSupport:
    """What becomes of one feature, and why where it is not exact."""

    support: Support
    reason: str = ""


class RunsTools(StrEnum):
    """Does a backend of this dialect run tools by itself?

    NEVER: every call is the client's. UNLISTED: calls of tools that the request did not offer are the backend's.
    ANY: only the result in the same answer tells.
    """

    NEVER = "never"
    UNLISTED = "unlisted"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The promise of one dialect.

    `history`: what its clients send. `keeps_history`: its backends remember the talk by thread id.
    `wants_whole`: these are sent the whole of it all the same, and tell by the ids of messages what is new.
    `eager_start`: its clients want the head of the stream at once, before the backend answered.
    `client_runs_calls`: its clients run every tool call they are shown. `usage_on_failure`: its failure frame, or one
    before it, can carry usage. `names_interrupts`: an answer to an interrupt says to which one. `tool_names`: the
    pattern that its backends want a tool's whole name to match; None = any name will do. `inline_media_only`: in its
    answers media by address or id become text. `media_types`: a medium's type is told with it, not only guessed.
    A finish that it refuses is told as an error with the code of that finish.
    """

    answers: Mapping[Feature, FeatureSupport]
    requests: Mapping[Feature, FeatureSupport]
    history: HistoryMode = HistoryMode.FULL
    keeps_history: bool = False
    wants_whole: bool = False
    eager_start: bool = False
    client_runs_calls: bool = True
    usage_on_failure: bool = True
    names_interrupts: bool = True
    tool_names: str | None = None
    inline_media_only: bool = False
    media_types: bool = True
    runs_tools: RunsTools = RunsTools.NEVER

    def __post_init__(self) -> None:
        for role, entries, wanted in (
            ("answers", self.answers, ANSWER_FEATURES),
            ("requests", self.requests, REQUEST_FEATURES),
        ):
            missing, unknown = set(wanted) - set(entries), set(entries) - set(wanted)
            if missing or unknown:
                raise ValueError(f"card.{role}: missing {sorted(missing)}, not of this role {sorted(unknown)}")

    @property
    def takes_news(self) -> bool:
        """Whether its backends are sent what is new, and no more."""
        return self.keeps_history and not self.wants_whole

    @classmethod
    def only(cls, exact: Collection[Feature], why: str, *, text: Collection[Feature] = ()) -> Capabilities:
        """The card of a wire that carries these features, those of `text` as text, and no others: `why`."""

        def role(wanted: tuple[Feature, ...]) -> dict[Feature, FeatureSupport]:
            as_text = {feature: why for feature in wanted if feature in text}
            lost = {feature: why for feature in wanted if feature not in exact and feature not in text}
            return entries(wanted, text=as_text, drop=lost)

        return cls(role(ANSWER_FEATURES), role(REQUEST_FEATURES))

    def answer(self, feature: Feature) -> Support:
        """What becomes of a feature of an answer."""
        return self.answers[feature].support

    def request(self, feature: Feature) -> Support:
        """What becomes of a feature of a request."""
        return self.requests[feature].support


def entries(
    wanted: tuple[Feature, ...],
    *,
    text: Mapping[Feature, str] | None = None,
    custom: Mapping[Feature, str] | None = None,
    drop: Mapping[Feature, str] | None = None,
    refuse: Mapping[Feature, str] | None = None,
) -> dict[Feature, FeatureSupport]:
    """The entries of one role: each exception with its reason, all else exact."""
    named: dict[Feature, FeatureSupport] = {}
    for support, group in (
        (Support.TEXT, text),
        (Support.CUSTOM, custom),
        (Support.DROP, drop),
        (Support.REFUSE, refuse),
    ):
        for feature, reason in (group or {}).items():
            if feature in named or feature not in wanted:
                raise ValueError(f"{feature} is named twice or does not belong to this role")
            named[feature] = FeatureSupport(support, reason)
    return {feature: named.get(feature, FeatureSupport(Support.EXACT)) for feature in wanted}
