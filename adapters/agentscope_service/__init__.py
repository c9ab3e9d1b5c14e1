"""AgentScope 2's agent service, as a backend. The dialect `agentscope-service`."""

from bridge.dialects.agentscope_service.codec import AgentScopeService, dialect

__all__ = ["AgentScopeService", "dialect"]
