"""The capabilities of an agent, as clients of AG-UI know them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.contract import Capabilities, Feature, Support

_CARRIED = (Support.EXACT, Support.CUSTOM)


def description(name: str, backends: Sequence[Capabilities]) -> dict[str, Any]:
    """An `AgentCapabilities` object: what holds for each of the backends, by what their dialects carry."""

    def every(holds: Callable[[Capabilities], bool]) -> bool:
        return all(map(holds, backends))

    def tells(feature: Feature) -> bool:
        return every(lambda back: back.answer(feature) in _CARRIED)

    def takes(*features: Feature) -> bool:
        return every(lambda back: any(back.request(feature) in _CARRIED for feature in features))

    waits, thinks = takes(Feature.RESUME), tells(Feature.REASONING)
    inputs = {
        "image": takes(Feature.IMAGE_URL, Feature.IMAGE_INLINE),
        "audio": takes(Feature.AUDIO_URL, Feature.AUDIO_INLINE),
        "video": takes(Feature.VIDEO_URL, Feature.VIDEO_INLINE),
        "file": takes(Feature.FILE_URL, Feature.FILE_INLINE),
    }
    return {
        "identity": {"name": name},
        "transport": {"streaming": True, "websocket": False, "httpBinary": False, "resumable": False},
        "tools": {"supported": takes(Feature.TOOLS), "clientProvided": takes(Feature.TOOLS)},
        "output": {"structuredOutput": takes(Feature.RESPONSE_FORMAT)},
        "state": {
            "snapshots": tells(Feature.STATE),
            "deltas": tells(Feature.STATE),
            "memory": every(lambda back: back.keeps_history),
        },
        "reasoning": {"supported": thinks, "streaming": thinks, "encrypted": tells(Feature.REASONING_SIGNATURE)},
        "multimodal": {"input": {**inputs, "pdf": inputs["file"]}, "output": {"image": False, "audio": False}},
        "humanInTheLoop": {"supported": waits, "interrupts": waits, "approvals": waits},
    }
