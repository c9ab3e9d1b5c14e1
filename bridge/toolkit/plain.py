"""The short way for messages that are a role and a text, as most messages of a long conversation are."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bridge.model import Message, Text


def plain_message(value: Any, roles: Collection[str], places: tuple[str | int, ...] = ()) -> Message | None:
    """Return the message that a JSON object says with just a `role`, one of `roles`, and a text as `content`.

    None for any other value, an empty text included, which a dialect reads in its own way. In the same way it reads
    such a message; `tests/conformance/test_plain_messages.py` holds that.
    """
    if type(value) is dict and len(value) == 2:
        text, role = value.get("content"), value.get("role")
        if type(text) is str and text and type(role) is str and role in roles:
            return Message(role, [Text(text)], places=places)
    return None
