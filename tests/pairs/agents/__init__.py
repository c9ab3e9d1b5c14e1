"""A backend of each dialect that talks: it hears a request as its protocol means it, and says what the scene wants.

Those that keep the talk by an id really keep it, so that what they hear is the talk as such a server would know it,
with every loss and every repetition. They refuse what the real ones refuse.
"""

from __future__ import annotations

from tests.pairs.agents.agui import Agui, agui_message
from tests.pairs.agents.chat import Chat
from tests.pairs.agents.claude import Claude
from tests.pairs.agents.kit import Kit, Kit2
from tests.pairs.agents.responses import Responses
from tests.pairs.agents.scenes import (
    BREAKS,
    Agent,
    Ask,
    Brain,
    Fall,
    Hang,
    Heard,
    Ran,
    Say,
    Step,
    Think,
    Use,
    Wire,
    halves,
    said,
)
from tests.pairs.agents.scope import Scope

__all__ = [
    "AGENTS",
    "BREAKS",
    "Agent",
    "Agui",
    "Ask",
    "Brain",
    "Chat",
    "Claude",
    "Fall",
    "Hang",
    "Heard",
    "Kit",
    "Kit2",
    "Ran",
    "Responses",
    "Say",
    "Scope",
    "Step",
    "Think",
    "Use",
    "Wire",
    "agui_message",
    "halves",
    "said",
]

AGENTS: dict[str, type[Agent]] = {
    "openai-chat": Chat,
    "anthropic-messages": Claude,
    "openai-responses": Responses,
    "agentscope": Scope,
    "ag-kit": Kit,
    "ag-kit-2": Kit2,
    "ag-ui": Agui,
}
