"""AgentScope Runtime's agent API, front and back, in its Python and its Java form; builders for streams.

Everything is imported at first use, so that the builders do not load the codec, nor the codec the builders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.dialects.agentscope.codec import AgentScope, AgentScopeJava, dialect, java
    from bridge.dialects.agentscope.content_builder import ContentBuilder
    from bridge.dialects.agentscope.message_builder import MessageBuilder
    from bridge.dialects.agentscope.sdk import ResponseBuilder

__all__ = [
    "AgentScope",
    "AgentScopeJava",
    "ContentBuilder",
    "MessageBuilder",
    "ResponseBuilder",
    "dialect",
    "java",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home: Any
    if name.endswith("Builder"):
        from bridge.dialects.agentscope import sdk as home
    else:
        from bridge.dialects.agentscope import codec as home
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
