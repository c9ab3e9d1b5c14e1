"""A run from request to last event: backends behind one interface, stages, tries, timeouts, cancellation."""

from bridge.pipeline.backend import Backend, Call, CallInfo, Retry, Timeouts
from bridge.pipeline.run import Run, failed_at_once
from bridge.pipeline.stages import Stage, StageContext, StageFactory

__all__ = [
    "Backend",
    "Call",
    "CallInfo",
    "Retry",
    "Run",
    "Stage",
    "StageContext",
    "StageFactory",
    "Timeouts",
    "failed_at_once",
]
