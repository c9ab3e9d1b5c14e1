"""Strict models of what the official documents of the three model APIs require in answers.

A field without a default has to be written, null included where its type allows null; other fields may stand beside
it. The SDKs' own types are laxer: they mark as optional what the documents require. Made from the OpenAPI documents of
Open Responses, Anthropic and OpenAI.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Tag, TypeAdapter

Json = dict[str, Any]


class Strict(BaseModel):
    """An object of a wire: every declared field is there, in its very type."""

    model_config = ConfigDict(strict=True, extra="allow")


def by_type(*known: str) -> Discriminator:
    """Tells the objects of a list apart by their `type`; those of other types may hold anything."""

    def tag(value: Any) -> str:
        kind = value.get("type") if isinstance(value, dict) else None
        return kind if kind in known else "other"

    return Discriminator(tag)


class Typed(Strict):
    type: str


Other = Annotated[Typed, Tag("other")]


def _whole(value: Any) -> Any:
    """As in JSON, where 1.0 and 1 are one number; the SDK reads times as the former."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Time = Annotated[int, BeforeValidator(_whole)]


# ------------------------------------------------------------------ Responses


class InputDetails(Strict):
    cached_tokens: int


class OutputDetails(Strict):
    reasoning_tokens: int


class ResponsesUsage(Strict):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class OutputText(Strict):
    type: Literal["output_text"]
    text: str
    annotations: list[Json]


class RefusalPart(Strict):
    type: Literal["refusal"]
    refusal: str


ContentPart = Annotated[
    Annotated[OutputText, Tag("output_text")] | Annotated[RefusalPart, Tag("refusal")] | Other,
    by_type("output_text", "refusal"),
]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class MessageItem(Strict):
    type: Literal["message"]
    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: list[ContentPart]


class FunctionCallItem(Strict):
    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class ReasoningItem(Strict):
    type: Literal["reasoning"]
    id: str
    summary: list[Typed]


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Other,
    by_type("message", "function_call", "reasoning"),
]


class FunctionTool(Strict):
    type: Literal["function"]
    name: str
    description: str | None
    parameters: Json | None
    strict: bool | None


Tool = Annotated[Annotated[FunctionTool, Tag("function")] | Other, by_type("function")]


class JsonSchemaFormat(Strict):
    type: Literal["json_schema"]
    name: str
    description: str | None
    schema_: Json | None = None
    strict: bool


class TextConfig(Strict):
    format: Annotated[Annotated[JsonSchemaFormat, Tag("json_schema")] | Other, by_type("json_schema")]


class ReasoningConfig(Strict):
    effort: str | None
    summary: str | None


class ResponseError(Strict):
    code: str
    message: str


class IncompleteDetails(Strict):
    reason: str


class ResponseObject(Strict):
    id: str
    object: Literal["response"]
    created_at: Time
    completed_at: Time | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    incomplete_details: IncompleteDetails | None
    model: str
    previous_response_id: str | None
    instructions: str | None
    output: list[Item]
    error: ResponseError | None
    tools: list[Tool]
    tool_choice: Literal["none", "auto", "required"] | Typed
    truncation: Literal["auto", "disabled"]
    parallel_tool_calls: bool
    text: TextConfig
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    temperature: float
    reasoning: ReasoningConfig | None
    usage: ResponsesUsage | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool
    background: bool
    service_tier: str
    metadata: dict[str, str]
    safety_identifier: str | None
    prompt_cache_key: str | None
    user: str | None


def judge_response(value: Any) -> None:
    """One response object. An answer that came to its end has a usage, and one that is complete the time of it."""
    response = ResponseObject.model_validate(value)
    if response.status in ("completed", "incomplete"):
        assert response.usage is not None
    assert (response.completed_at is not None) == (response.status == "completed")


# ------------------------------------------------------------------ Messages


class CacheCreation(Strict):
    ephemeral_1h_input_tokens: int
    ephemeral_5m_input_tokens: int


class ServerToolUse(Strict):
    web_fetch_requests: int
    web_search_requests: int


class ThinkingTokens(Strict):
    thinking_tokens: int


class DeltaUsage(Strict):
    cache_creation_input_tokens: int | None
    cache_read_input_tokens: int | None
    input_tokens: int | None
    output_tokens: int
    output_tokens_details: ThinkingTokens | None
    server_tool_use: ServerToolUse | None


class MessageUsage(Strict):
    cache_creation: CacheCreation | None
    cache_creation_input_tokens: int | None
    cache_read_input_tokens: int | None
    inference_geo: str | None
    input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens | None
    server_tool_use: ServerToolUse | None
    service_tier: Literal["standard", "priority", "batch"] | None


class TextBlock(Strict):
    type: Literal["text"]
    text: str
    citations: list[Typed] | None


class ThinkingBlock(Strict):
    type: Literal["thinking"]
    thinking: str
    signature: str


class RedactedBlock(Strict):
    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(Strict):
    type: Literal["tool_use"]
    id: str
    name: str
    input: Json
    caller: Typed


Block = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[RedactedBlock, Tag("redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Other,
    by_type("text", "thinking", "redacted_thinking", "tool_use"),
]


class StopDetails(Strict):
    type: Literal["refusal"]
    category: str | None
    explanation: str | None


class MessageEnd(Strict):
    container: Json | None
    stop_details: StopDetails | None
    stop_reason: str | None
    stop_sequence: str | None


class MessageObject(MessageEnd):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[Block]
    model: str
    usage: MessageUsage


class MessageStart(Strict):
    type: Literal["message_start"]
    message: MessageObject


class BlockStart(Strict):
    type: Literal["content_block_start"]
    index: int
    content_block: Block


class BlockDelta(Strict):
    type: Literal["content_block_delta"]
    index: int
    delta: Typed


class BlockStop(Strict):
    type: Literal["content_block_stop"]
    index: int


class MessageDelta(Strict):
    type: Literal["message_delta"]
    delta: MessageEnd
    usage: DeltaUsage


class MessagesError(Strict):
    type: str
    message: str


class ErrorObject(Strict):
    type: Literal["error"]
    error: MessagesError
    request_id: str | None


_MESSAGES: dict[str, type[Strict]] = {
    "message_start": MessageStart,
    "content_block_start": BlockStart,
    "content_block_delta": BlockDelta,
    "content_block_stop": BlockStop,
    "message_delta": MessageDelta,
    "error": ErrorObject,
}


def judge_message_event(value: Json) -> None:
    """One event of a stream; those without a model of their own need a type only."""
    _MESSAGES.get(value["type"], Typed).model_validate(value)


def judge_message(value: Any) -> None:
    """A message in one piece."""
    assert MessageObject.model_validate(value).stop_reason is not None


# ------------------------------------------------------------------ chat completions


class ChatUsage(Strict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CalledFunction(Strict):
    name: str
    arguments: str


class FunctionCall(Strict):
    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Strict):
    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    annotations: list[Json]
    tool_calls: list[Annotated[Annotated[FunctionCall, Tag("function")] | Other, by_type("function")]] = []


FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]


class ChatChoice(Strict):
    finish_reason: FinishReason
    index: int
    message: ChatMessage
    logprobs: Json | None


class Completion(Strict):
    id: str
    choices: list[ChatChoice]
    created: int
    model: str
    object: Literal["chat.completion"]
    usage: ChatUsage


class DeltaCall(Strict):
    index: int


class ChatDelta(Strict):
    tool_calls: list[DeltaCall] = []


class ChunkChoice(Strict):
    delta: ChatDelta
    finish_reason: FinishReason | None
    index: int
    logprobs: Json | None


class Chunk(Strict):
    id: str
    choices: list[ChunkChoice]
    created: int
    model: str
    object: Literal["chat.completion.chunk"]
    usage: ChatUsage | None = None


class ChatError(Strict):
    message: str
    type: str
    param: str | None
    code: str | None


class ChatFailure(Strict):
    error: ChatError


def judge_completion(value: Any) -> None:
    """A completion in one piece."""
    assert Completion.model_validate(value).choices


def judge_chunks(values: list[Json]) -> None:
    """The chunks of a stream whose client asked for its usage, which comes last, once, beside no choice."""
    chunks = [TypeAdapter(ChatFailure if "error" in value else Chunk).validate_python(value) for value in values]
    if isinstance(chunks[-1], ChatFailure):
        assert not any(isinstance(chunk, ChatFailure) for chunk in chunks[:-1])
        return
    assert [n for n, chunk in enumerate(chunks) if isinstance(chunk, Chunk) and chunk.usage] == [len(chunks) - 1]
    assert chunks[-1].choices == []
