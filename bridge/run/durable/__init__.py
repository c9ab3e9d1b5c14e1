"""Durable runs: queued in a store, driven by any process with a free slot, read by any number of readers."""

from bridge.run.durable.answer_stream import response_now, run_of, settle
from bridge.run.durable.driver import SUPERSEDED, TAKEN_OVER
from bridge.run.durable.log import LogReader
from bridge.run.durable.plan import RunPlan
from bridge.run.durable.runs import Runs, RunSlots, fingerprint
from bridge.run.durable.subscription import START, Cursor, Subscription
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
