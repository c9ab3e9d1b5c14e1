"""What AgentScope can carry and what becomes of the rest."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, REQUEST_FEATURES, Card, Feature, RunsTools, entries
from bridge.model import HistoryMode

CARD = Card(
    answers=entries(
        ANSWER_FEATURES,
        drop={
            Feature.STATE: "there is no shared state",
            Feature.STEP: "there are no steps",
            Feature.CUSTOM: "the web frontend shows an unknown object as an error",
            Feature.RAW: "only messages of this dialect's own are passed on",
            Feature.CHOICES: "one answer; choices above 0 are left out",
            Feature.PART_BORDERS: "reasoning and calls are messages of their own",
            Feature.MODEL: "a response does not name its model",
        },
    ),
    requests=entries(
        REQUEST_FEATURES,
        text={Feature.REFUSAL_HISTORY: "the agent raises an error on a refusal in its input"},
        drop={
            Feature.CONTEXT: "there is no field for it",
            Feature.STATE: "there is no shared state",
        },
    ),
    history=HistoryMode.DELTA,
    keeps_history=True,
    eager_start=True,
    client_runs_calls=False,
    runs_tools=RunsTools.ANY,
)
