"""The capabilities of AgentScope's two forms."""

from __future__ import annotations

from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries
from bridge.model import HistoryMode

_NOT_TOLD = {
    Feature.STATE: "the protocol has no shared state; option events: messages",
    Feature.STEP: "the protocol has no steps; option events: messages",
    Feature.CUSTOM: "the protocol has no custom events; option events: messages",
    Feature.RAW: "events of other dialects; its own messages pass unchanged",
    Feature.MODEL: "in the metadata of the first message, if there is one",
    Feature.PART_BORDERS: "reasoning and tool calls become separate messages",
}
_NOT_ASKED = {
    Feature.CONTEXT: "the protocol has no field for it",
    Feature.STATE: "the protocol has no shared state",
}
_REFUSALS = {Feature.REFUSAL_HISTORY: "agents raise an error for a refusal in their input"}
_NO_METADATA = "messages of this version have no metadata"
_NO_FIELD = "parsers of this version reject unknown fields"

CAPABILITIES = Capabilities(
    answers=entries(ANSWER_FEATURES, drop=_NOT_TOLD),
    requests=entries(REQUEST_FEATURES, text=_REFUSALS, drop=_NOT_ASKED),
    history=HistoryMode.DELTA,
    keeps_history=True,
    eager_start=True,
    client_runs_calls=False,
    runs_tools=RunsTools.ANY,
    cache_writes=True,
    logprobs=True,
    citations=True,
)

JAVA_CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={Feature.REFUSAL: "this version has no refusals"},
        drop={
            **_NOT_TOLD,
            Feature.CHOICES: "one answer; only the first choice is sent",
            Feature.MODEL: "a response does not name its model",
            Feature.REASONING_SIGNATURE: _NO_METADATA,
            Feature.FINISH_LENGTH: "this version has neither a status nor metadata for it",
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text=_REFUSALS,
        drop={
            **_NOT_ASKED,
            Feature.MESSAGE_NAME: _NO_FIELD,
            Feature.TOOL_CHOICE: _NO_FIELD,
            Feature.PARALLEL_TOOL_CALLS: _NO_FIELD,
            Feature.RESPONSE_FORMAT: _NO_FIELD,
            Feature.REASONING_EFFORT: _NO_FIELD,
            Feature.METADATA: _NO_FIELD,
            Feature.EXTRAS: _NO_FIELD,
        },
    ),
    history=HistoryMode.DELTA,
    keeps_history=True,
    eager_start=True,
    client_runs_calls=False,
    runs_tools=RunsTools.ANY,
)


@lru_cache
def card(exact: bool, events: str) -> Capabilities:
    """Return the card of a route: `exact` is that of its form, `events` the option."""
    found = JAVA_CAPABILITIES if exact else CAPABILITIES
    return found.changed(exact=(Feature.STATE, Feature.STEP, Feature.CUSTOM)) if events == "messages" else found
