"""Characters that nobody sees, which editors, chats and web pages put into what is copied from them."""

from __future__ import annotations

import re

# Unicode counts these as letters or marks, but they are shown as nothing: fillers, joiners, variation selectors.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def invisible_in(text: str) -> str | None:
    """Return what is wrong with a secret that has an invisible character or a space at an end; None if nothing is.

    The words do not show the text.
    """
    for place, character in enumerate(text, 1):
        if not character.isprintable() or _BLANK.match(character):
            return f"has an invisible character, U+{ord(character):04X}, as number {place} of {len(text)}; remove it"
    if text != text.strip():
        return "begins or ends with a space; remove it"
    return None
