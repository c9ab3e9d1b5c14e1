"""Limits of tokens that a backend refuses as too large: what the refusal says that it takes.

Coding agents ask for the limit of the model that they know, which is more than other models can write, or more than the
context of a local model has room for. The refusal names the largest limit, or the sizes of the context and the prompt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bridge.errors import ErrorCode
from bridge.model.jsontext import dict_of

REFUSED_AS = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED, ErrorCode.TOO_LARGE, ErrorCode.CONTEXT_LENGTH}
)
"""The codes of failures that may be about a limit of tokens."""

_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_ABOUT = re.compile(
    r"max_(?:completion_|output_|new_)?tokens|maxoutputtokens|maximum tokens|output tokens|for the completion"
    r"|in the (?:completion|output)"
)
_LARGE = re.compile(
    r"too large|exceed|at most|invalid|not valid|range|less than or equal|<=|above|maximum|reduce|must be"
)
_NUMBER = r"(\d{1,9})"
_CONTEXT = re.compile(rf"(?:context (?:length|limit|window)|max_new_tokens` must be)\D{{0,40}}{_NUMBER}\b")
_PROMPT = re.compile(
    rf"{_NUMBER} (?:tokens )?"
    r"(?:input tokens|in the messages|of (?:text|tool|image) input|from the input|`inputs` tokens|in the prompt)"
)
_REQUESTED = re.compile(rf"requested {_NUMBER} output tokens")
_SUM = re.compile(rf"{_NUMBER} \+ \d{{1,9}} > {_NUMBER}\b")
_MOST = re.compile(
    rf"(?:at most|less than or equal to|<=|limit (?:of|is)|maximum (?:value )?(?:of|is)|\[\d{{1,3}},|inclusive\) to)"
    rf"[ `'\"]{{0,3}}{_NUMBER}\b( \(exclusive\))?"
    rf"|max_tokens: \d{{1,9}} > {_NUMBER}, which is the maximum"
)
_LEAST_ROOM = 1024
"""Tokens of an answer for which a conversation is not yet too long."""
_LEAST_LIMIT = 256
"""A limit below which no model is: a smaller number means something else."""
_ALWAYS_TAKEN = 4096
"""A limit that is not too large for any model: one up to it is refused for another reason."""


@dataclass(frozen=True, slots=True)
class LowerLimit:
    """Lowers the limit of a body to `most` tokens; without a number, leaves a large one out. `is_room`: it is what this
    prompt leaves of the context.
    """

    most: int | None
    is_room: bool = False

    @property
    def lasts(self) -> bool:
        """True if later requests need it as well."""
        return self.most is not None and not self.is_room

    def __call__(self, body: dict[str, Any]) -> bool:
        """Change the body in place and return whether that was done."""
        changed = [self._lowered(body, name) for name in _FIELDS]
        config = dict_of(body.get("generationConfig"))
        return any([*changed, self._lowered(config, "maxOutputTokens")])

    def _lowered(self, holder: dict[str, Any], name: str) -> bool:
        asked = holder.get(name)
        if type(asked) is not int or asked <= (_ALWAYS_TAKEN if self.most is None else self.most):
            return False
        if self.most is None:
            del holder[name]
        else:
            holder[name] = self.most
        return True


def lower_limit(words: str, *, is_full: bool) -> LowerLimit | None:
    """Return how a request is changed that was refused in these words, in lower case; None if they are about others.

    `is_full`: they say that the conversation exceeds the context, which it does if there is no room for an answer.
    """
    if not (_ABOUT.search(words) and _LARGE.search(words)):
        return None
    room = _room(words)
    if room is not None:
        return LowerLimit(room, is_room=True) if room >= _LEAST_ROOM else None
    if is_full:
        return None
    found = _MOST.search(words)
    if found is None:
        return LowerLimit(None)
    most = int(found[1] or found[3]) - (found[2] is not None)
    return LowerLimit(most) if most >= _LEAST_LIMIT else None


def _room(words: str) -> int | None:
    """Return what a prompt leaves of the context; None if the words do not have both numbers.

    Servers stop counting a prompt at the first token that is too many: what they have counted and what was requested
    are then one more than the context, the prompt may be of any size, and a quarter of what was requested is returned.
    """
    if found := _SUM.search(words):
        return int(found[2]) - int(found[1])
    context, counted, requested = _CONTEXT.search(words), _PROMPT.findall(words), _REQUESTED.search(words)
    if context is None or not counted:
        return None
    size, prompt = int(context[1]), sum(map(int, counted))
    if requested is not None and prompt + int(requested[1]) == size + 1:
        return int(requested[1]) // 4
    return size - prompt
