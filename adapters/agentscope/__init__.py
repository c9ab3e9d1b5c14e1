"""AgentScope Runtime's agent API, as a frontend and as a backend: the dialects `agentscope` and `agentscope-java`."""

from bridge.dialects.agentscope.codec import AgentScope, AgentScopeJava, dialect, java

__all__ = ["AgentScope", "AgentScopeJava", "dialect", "java"]
