"""The capabilities of the protocol."""

from __future__ import annotations

from bridge.codec import ANSWER_FEATURES, Capabilities, Feature, RunsTools, entries
from bridge.dialects.acp.back_content import REQUESTS
from bridge.model import HistoryMode

_NO_UPDATE = "the protocol has no event for it"
_NO_FIELD = "the protocol has no field for it"

CAPABILITIES = Capabilities(
    answers=entries(
        ANSWER_FEATURES,
        text={Feature.REFUSAL: "a message of the agent", Feature.DATA: "JSON as text"},
        drop={
            Feature.REASONING_SIGNATURE: _NO_FIELD,
            Feature.TOOL_ORIGIN: _NO_FIELD,
            Feature.STATE: _NO_UPDATE,
            Feature.STEP: _NO_UPDATE,
            Feature.CUSTOM: _NO_UPDATE,
            Feature.RAW: "clients drop updates of an unknown type",
            Feature.CHOICES: "one answer; only the first choice is sent",
            Feature.MODEL: _NO_FIELD,
        },
    ),
    requests=REQUESTS,
    history=HistoryMode.DELTA,
    # An editor shows what the agent did, and runs nothing of it.
    client_runs_calls=False,
    # Failures are JSON-RPC errors, which have no place for it.
    usage_on_failure=False,
    exact_arguments=False,
    runs_tools=RunsTools.ANY,
    # As a backend, an agent names its sessions and remembers them.
    keeps_history=True,
    names_threads=True,
)
