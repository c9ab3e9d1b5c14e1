"""The agent run API: queue a run, read its events, resume. The dialect `agent-runs`."""

from bridge.dialects.agent_runs.codec import AgentRuns, dialect

__all__ = ["AgentRuns", "dialect"]
