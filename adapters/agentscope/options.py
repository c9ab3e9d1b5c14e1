"""The options of a route or a backend of these dialects."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options, SingleRunOptions
from bridge.toolkit.units import OffWord

CallType = Literal["plugin_call", "function_call"]
_REASONING = (
    "Type of reasoning messages: REASONING, which the documented enumeration lacks, or MESSAGE."
    " For: parsers that reject types outside of that enumeration (message)."
)


class FrontOptions(SingleRunOptions):
    """Options of an AgentScope route."""

    call_type: CallType = Field(
        "plugin_call",
        description="Message type of ordinary tool calls; the web frontend shows only plugin_call."
        " For: applications with tools of the client, which the web frontend should not show.",
    )
    events: Literal["drop", "messages"] = Field(
        "drop",
        description="messages: send state, steps and custom events as messages of types state, step and custom."
        " For: frontends of your own that show an agent's state or steps.",
    )
    keepalive: OffWord[Literal["comment", "message", "off"]] = Field(
        "comment",
        description="What is sent on an idle stream: an SSE comment, a heartbeat message, or nothing."
        " For: clients that reset their time limit at messages only, or do not skip comments.",
    )
    content_filter: Literal["completed", "rejected", "failed"] = Field(
        "completed",
        description="Status of an answer that a content filter stopped."
        " For: clients that distinguish a filtered answer by its status.",
    )
    canceled: Literal["canceled", "failed"] = Field(
        "canceled",
        description="Status of an answer that was canceled; failed ends the generating state of every web frontend."
        " For: several tabs that read one run.",
    )


class JavaFrontOptions(FrontOptions):
    """Options of a route with the Java form: it has no metadata, only statuses and types."""

    call_type: CallType = Field(
        "function_call",
        description="Message type of calls of function tools. For: frontends that show plugin calls only.",
    )
    content_filter: Literal["completed", "rejected", "failed"] = Field(
        "rejected",
        description="Status of an answer that a content filter stopped. For: web frontends, which wait on at rejected.",
    )
    reasoning: Literal["reasoning", "message"] = Field("reasoning", description=_REASONING)


class BackOptions(Options):
    """Options of an AgentScope backend."""

    path: str = Field(
        "/process",
        description="Path of the chat endpoint below the base URL. For: an AgentApp with another endpoint_path.",
    )
    stop_path: str | None = Field(
        None,
        description="Path below the base URL at which a canceled run is stopped, in addition to closing the "
        "connection."
        " For: an AgentApp that runs on when its client leaves.",
    )
    call_type: CallType = Field(
        "plugin_call",
        description="Message type of ordinary tool calls in the history."
        " For: agents that expect function calls in their history.",
    )


class JavaBackOptions(BackOptions):
    """Options of a backend with the Java form."""

    call_type: CallType = Field(
        "function_call",
        description="Message type of calls of function tools in the history."
        " For: agents that expect plugin calls in their history.",
    )
    reasoning: Literal["reasoning", "message"] = Field("reasoning", description=_REASONING)
