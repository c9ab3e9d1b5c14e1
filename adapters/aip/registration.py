"""A node that stays known at a foreign gateway: registers, beats, and registers again.

Gateways remove nodes without a heartbeat and nodes that they cannot reach; the reference nodes then stay away. This one
registers again.
"""

from __future__ import annotations

from bridge.contract.optional.sessions import Registration
from bridge.dialects.aip.wire import AgentInfo, Done, Named, NodeHead, RegisterAgentResponse, ToolBoxInfo, ToolInfo

_GATEWAY = "/grpc_service.GatewayService/"
EVERY = 10.0
"""Seconds between two beats, and between two tries to register."""


class Membership(Registration):
    """See `bridge.contract.optional.sessions.Registration`."""

    def __init__(self, gateway: str, info: AgentInfo | ToolInfo | ToolBoxInfo, key: str = "") -> None:
        self.gateway = gateway
        self.key = key
        self.address = info.address
        self.info = info
        self._id = NodeHead.from_bytes(info.to_bytes()).node_id
        self._known = False
        self._due = 0.0

    def next(self, now: float) -> tuple[str, bytes] | float:
        if now < self._due:
            return self._due
        if self._known:
            return f"{_GATEWAY}Heartbeat", Named(self._id).to_bytes()
        method = "RegisterAgent" if isinstance(self.info, AgentInfo) else "RegisterTool"
        return f"{_GATEWAY}{method}", self.info.to_bytes()

    def answered(self, body: bytes | None, now: float) -> bool:
        beat, self._known = self._known, self._agreed(body)
        # A removed node registers at once; a gateway that is down or refuses is tried again later.
        self._due = now if beat and body is not None and not self._known else now + EVERY
        return self._known

    def _agreed(self, body: bytes | None) -> bool:
        if body is None:
            return False
        try:
            if self._known:
                return Done.from_bytes(body).success
            return RegisterAgentResponse.from_bytes(body).success
        except ValueError:
            return False

    def leave(self) -> tuple[str, bytes] | None:
        return (f"{_GATEWAY}DeregisterNode", Named(self._id).to_bytes()) if self._known else None
