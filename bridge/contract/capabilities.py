"""What a dialect can carry, and what becomes of the rest.

No dialect carries everything. A declared loss is a fact that users can read and tests check; an undeclared loss is a
bug. `Capabilities.answers` describes the frontend role (what the encoder can write for a client),
`Capabilities.requests` the backend role (what `encode_request` can write for a backend). Both list every feature. For a
dialect that is called and not served, `answers` describes what its backends can send.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from bridge.contract.demands import NOTHING, Demands
from bridge.model.request import HistoryMode


class Feature(StrEnum):
    """A feature that a translation can carry or lose. `X-Bridge-Lost` contains these names."""

    # answers
    TEXT = "text"
    REASONING = "reasoning"
    REASONING_SIGNATURE = "reasoning_signature"
    REFUSAL = "refusal"
    TOOL_CALL = "tool_call"
    TOOL_ORIGIN = "tool_origin"
    """`origin` and `server_label` of calls."""
    TOOL_RESULT = "tool_result"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"
    DATA = "data"
    USAGE = "usage"
    USAGE_DETAILS = "usage_details"
    """The counts of cached and of reasoning tokens."""
    FINISH_LENGTH = "finish_length"
    FINISH_CONTENT_FILTER = "finish_content_filter"
    FINISH_CANCELED = "finish_canceled"
    INTERRUPT = "interrupt"
    STATE = "state"
    STEP = "step"
    CUSTOM = "custom"
    RAW = "raw"
    CHOICES = "choices"
    """Choices other than the first."""
    PART_BORDERS = "part_borders"
    """The borders between texts that follow each other."""
    MODEL = "model"
    """The name of the model that answered."""
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
    """`Request.context`."""
    RESUME = "resume"
    EXTRAS = "extras"
    """Fields that only the dialect itself has; those of others are lost in any dialect."""


_FEATURES = tuple(Feature)
ANSWER_FEATURES = _FEATURES[: _FEATURES.index(Feature.SYSTEM)]
"""The features of an answer: the keys of `Capabilities.answers`."""

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
"""The features of a request: the keys of `Capabilities.requests`."""


class Support(StrEnum):
    """How a feature is carried."""

    EXACT = "exact"
    TEXT = "as text"
    CUSTOM = "as custom"
    DROP = "dropped"
    REFUSE = "refused"


@dataclass(frozen=True, slots=True)
class FeatureSupport:
    """How one feature is carried, with a reason where it is not exact."""

    support: Support
    reason: str = ""


class RunsTools(StrEnum):
    """Which calls the backends of a dialect run themselves.

    NEVER: the client runs every call. UNLISTED: the backend runs calls of tools that the request did not offer. ANY:
    the backend has run a call if its result is in the same answer. BOTH: of tools that were offered as ANY, of others
    as UNLISTED.
    """

    NEVER = "never"
    UNLISTED = "unlisted"
    ANY = "any"
    BOTH = "both"


class CallSignatures(StrEnum):
    """The place in which clients of a dialect return the signature of a tool call.

    IN_PART: with the call, as with every part that has one. IN_CALL: with the call. The backends of both get it there.
    IN_REASONING: in opaque reasoning before the call. NOWHERE: they drop it.
    """

    IN_PART = "part"
    IN_CALL = "call"
    IN_REASONING = "reasoning"
    NOWHERE = "nowhere"

    @property
    def with_calls(self) -> bool:
        """True if calls have their signatures with them, for clients and backends alike."""
        return self in (CallSignatures.IN_PART, CallSignatures.IN_CALL)


@dataclass(frozen=True, slots=True, eq=False)
class Capabilities:
    """What one dialect carries. If it refuses a finish reason, its encoder sends an error with that reason's code."""

    answers: Mapping[Feature, FeatureSupport]
    """What its encoder can write for a client; for a dialect that is not served, what its backends can send."""
    requests: Mapping[Feature, FeatureSupport]
    """What `encode_request` can write for a backend."""
    history: HistoryMode = HistoryMode.FULL
    """What its clients send of a conversation."""
    keeps_history: bool = False
    """Its backends remember the conversation by thread id."""
    names_threads: bool = False
    """Its backends name a conversation themselves: its first request names none, and `RunStarted.thread_id` is the name
    that later ones carry.
    """
    keeps_canceled: bool = False
    """Its backends go on with a conversation after a canceled run, whose request they remember."""
    wants_whole: bool = False
    """Backends that remember are still sent all of it, and find what is new by message ids."""
    eager_start: bool = False
    """Its clients want the head of the stream at once, before the backend answers."""
    client_runs_calls: bool = True
    """Its clients run every tool call that they see."""
    usage_on_failure: bool = True
    """Its failure frame, or one before it, can carry usage."""
    cache_writes: bool = False
    """Its answers report how many tokens were written to the prompt cache; otherwise that is recorded as lost."""
    totals: bool = True
    """Its answers report a total of tokens; otherwise one that is not the sum of the others is recorded as lost."""
    names_interrupts: bool = True
    """An answer to an interrupt names the interrupt."""
    awaits_results: bool = False
    """Its backends may interrupt a run for the result of a call (`model.events.AWAITS_RESULT`)."""
    tool_names: str | None = None
    """The pattern that a whole tool name must match at its backends; None is any name."""
    inline_media_only: bool = False
    """In its answers, media by URL or id become text."""
    other_media: Support = Support.TEXT
    """What becomes of media in its answers that have no form there though their kind is `EXACT`: text, or `DROP`."""
    audio_last: bool = False
    """The first audio of an answer comes after everything else, and further ones become text."""
    separator: str = ""
    """The separator between the texts of two messages of one answer, where an answer has a single text."""
    file_ids: bool = True
    """Its answers tell a file's id from a URL; where they do not, the id stands in place of one, which is named."""
    opaque_values: Literal["both", "one", "signature"] = "both"
    """Which of the two opaque values of a reasoning part its answers carry."""
    media_types: bool = True
    """Media as bytes are written with their type; without, decoders guess it from the bytes."""
    call_ids: bool = True
    """Calls and results are written with the call's id; without, decoders number calls and match results by place."""
    exact_arguments: bool = True
    """The arguments of a call arrive as the model wrote them, and not only as the same JSON value."""
    drops_invalid_calls: bool = False
    """Its clients get no calls whose arguments are not a JSON object; the answer then ends as one cut at its length."""
    exact_results: bool = True
    """The text of a tool's result arrives as it was written, and not only as the same JSON value."""
    runs_tools: RunsTools = RunsTools.NEVER
    """Which tools its backends run by themselves."""
    caches_marks: bool = False
    """Requests can mark what their backends cache."""
    logprobs: bool = False
    """Requests can ask for the log probabilities of the answer's tokens, and answers carry them."""
    citations: bool = False
    """Its answers carry citations of web pages; where they do not, the projection names them as lost."""
    clients_cache: bool = False
    """Its clients decide what is cached. For others, the codec of the backend does, where it can (`Context.caches`)."""
    vendor: str = ""
    """The vendor that makes and checks the signatures and encrypted reasoning of this wire; empty: it carries any."""
    wants_signatures: bool = False
    """Its clients take reasoning without a signature for broken."""
    demands: Demands = NOTHING
    """What the API of its backends demands, with default options."""
    call_signatures: CallSignatures = CallSignatures.NOWHERE
    """The place in which its clients return the signatures of calls (`toolkit.signed_parts`)."""

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
        """True if its backends get only new messages."""
        return self.keeps_history and not self.wants_whole

    def changed(
        self,
        *,
        exact: Collection[Feature] = (),
        text: Mapping[Feature, str] | None = None,
        drop: Mapping[Feature, str] | None = None,
        refuse: Mapping[Feature, str] | None = None,
        **more: Any,
    ) -> Capabilities:
        """Return this card with other entries for features of answers, each with its reason, and other fields.

        For `Dialect.card`: the card of a route whose options change what its clients see.
        """
        answers = dict(self.answers)
        answers |= dict.fromkeys(exact, FeatureSupport(Support.EXACT))
        answers |= {feature: FeatureSupport(Support.TEXT, reason) for feature, reason in (text or {}).items()}
        answers |= {feature: FeatureSupport(Support.DROP, reason) for feature, reason in (drop or {}).items()}
        answers |= {feature: FeatureSupport(Support.REFUSE, reason) for feature, reason in (refuse or {}).items()}
        return replace(self, answers=answers, **more)

    @classmethod
    def only(cls, exact: Collection[Feature], why: str, *, text: Collection[Feature] = ()) -> Capabilities:
        """Return capabilities with features `exact`, those of `text` as text, and all others dropped by reason `why`.

        Ends of an answer that is not complete are refused: without its reason it would look complete.
        """

        def role(wanted: tuple[Feature, ...]) -> dict[Feature, FeatureSupport]:
            as_text = {feature: why for feature in wanted if feature in text}
            lost = {feature: why for feature in wanted if feature not in exact and feature not in text}
            refused = {feature: lost.pop(feature) for feature in _ENDS if feature in lost}
            return entries(wanted, text=as_text, drop=lost, refuse=refused)

        return cls(role(ANSWER_FEATURES), role(REQUEST_FEATURES))

    def answer(self, feature: Feature) -> Support:
        """Return how a feature of an answer is carried."""
        return self.answers[feature].support

    def request(self, feature: Feature) -> Support:
        """Return how a feature of a request is carried."""
        return self.requests[feature].support


_ENDS = (Feature.FINISH_LENGTH, Feature.FINISH_CONTENT_FILTER, Feature.FINISH_CANCELED)


Exceptions = Mapping[Feature, str] | Mapping[str, Collection[Feature]]
"""Features with their reasons, or reasons with the features that each explains."""


def entries(
    wanted: tuple[Feature, ...],
    *,
    text: Exceptions | None = None,
    custom: Exceptions | None = None,
    drop: Exceptions | None = None,
    refuse: Exceptions | None = None,
) -> dict[Feature, FeatureSupport]:
    """The entries of one role: each exception with its reason, all else exact.

    An exception is `{feature: reason}` or `{reason: (feature, ...)}`. Raises `ValueError` for a feature that is named
    twice, or that is not among `wanted`.
    """
    role = "answers" if wanted == ANSWER_FEATURES else "requests"
    named: dict[Feature, FeatureSupport] = {}
    for support, group in (
        (Support.TEXT, text),
        (Support.CUSTOM, custom),
        (Support.DROP, drop),
        (Support.REFUSE, refuse),
    ):
        for feature, reason in _pairs(group or {}):
            if feature not in wanted:
                raise ValueError(f"{feature} is no feature of {role}")
            if feature in named:
                raise ValueError(f"{feature} is named twice: {named[feature].support}, and {support}")
            named[feature] = FeatureSupport(support, reason)
    return {feature: named.get(feature, FeatureSupport(Support.EXACT)) for feature in wanted}


def _pairs(group: Mapping[Any, Any]) -> list[tuple[Feature, str]]:
    """Return each feature with its reason."""
    pairs: list[tuple[Feature, str]] = []
    for key, value in group.items():
        pairs += [(key, value)] if isinstance(key, Feature) else [(feature, key) for feature in value]
    return pairs
