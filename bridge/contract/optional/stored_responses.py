"""The optional contract of dialects whose clients name earlier answers by id, and run requests in the background."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract.context import Context, StoredAnswer
from bridge.contract.dialect import Dialect, Options
from bridge.contract.wire import FrameLike, WireRequest, WireResponse
from bridge.model.events import Event


class StoredAnswersDialect(Dialect):
    """A dialect whose surface has `RETRIEVE`, and perhaps `DELETE`, `ITEMS` and `CANCEL`, with `{id}` in the path."""

    def keeps_answers(self, options: Options | None) -> bool:
        """Return whether clients of a route with these options may read or continue answers by their ids."""
        raise NotImplementedError

    def stored_ids(self, wire: WireRequest) -> list[str]:
        """Return the ids of the stored answers that a request refers to.

        Never raises: `decode_request` reports what is wrong with the request.
        """
        raise NotImplementedError

    def encode_stored(self, answer: StoredAnswer) -> WireResponse:
        """Return the response with a stored answer, or with one that is being made, as it is now."""
        raise NotImplementedError

    def encode_items(self, answer: StoredAnswer, wire: WireRequest) -> WireResponse:
        """Return the requested part of the input of an answer. Raises `RequestError`."""
        raise NotImplementedError

    def decode_reread(self, answer: StoredAnswer, wire: WireRequest) -> int | None:
        """Return how many frames of an answer's stream the client already has; None if it wants the answer whole.

        Raises `RequestError`, also where the answer has no stream.
        """
        raise NotImplementedError

    def answer_so_far(self, events: Sequence[Event], context: Context) -> StoredAnswer:
        """Return the answer of a run in the background after these events; without any, it waits in the queue."""
        raise NotImplementedError

    def encode_queued(self, context: Context) -> list[FrameLike]:
        """Return the first frames of a run in the background, sent before it starts; its encoder continues them."""
        raise NotImplementedError

    def encode_deleted(self, answer_id: str) -> WireResponse:
        """Return the response that confirms the deletion of a stored answer."""
        raise NotImplementedError
