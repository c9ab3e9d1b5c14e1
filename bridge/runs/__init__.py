"""Durable runs: queued in a store, driven by any process with a free slot, read by any number of readers."""

from bridge.runs.log import LogReader
from bridge.runs.plan import RunPlan
from bridge.runs.responses import response_now, run_of, settle
from bridge.runs.service import Runs, RunSlots, fingerprint
from bridge.runs.subscription import START, Cursor, Subscription
from bridge.runs.worker import SUPERSEDED, TAKEN_OVER
from bridge.stores import Ownership, RunKey, RunRecord, RunState, ThreadBusy

__all__ = [
    "START",
    "SUPERSEDED",
    "TAKEN_OVER",
    "Cursor",
    "LogReader",
    "Ownership",
    "RunKey",
    "RunPlan",
    "RunRecord",
    "RunSlots",
    "RunState",
    "Runs",
    "Subscription",
    "ThreadBusy",
    "fingerprint",
    "response_now",
    "run_of",
    "settle",
]
