"""Stored responses: those that a request refers to, what is stored of an answer, and how it is returned.

A response holds the conversation up to it as messages, so that a request that continues it equals one of a client that
stores everything itself; other dialects, memories of backends and interrupts need to know no more.
"""

from __future__ import annotations

import re
from typing import Any

from bridge.contract import (
    Context,
    QueryParameter,
    StoredAnswer,
    StoredResponses,
    WireRequest,
    WireResponse,
    json_response,
)
from bridge.dialects.openai_responses.compaction import is_wanted
from bridge.dialects.openai_responses.read_messages import ItemReader
from bridge.dialects.openai_responses.wire import is_reference, own
from bridge.errors import RequestError
from bridge.model import Message
from bridge.model.jsontext import dicts_of, dumps, read_json, text_of
from bridge.toolkit.check import Node, given_number

# The ids of items begin with that of their run, as that of the response ends (`Context.make_id`), followed by the
# backend's id of an item that has one.
_OURS = re.compile(r"[a-z]+_([0-9a-f]{32})(?:[0-9a-f]*|_(.+))", re.ASCII | re.DOTALL)
_PREFIX = re.compile(r"[a-z]+(?=_)", re.ASCII)
_HINTS = (b"previous_response_id", b"item_reference")
_ID_ALONE = re.compile(
    rb'\{\s{0,32}"id"\s{0,8}:\s{0,8}"[^"\\]{1,256}"\s{0,32}(?:,\s{0,32}"type"\s{0,8}:\s{0,8}null\s{0,32})?\}'
)
"""A reference without its type."""


def response_of(item_id: str) -> str | None:
    """The id of the response that an item came in; None for an item that was not made here."""
    made = _OURS.fullmatch(item_id)
    return f"resp_{made[1]}" if made else None


def ours(item_id: Any, context: Context) -> Any:
    """The id of a backend's item in a response that is stored here, by which it is found again."""
    stored_responses = context.stored_responses
    if not (stored_responses is not None and stored_responses.wanted and isinstance(item_id, str) and item_id):
        return item_id
    if response_of(item_id) == f"resp_{context.run_id}":
        return item_id
    prefix = found[0] if (found := _PREFIX.match(item_id)) else "item"
    return f"{prefix}_{context.run_id}_{item_id}"


def is_foreign(item: dict[str, Any]) -> bool:
    """Return whether an item is reasoning of a backend of another dialect, which the bridge gave its id, or none is
    left. A backend of this dialect refuses it: it knows no such id, and reads only what it encrypted itself.
    """
    if item.get("type") != "reasoning" or item.get("encrypted_content"):
        return False
    wire_id = text_of(item.get("id"))
    made = _OURS.fullmatch(wire_id)
    return not wire_id or (made is not None and not made[2])


def theirs(item: dict[str, Any]) -> dict[str, Any]:
    """The item with the id that its backend gave it."""
    made = _OURS.fullmatch(text_of(item.get("id")))
    return {**item, "id": made[2]} if made and made[2] else item


def stored_ids(wire: WireRequest) -> list[str]:
    """The responses that a request names: `previous_response_id`, and those of items it points at."""
    if not any(hint in wire.body for hint in _HINTS) and _ID_ALONE.search(wire.body) is None:
        return []
    body = read_json(wire.body)
    if not isinstance(body, dict):
        return []
    pointed = [text_of(i.get("id")) for i in dicts_of(body.get("input")) if is_reference(i)]
    named = [text_of(body.get("previous_response_id")), *map(response_of, pointed)]
    return [i for i in named if i]


def facts(stored_responses: StoredResponses | None) -> dict[str, Any]:
    """Return the fields that describe the storage of a response that is stored here, which a backend does not know."""
    if stored_responses is None or not (stored_responses.stores or stored_responses.previous):
        return {}
    return {
        "store": stored_responses.wanted,
        "previous_response_id": stored_responses.previous,
        "background": stored_responses.background,
    }


def keep(final: dict[str, Any], context: Context) -> None:
    """Leave the finished response in the context to be stored, if the client wants that or its connection does."""
    stored_responses = context.stored_responses
    if stored_responses is not None and (stored_responses.wanted or stored_responses.connected):
        said = said_before(context)
        if is_wanted(context.request):
            said = [m for m in said if m.role in ("system", "developer")]
        stored_responses.answer = StoredAnswer(final["id"], final, [*said, *_messages(final)])


def in_background(body: dict[str, Any], context: Context, ended: bool) -> StoredAnswer:
    """The response of a run in the background, as it is at this moment."""
    messages = [*said_before(context), *(_messages(body) if ended else ())]
    return StoredAnswer(body["id"], body, messages, context.run_id, ended)


def _messages(response: dict[str, Any]) -> list[Message]:
    """The messages of the output: one for each item."""
    return ItemReader().items(Node({"output": response["output"]}), "output")


def said_before(context: Context) -> list[Message]:
    """Return the conversation without `instructions`, which hold for one request only."""
    messages = context.request.messages if context.request is not None else []
    return messages[1:] if messages and own(messages[0].extras).get("instructions") else messages


def encode_stored(answer: StoredAnswer) -> WireResponse:
    return json_response(dumps(answer.body))


_SEEN = QueryParameter("starting_after", "The number of the last event that the client has", type="integer", minimum=0)
REREAD = (
    QueryParameter("stream", "Stream a response that was created in the background", type="boolean", default="false"),
    _SEEN,
)


def decode_reread(answer: StoredAnswer, wire: WireRequest) -> int | None:
    """Return how many events the client has: `starting_after` is the number of the last one, counted from 0."""
    query = Node(dict(wire.query))
    stream = (query.one_of("stream", ("true", "false")) or "false") == "true"
    after = given_number(query, _SEEN)
    if not stream:
        return None
    if answer.run_id is None:
        raise RequestError(
            "stream: expected a response that was created with background: true; other streams are not stored.",
            param="stream",
        )
    return 0 if after is None else after + 1


def encode_deleted(answer_id: str) -> WireResponse:
    return json_response(dumps({"id": answer_id, "object": "response", "deleted": True}))
