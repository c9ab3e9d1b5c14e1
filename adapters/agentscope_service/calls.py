"""Ids of tool calls, and the calls that a reply waits for.

The service passes on the model's ids, which may repeat within a session. Clients get ids that are unique: those of the
reply and of the call, and of the same id in one reply the how manieth it is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

ASKING = "asking"
SUBMITTED = "submitted"
_WAITING = frozenset({ASKING, SUBMITTED})

Block = dict[str, Any]


def shown_id(reply_id: str, call_id: str, number: int = 1) -> str:
    """The id by which clients know the `number`-th call of this id in a reply."""
    return f"{reply_id[:8]}_{call_id}" + (f"_{number}" if number > 1 else "")


@dataclass
class Waiting:
    """What a session waits for: the calls of its last reply that need an approval or run elsewhere.

    `calls` are by the ids that clients know. `numbers` counts the calls of each id in the reply.
    """

    reply_id: str = ""
    calls: dict[str, Block] = field(default_factory=dict)
    numbers: Counter[str] = field(default_factory=Counter)

    def of(self, state: str) -> dict[str, Block]:
        """The calls in this state."""
        return {shown: block for shown, block in self.calls.items() if block.get("state") == state}


def waiting_in(message: Any) -> Waiting:
    """What the last message of a session's history waits for."""
    found = Waiting()
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or message.get("role") != "assistant":
        return found
    if isinstance(message.get("id"), str):
        found.reply_id = message["id"]
    for block in content:
        if not isinstance(block, dict) or block.get("type") != "tool_call" or not isinstance(block.get("id"), str):
            continue
        found.numbers[block["id"]] += 1
        if block.get("state") in _WAITING:
            found.calls[shown_id(found.reply_id, block["id"], found.numbers[block["id"]])] = block
    return found
