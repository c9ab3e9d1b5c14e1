"""The input of a response, as one request would have it: `GET /responses/{id}/input_items`."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context, QueryParameter, StoredAnswer, WireRequest, WireResponse, json_response
from bridge.dialects.openai_responses.options import BackOptions
from bridge.dialects.openai_responses.write_messages import ItemWriter
from bridge.errors import RequestError, shortened
from bridge.model.jsontext import dicts_of, dumps
from bridge.toolkit.check import Node, number_in

_LIMIT = QueryParameter("limit", "Items per page", type="integer", minimum=1, maximum=100, default=20)
PAGING = (
    _LIMIT,
    QueryParameter("order", "The order of the items", choices=("asc", "desc"), default="desc"),
    QueryParameter("after", "The id of the item before the page"),
)


def encode_items(answer: StoredAnswer, wire: WireRequest) -> WireResponse:
    """Return one page. Raises `RequestError` for an invalid query, and for an `after` that names no item of the
    list.
    """
    query = Node(dict(wire.query))
    limit = number_in(query, _LIMIT)
    order, after = query.one_of("order", ("asc", "desc")) or "desc", query.string("after")
    items = input_items(answer)
    if order == "desc":
        items.reverse()
    if after is not None:
        items = items[_place(items, after) + 1 :]
    page = items[:limit]
    listed = {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > limit,
    }
    return json_response(dumps(listed))


def input_items(answer: StoredAnswer) -> list[dict[str, Any]]:
    """Return the items, oldest first: also those of the responses that this one continues. Each has an id."""
    output = len(answer.body["output"]) if answer.ended else 0
    messages = answer.messages[: len(answer.messages) - output]
    # Its ids are those of no output item, and the same each time.
    context = Context(f"in_{answer.id}")
    items = ItemWriter(context, BackOptions()).write(messages)
    return [_whole(item, context) for item in items]


def _whole(item: dict[str, Any], context: Context) -> dict[str, Any]:
    """The item with what lists have, and what requests may leave out."""
    item = {"id": item.get("id") or context.make_id("item"), **item}
    item.setdefault("status", "completed")
    content = item.get("content")
    if item["type"] == "message" and isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        item["content"] = [{"type": kind, "text": content}]
    if isinstance(item.get("content"), list):
        item["content"] = [_spoken(part) for part in dicts_of(item["content"])]
    return item


def _spoken(part: dict[str, Any]) -> dict[str, Any]:
    return {"annotations": [], "logprobs": [], **part} if part.get("type") == "output_text" else part


def _place(items: list[dict[str, Any]], after: str) -> int:
    for index, item in enumerate(items):
        if item["id"] == after:
            return index
    raise RequestError(
        f"after: expected the id of an input item of this response, got {shortened(after)!r}.", param="after"
    )
