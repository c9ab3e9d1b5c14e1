"""AgentScope Runtime's agent API, as front and as back (the Python form)."""

from adapters.agentscope.codec import AgentScope, dialect

__all__ = ["AgentScope", "dialect"]
