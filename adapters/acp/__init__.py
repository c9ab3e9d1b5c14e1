"""The Agent Client Protocol, which editors speak with agents. The dialect `acp`.

| module | contents |
|---|---|
| `wire` | the vocabulary of both directions: stop reasons, errors, kinds of calls, content blocks |
| `front`, `encoder`, ... | the bridge as an agent: requests of editors, updates to them |
| `codec` | the dialect |
"""

from bridge.dialects.acp.codec import ACP, dialect

__all__ = ["ACP", "dialect"]
