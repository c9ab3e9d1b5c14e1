"""The options of a route or a backend of these dialects."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options, SingleRunOptions
from bridge.toolkit.units import OffWord

CallType = Literal["plugin_call", "function_call"]
_REASONING = "Type of reasoning messages: REASONING, which the documented enumeration lacks, or MESSAGE."


class FrontOptions(SingleRunOptions):
    """Options of an AgentScope route."""

    call_type: CallType = Field(
        "plugin_call", description="Message type of ordinary tool calls; the web frontend shows only plugin_call."
    )
    arguments: Literal["completed", "deltas", "snapshots"] = Field(
        "completed",
        description="deltas: stream fragments of arguments; snapshots: stream the growing arguments (quadratic in"
        " bytes).",
    )
    events: Literal["drop", "messages"] = Field(
        "drop", description="messages: send state, steps and custom events as messages of types state, step and custom."
    )
    keepalive: OffWord[Literal["comment", "message", "off"]] = Field(
        "comment", description="What is sent on an idle stream: an SSE comment, a heartbeat message, or nothing."
    )
    length: Literal["completed", "incomplete"] = Field(
        "completed", description="Status of an answer that reached its token limit."
    )
    content_filter: Literal["completed", "rejected", "failed"] = Field(
        "completed", description="Status of an answer that a content filter stopped."
    )
    canceled: Literal["canceled", "failed"] = Field(
        "canceled",
        description="Status of an answer that was canceled; failed ends the generating state of every web frontend.",
    )
    honour_stream: bool = Field(
        False,
        description="true: answer a request with stream:false with one JSON object. The reference server always "
        "streams.",
    )


class JavaFrontOptions(FrontOptions):
    """Options of a route with the Java form: it has no metadata, only statuses and types."""

    call_type: CallType = Field("function_call", description="Message type of calls of function tools.")
    length: Literal["completed"] = Field(
        "completed",
        description="Status of an answer that reached its token limit; this version has no other status for it.",
    )
    content_filter: Literal["completed", "rejected", "failed"] = Field(
        "rejected", description="Status of an answer that a content filter stopped."
    )
    reasoning: Literal["reasoning", "message"] = Field("reasoning", description=_REASONING)


class BackOptions(Options):
    """Options of an AgentScope backend."""

    path: str = Field("/process", description="Path of the chat endpoint below the base URL.")
    stop_path: str | None = Field(
        None,
        description="Path below the base URL at which a canceled run is stopped, in addition to closing the "
        "connection.",
    )
    call_type: CallType = Field("plugin_call", description="Message type of ordinary tool calls in the history.")


class JavaBackOptions(BackOptions):
    """Options of a backend with the Java form."""

    call_type: CallType = Field("function_call", description="Message type of calls of function tools in the history.")
    reasoning: Literal["reasoning", "message"] = Field("reasoning", description=_REASONING)
