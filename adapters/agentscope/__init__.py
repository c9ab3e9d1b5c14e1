"""AgentScope Runtime's agent API, as front and as back, in its Python and its Java form; builders for streams by hand.

Everything is imported at first use: whoever wants a builder does not load the codec, and the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adapters.agentscope.codec import AgentScope, AgentScopeJava, dialect, java
    from adapters.agentscope.content_builder import ContentBuilder
    from adapters.agentscope.message_builder import MessageBuilder
    from adapters.agentscope.sdk import ResponseBuilder

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
        from . import sdk as home
    else:
        from . import codec as home
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
