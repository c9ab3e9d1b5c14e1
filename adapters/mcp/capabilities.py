"""The capabilities of MCP, which is served only."""

from __future__ import annotations

from functools import lru_cache

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, entries
from bridge.model import HistoryMode

_NO_FIELD = "the protocol has no field for it"
_ONE = "a result is one text, with its media"
_AGENTS_OWN = "calls of the agent are its own; progress: all names them"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={
            Feature.REFUSAL: "a text",
            Feature.DATA: "JSON as a text",
            Feature.INTERRUPT: "a text, except for clients that declare elicitation",
        },
        drop={
            Feature.REASONING: _NO_FIELD,
            Feature.REASONING_SIGNATURE: _NO_FIELD,
            Feature.TOOL_CALL: _AGENTS_OWN,
            Feature.TOOL_ORIGIN: _AGENTS_OWN,
            Feature.TOOL_RESULT: _AGENTS_OWN,
            Feature.STATE: _NO_FIELD,
            Feature.STEP: _NO_FIELD,
            Feature.CUSTOM: _NO_FIELD,
            Feature.RAW: "events of other dialects",
            Feature.CHOICES: "only the first choice is sent",
            Feature.PART_BORDERS: _ONE,
        },
        refuse={
            Feature.FINISH_CONTENT_FILTER: "a result that is an error",
            Feature.FINISH_CANCELED: "a result that is an error",
        },
    ),
    requests=entries(REQUEST_FEATURES, drop=dict.fromkeys(REQUEST_FEATURES, "there are no backends of this dialect")),
    history=HistoryMode.DELTA,
    client_runs_calls=False,
    cache_writes=True,
    separator="\n\n",
    names_interrupts=False,
)


@lru_cache
def card(*, structured: bool = False, asks: bool = False) -> Capabilities:
    """Return the card of a route, or of a call whose client answers questions (`asks`)."""
    known = CAPABILITIES
    if structured:
        media = (Feature.IMAGE, Feature.AUDIO, Feature.VIDEO, Feature.FILE)
        known = known.changed(text=dict.fromkeys(media, "a text beside structuredContent"))
    return known.changed(exact=(Feature.INTERRUPT,)) if asks else known
