"""AgentScope Runtime's agent API, as front and as back, in its Python and its Java form; builders for streams by hand.

Everything is imported at first use: whoever wants a builder does not load the codec, and the other way round.
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
