"""The optional contract of dialects whose clients ask what an agent is able to do."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.codec.capabilities import Capabilities
from bridge.codec.dialect import Dialect
from bridge.codec.wire import WireResponse


class DescribedDialect(Dialect):
    """A dialect whose surface has `DESCRIBE`."""

    def encode_description(self, name: str, backends: Sequence[Capabilities]) -> WireResponse:
        """Return the response that describes an agent of this name, which each of these backends may be."""
        raise NotImplementedError
