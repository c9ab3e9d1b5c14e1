"""The optional contract of dialects whose clients ask what an agent is able to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bridge.contract.capabilities import Capabilities
from bridge.contract.dialect import Dialect, Options
from bridge.contract.wire import WireRequest, WireResponse


@dataclass(frozen=True, slots=True)
class DescribedAgent:
    """The agent behind a route. Each of `backends` may answer.

    `url` is the address of the route as clients reach it. `secured`: requests need a key. `durable`: runs are stored
    and can be read again. `wire` is the request for the description.
    """

    name: str
    backends: Sequence[Capabilities]
    url: str = ""
    options: Options | None = None
    secured: bool = False
    durable: bool = False
    wire: WireRequest = field(default_factory=WireRequest)


class DescribedDialect(Dialect):
    """A dialect whose surface has `DESCRIBE`."""

    def encode_description(self, agent: DescribedAgent) -> WireResponse:
        """Return the response that describes an agent."""
        raise NotImplementedError
