"""A run from request to last event: backends behind one interface, stages, attempts, timeouts, cancellation.

The names are loaded at first use: who only translates needs the stages, and for them no event loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.pipeline.attempt import BackendAttempt
    from bridge.pipeline.backend import Backend, Call, CallInfo, Timeouts
    from bridge.pipeline.breaker import Breaker
    from bridge.pipeline.group import Group
    from bridge.pipeline.retries import Retry, failed_at_once
    from bridge.pipeline.run import Run
    from bridge.pipeline.stages import StageContext, StageFactory
    from bridge.translation import Stage

__all__ = [
    "Backend",
    "BackendAttempt",
    "Breaker",
    "Call",
    "CallInfo",
    "Group",
    "Retry",
    "Run",
    "Stage",
    "StageContext",
    "StageFactory",
    "Timeouts",
    "failed_at_once",
]

_HOMES = {
    **dict.fromkeys(("Backend", "Call", "CallInfo", "Timeouts"), "backend"),
    "Breaker": "breaker",
    "Group": "group",
    "Run": "run",
    **dict.fromkeys(("Stage", "StageContext", "StageFactory"), "stages"),
    **dict.fromkeys(("Retry", "failed_at_once"), "retries"),
    "BackendAttempt": "attempt",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bridge.pipeline' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"bridge.pipeline.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
