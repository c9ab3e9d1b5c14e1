"""dialect-bridge: any agent or LLM frontend protocol to any backend protocol, streamed.

The public names of the engine. They are loaded at first use: `import bridge` alone brings in neither aiohttp nor
grpc nor pydantic.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bridge.version import __version__ as __version__

if TYPE_CHECKING:
    from bridge.engine.bridge import Bridge
    from bridge.errors import (
        BackendError,
        BridgeError,
        Canceled,
        ConfigError,
        ErrorCode,
        Failure,
        RequestError,
        Unsupported,
    )
    from bridge.model.events import (
        ArgsDelta,
        ContentAdded,
        Custom,
        Event,
        FinishReason,
        Heartbeat,
        Interrupted,
        MessageEnded,
        MessageStarted,
        PartEnded,
        PartKind,
        PartStarted,
        Raw,
        ReasoningDelta,
        RunFailed,
        RunFinished,
        RunStarted,
        StateChanged,
        StateOp,
        StepEnded,
        StepStarted,
        TextDelta,
        ToolResulted,
        UsageReported,
    )
    from bridge.model.fold import Answer, fold, unfold
    from bridge.model.parts import (
        Data,
        FileRef,
        Inline,
        Media,
        MediaKind,
        Message,
        Origin,
        Part,
        Reasoning,
        Refusal,
        Text,
        ToolCall,
        ToolResult,
        Url,
    )
    from bridge.model.pretty import pretty
    from bridge.model.request import HistoryMode, Request, ResponseFormat, Resume, Sampling, Tool, ToolChoice, ToolMode
    from bridge.translation.library import Translator, decode, encode, translate

__all__ = [
    "Answer",
    "ArgsDelta",
    "BackendError",
    "Bridge",
    "BridgeError",
    "Canceled",
    "ConfigError",
    "ContentAdded",
    "Custom",
    "Data",
    "ErrorCode",
    "Event",
    "Failure",
    "FileRef",
    "FinishReason",
    "Heartbeat",
    "HistoryMode",
    "Inline",
    "Interrupted",
    "Media",
    "MediaKind",
    "Message",
    "MessageEnded",
    "MessageStarted",
    "Origin",
    "Part",
    "PartEnded",
    "PartKind",
    "PartStarted",
    "Raw",
    "Reasoning",
    "ReasoningDelta",
    "Refusal",
    "Request",
    "RequestError",
    "ResponseFormat",
    "Resume",
    "RunFailed",
    "RunFinished",
    "RunStarted",
    "Sampling",
    "StateChanged",
    "StateOp",
    "StepEnded",
    "StepStarted",
    "Text",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolMode",
    "ToolResult",
    "ToolResulted",
    "Translator",
    "Unsupported",
    "Url",
    "UsageReported",
    "decode",
    "encode",
    "fold",
    "pretty",
    "translate",
    "unfold",
]

# Everything that is not named here comes from `bridge.model`.
_HOMES = {
    "Bridge": "bridge.engine.bridge",
    **dict.fromkeys(("Translator", "decode", "encode", "translate"), "bridge.translation.library"),
    **dict.fromkeys(
        (
            "BackendError",
            "BridgeError",
            "Canceled",
            "ConfigError",
            "ErrorCode",
            "Failure",
            "RequestError",
            "Unsupported",
        ),
        "bridge.errors",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'bridge' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "bridge.model")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
