"""Agent2Agent, the protocol of agents that call agents, as a frontend and as a backend: the dialect `a2a`."""

from bridge.dialects.a2a.codec import A2A, dialect

__all__ = ["A2A", "dialect"]
