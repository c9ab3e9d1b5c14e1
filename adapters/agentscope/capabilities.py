"""The capabilities of AgentScope's two forms."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, RunsTools, entries
from bridge.model import HistoryMode

_NOT_TOLD = {
    Feature.STATE: "there is no shared state; option events: messages",
    Feature.STEP: "there are no steps; option events: messages",
    Feature.CUSTOM: "there are no such events; option events: messages",
    Feature.RAW: "only messages of this dialect's own are passed on",
    Feature.MODEL: "named in the metadata of the first message, if there is one",
    Feature.PART_BORDERS: "reasoning and calls are messages of their own",
}
_NOT_ASKED = {
    Feature.CONTEXT: "there is no field for it",
    Feature.STATE: "there is no shared state",
}
_REFUSALS = {Feature.REFUSAL_HISTORY: "the agent raises an error on a refusal in its input"}
_NO_METADATA = "messages have no metadata in this form"
_NO_FIELD = "parsers of this form refuse fields that they do not know"

CAPABILITIES = Capabilities(
    answers=entries(ANSWER_FEATURES, drop=_NOT_TOLD),
    requests=entries(REQUEST_FEATURES, text=_REFUSALS, drop=_NOT_ASKED),
    history=HistoryMode.DELTA,
    keeps_history=True,
    eager_start=True,
    client_runs_calls=False,
    runs_tools=RunsTools.ANY,
)

JAVA_CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={Feature.REFUSAL: "contents of this form have no refusal"},
        drop={
            **_NOT_TOLD,
            Feature.CHOICES: "one answer; choices above 0 are left out",
            Feature.MODEL: "a response does not name its model",
            Feature.REASONING_SIGNATURE: _NO_METADATA,
            Feature.FINISH_LENGTH: "this form has neither a status nor metadata for it",
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
