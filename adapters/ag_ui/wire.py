"""Constants and small readers that both directions share."""

from __future__ import annotations

from typing import Any

from bridge.errors import Failure
from bridge.model import Extras, FinishReason, Request
from bridge.model.jsontext import text_of
from bridge.toolkit.check import Spelling
from bridge.toolkit.words import end_of

NAME = "ag-ui"
VERSION = "1.0"
UNNAMED = "on_interrupt"
TOOL_INPUT = "tool-input-available"
"""The CUSTOM event for which TanStack AI runs a tool of the client; it waits for no other sign of a call."""
"""The name of CUSTOM events that ask without an id, and the beginning of the ids that such questions get. They are
answered in `forwardedProps`.
"""

OURS = "dialect-bridge"
RESULT_ERROR = "isError"
"""The key in an event's metadata for a tool's result that is an error."""
"""The key in `metadata` for what the wire has no field for, and the prefix of a RAW event's source."""


# Python agents that write their models without aliases, and AG-Kit's RUN_ERROR, use the names with underscores.
_ALIASES: dict[str, str] = {
    "thread_id": "threadId",
    "run_id": "runId",
    "parent_run_id": "parentRunId",
    "forwarded_props": "forwardedProps",
    "protocol_version": "protocolVersion",
    "message_id": "messageId",
    "parent_message_id": "parentMessageId",
    "tool_calls": "toolCalls",
    "tool_call_id": "toolCallId",
    "tool_call_name": "toolCallName",
    "encrypted_value": "encryptedValue",
    "entity_id": "entityId",
    "mime_type": "mimeType",
    "interrupt_id": "interruptId",
    "activity_type": "activityType",
    "subagent_run_id": "subagentRunId",
    "step_name": "stepName",
    "response_schema": "responseSchema",
    "expires_at": "expiresAt",
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "total_tokens": "totalTokens",
    "reasoning_tokens": "reasoningTokens",
    "cached_input_tokens": "cachedInputTokens",
}

NOTED = {str(r): r for r in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER)}
"""The finish reasons without an outcome of their own, which are sent as `metadata.finish_reason`."""


camel = Spelling(_ALIASES)
"""Returns an object with its fields in camelCase."""


def own(extras: Extras | None) -> dict[str, Any]:
    """Return this dialect's extras of a part or an event; an empty dict if there are none."""
    return extras.get(NAME) or {} if extras else {}


def noted(values: dict[str, Any]) -> Extras | None:
    """Return `extras` with these values for this dialect, None if there are none."""
    given = {k: v for k, v in values.items() if v is not None}
    return {NAME: given} if given else None


def attached(event: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that any event may carry, owner and metadata, without those that are read elsewhere."""
    metadata = event.get("metadata")
    notes = metadata if isinstance(metadata, dict) else {}
    if is_result_error(event):
        notes = {k: v for k, v in notes.items() if k != OURS}
    if finish_in(event) is not None:
        notes = {k: v for k, v in notes.items() if k != "finish_reason"}
    return {"subagentRunId": text_of(event.get("subagentRunId")) or None, "metadata": notes or None}


def is_result_error(event: dict[str, Any]) -> bool:
    """Return whether the result of a tool is an error, according to the bridge's metadata."""
    metadata = event.get("metadata")
    ours = metadata.get(OURS) if isinstance(metadata, dict) else None
    return isinstance(ours, dict) and ours.get(RESULT_ERROR) is True


def speaks_new(request: Request | None) -> bool:
    """Return whether the client uses 1.0, in which it names a version. Without its request, nothing is left out."""
    if request is None:
        return True
    version = request.extra(NAME).get("protocolVersion")
    return version is not None and not (isinstance(version, str) and version.startswith("0."))


def finish_in(event: dict[str, Any]) -> FinishReason | Failure | None:
    """The end other than a normal one that an event's metadata names."""
    metadata = event.get("metadata")
    word = metadata.get("finish_reason") if isinstance(metadata, dict) else None
    end = end_of(word, answered=True)
    return None if end in (FinishReason.STOP, FinishReason.TOOL_CALLS) else end
