"""How an answer ends for a client whose dialect refuses the way in which the run ended."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract.capabilities import Capabilities, Feature, Support
from bridge.contract.context import Losses
from bridge.errors import ErrorCode, Failure
from bridge.model import events as ev
from bridge.model.events import Event, FinishReason

ENDS: dict[FinishReason, Feature] = {
    FinishReason.LENGTH: Feature.FINISH_LENGTH,
    FinishReason.CONTENT_FILTER: Feature.FINISH_CONTENT_FILTER,
    FinishReason.CANCELED: Feature.FINISH_CANCELED,
}
"""The feature of each finish reason that a dialect may lack."""

REFUSED: dict[FinishReason, Failure] = {
    FinishReason.CANCELED: Failure(ErrorCode.CANCELED, "The run was canceled."),
    FinishReason.LENGTH: Failure(ErrorCode.BACKEND_ERROR, "The answer was cut at its length limit."),
    FinishReason.CONTENT_FILTER: Failure(ErrorCode.CONTENT_FILTER, "The answer was stopped by a content filter."),
}
"""The failure that a finish reason is in a dialect that refuses it: `stop` would tell that the answer is whole."""


def failure_at_end(events: Sequence[Event], card: Capabilities, lost: Losses) -> Failure | None:
    """Return the failure that a whole run is for a client: its own, or its end that the card refuses.

    For `assemble`, whose answer is then an error response. Returns None for a run that ended well, whose losses the
    encoder names.
    """
    end = events[-1] if events else None
    if isinstance(end, ev.RunFailed):
        return end.error
    if not isinstance(end, ev.RunFinished):
        return None
    feature = ENDS.get(end.reason)
    if feature is None or card.answer(feature) is not Support.REFUSE:
        return None
    lost.add(feature, "sent as an error")
    return REFUSED[end.reason]
