"""`Pair`: what follows from the capabilities of a client's dialect and a backend's, whatever is asked."""

from __future__ import annotations

import re
from functools import lru_cache

from bridge.contract import CallSignatures, Capabilities, Feature, RunsTools, Support
from bridge.model import HistoryMode


class Pair:
    """The dialects of a client and of a backend. `pair_of` makes one for each two capabilities, not for each request.

    Attributes:
        context_as_message: The client's context becomes a message, since the backend has no field for it.
        threads_travel: The backend gets the id of the thread.
        only_new_messages: The backend gets only new messages.
        legal_name: The match of a tool name that the backend takes; None where every name is sent as it is.
        may_ask: The client can be asked, and answers with its next request.
        may_ask_with_memory: The same, where the bridge keeps the conversation.
        recalls: Runs of the backend may wait for an answer that the client cannot address.
        shows_awaited_calls: Calls whose results the backend waits for are shown as calls of the client.
        withholds_calls: The client would run again what the backend may have run.
        holds_offered: The backend may run even the calls of tools that the client offered.
        runs_others: The backend runs all other calls, or asks.
        drops_results: The client is not shown the results of calls.
        wraps_signatures: Opaque values of the backend's vendor are wrapped, since the client's is another one.
        seals_signatures: Reasoning is wrapped, or gets a signature.
        call_signatures: Where the client returns the signature of a call, if that has to be moved or noted; else None.
        has_stages: Answers pass stages by themselves, for one of the reasons above.
        loses_signatures: A signature that the client does not return is lost: the bridge has no copy.
    """

    def __init__(self, front: Capabilities, back: Capabilities) -> None:
        self.context_as_message = back.request(Feature.CONTEXT) is Support.DROP
        self.threads_travel = back.request(Feature.THREAD_ID) is Support.EXACT
        self.only_new_messages = back.takes_news
        # With one dialect on both sides, the backend decides.
        pattern = back.tool_names if front is not back else None
        self.legal_name = re.compile(pattern).fullmatch if pattern is not None else None
        asked = front.answer(Feature.INTERRUPT)
        self.may_ask = asked is Support.EXACT
        self.may_ask_with_memory = asked is not Support.DROP
        takes_answers = back.request(Feature.RESUME) in (Support.EXACT, Support.TEXT)
        self.recalls = takes_answers and not (self.may_ask and front.names_interrupts)

        self.shows_awaited_calls = back.awaits_results and front.answer(Feature.TOOL_CALL) is not Support.DROP
        runs = back.runs_tools
        self.withholds_calls = front.client_runs_calls and runs is not RunsTools.NEVER
        self.holds_offered = runs in (RunsTools.ANY, RunsTools.BOTH)
        asks = back.answer(Feature.INTERRUPT) is Support.EXACT
        self.runs_others = runs in (RunsTools.UNLISTED, RunsTools.BOTH) and asks
        self.drops_results = front.answer(Feature.TOOL_RESULT) is Support.DROP

        self.wraps_signatures = bool(back.vendor and front.vendor not in ("", back.vendor))
        self.seals_signatures = front.wants_signatures or self.wraps_signatures
        self.loses_signatures = front.history is HistoryMode.FULL  # otherwise the bridge stores the conversation
        place = front.call_signatures
        arrives = place in (CallSignatures.IN_PART, back.call_signatures)
        is_moved = self.loses_signatures or place is CallSignatures.IN_REASONING
        self.call_signatures = place if back.call_signatures.with_calls and not arrives and is_moved else None
        self.has_stages = (
            self.shows_awaited_calls
            or self.withholds_calls
            or self.seals_signatures
            or self.call_signatures is not None
        )


@lru_cache(maxsize=1024)
def pair_of(front: Capabilities, back: Capabilities) -> Pair:
    """Return what follows from these capabilities, worked out once."""
    return Pair(front, back)
