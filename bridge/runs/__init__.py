"""Asynchronous runs: started here, driven by whoever is free, read from anywhere, as often as one likes."""

from bridge.runs.answers import AnswerStream, look, run_of, settle
from bridge.runs.log import Batch, LogReader, expired
from bridge.runs.plan import RunPlan
from bridge.runs.service import Runs, fingerprint
from bridge.runs.subscription import START, Cursor, Subscription
from bridge.runs.worker import Drive
from bridge.stores import Ownership, RunKey, RunRecord, RunState

__all__ = [
    "START",
    "AnswerStream",
    "Batch",
    "Cursor",
    "Drive",
    "LogReader",
    "Ownership",
    "RunKey",
    "RunPlan",
    "RunRecord",
    "RunState",
    "Runs",
    "Subscription",
    "expired",
    "fingerprint",
    "look",
    "run_of",
    "settle",
]
