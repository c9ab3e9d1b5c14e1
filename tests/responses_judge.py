"""The judge of Responses streams: the types of the SDK and of the documents, and the rules that the helper enforces.

The SDK's client itself forgives almost everything, since it makes objects without checking them.
"""

from __future__ import annotations

from typing import Any, get_args

from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel

from tests.official import judge_response

# The SDK's class for each type of event.
_CLASSES: dict[str, type[BaseModel]] = {
    get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(get_args(ResponseStreamEvent)[0])
}


def judge(events: list[dict[str, Any]]) -> None:
    """Every event by its type; then numbers, borders, and that the last event repeats what the others said."""
    for event in events:
        _CLASSES[event["type"]].model_validate(event, strict=True)
        if "response" in event:
            judge_response(event["response"])
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    queued = ["response.queued"] if events[0]["response"].get("background") else []
    head = ["response.created", *queued, "response.in_progress"]
    assert [e["type"] for e in events[: len(head)]] == head
    opened: dict[int, dict[str, Any]] = {}
    ended: dict[int, dict[str, Any]] = {}
    for event in events[len(head) : -1]:
        index = event.get("output_index")
        if event["type"] == "response.output_item.added":
            assert index == len(opened), "indices follow each other"
            opened[index] = event["item"]
        elif event["type"] == "response.output_item.done":
            assert index not in ended
            assert event["item"].get("id") == opened[index].get("id")
            ended[index] = event["item"]
        elif index is not None:
            assert index in opened, event
            assert index not in ended, event
            assert event.get("item_id") in (None, opened[index]["id"])
    assert set(opened) == set(ended)
    last = events[-1]["response"]
    assert last["output"] == [ended[index] for index in sorted(ended)]
    assert len({r["id"] for r in (e["response"] for e in events if "response" in e)}) == 1
    # The API has a status for it, and no event.
    named = "failed" if last["status"] == "cancelled" else last["status"]
    assert events[-1]["type"] == f"response.{named}"
