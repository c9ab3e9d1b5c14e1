"""The backends of one route, model or mode, and the order in which a request tries them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from bridge.run.backend import Backend


class BackendGroup:
    """One backend, or several: in order, each the fallback of the one before; or with weights, sharing the load.

    With weights a request is drawn by its conversation (weighted rendezvous hashing): every process sends one
    conversation to the same backend without anything being shared, for its memory and its cache of prompts. The others
    follow as fallbacks.
    """

    def __init__(self, members: Sequence[Backend], weights: Sequence[int] | None = None) -> None:
        self.members = list(members)
        self._weights = dict(zip((m.name for m in members), weights, strict=True)) if weights else None

    def order(self, key: str) -> list[Backend]:
        """The members for the conversation `key`, first choice first."""
        weights = self._weights
        if weights is None:
            return self.members
        return sorted(self.members, key=lambda member: _distance(member.name, key) / weights[member.name])

    @property
    def names(self) -> str:
        """Its members' names with commas between them, for people."""
        return ",".join(member.name for member in self.members)

    @property
    def shares_conversations(self) -> bool:
        """True if several backends may answer one conversation and one remembers it by itself: none has all of it."""
        return len(self.members) > 1 and any(member.capabilities.keeps_history for member in self.members)


def _distance(name: str, key: str) -> float:
    """Return a number with an exponential distribution over keys: divided by the weights, the least of several is of
    each name as often as its weight demands.
    """
    digest = hashlib.blake2b(f"{name}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return -math.log((int.from_bytes(digest) + 1) / (2**64 + 1))
