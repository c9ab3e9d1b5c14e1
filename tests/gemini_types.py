"""What Gemini answers with: the fields and words of `google-genai`, whose types are not installed with the others."""

from __future__ import annotations

from typing import Any, Literal, Required, TypedDict

FinishWord = Literal[
    "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII",
    "MALFORMED_FUNCTION_CALL", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_OTHER", "NO_IMAGE",
    "IMAGE_RECITATION", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE",
    "MALFORMED_RESPONSE", "ESCALATION", "CONTINUATION", "MODEL_ARMOR",
]  # fmt: skip


class Blob(TypedDict, total=False):
    mimeType: Required[str]
    data: Required[str]
    displayName: str


class FileData(TypedDict, total=False):
    fileUri: Required[str]
    mimeType: str
    displayName: str


class FunctionCall(TypedDict, total=False):
    name: Required[str]
    args: Required[dict[str, Any]]
    id: str


class ExecutableCode(TypedDict, total=False):
    code: Required[str]
    language: Required[Literal["PYTHON"]]
    id: str


class CodeExecutionResult(TypedDict, total=False):
    outcome: Required[Literal["OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED"]]
    output: str
    id: str


class Part(TypedDict, total=False):
    text: str
    thought: bool
    thoughtSignature: str
    inlineData: Blob
    fileData: FileData
    functionCall: FunctionCall
    executableCode: ExecutableCode
    codeExecutionResult: CodeExecutionResult


class Content(TypedDict):
    parts: list[Part]
    role: Literal["model"]


class Candidate(TypedDict, total=False):
    content: Required[Content]
    index: Required[int]
    finishReason: FinishWord
    finishMessage: str
    avgLogprobs: float
    tokenCount: int
    citationMetadata: dict[str, Any]
    groundingMetadata: dict[str, Any]
    logprobsResult: dict[str, Any]
    safetyRatings: list[dict[str, Any]]
    urlContextMetadata: dict[str, Any]


class TokenCount(TypedDict, total=False):
    modality: Required[Literal["TEXT", "IMAGE", "VIDEO", "AUDIO", "DOCUMENT"]]
    tokenCount: int


class Usage(TypedDict, total=False):
    estimated: bool
    promptTokenCount: Required[int]
    candidatesTokenCount: Required[int]
    totalTokenCount: Required[int]
    cachedContentTokenCount: int
    thoughtsTokenCount: int
    toolUsePromptTokenCount: int
    promptTokensDetails: list[TokenCount]
    candidatesTokensDetails: list[TokenCount]
    cacheTokensDetails: list[TokenCount]
    toolUsePromptTokensDetails: list[TokenCount]
    trafficType: str


class Feedback(TypedDict, total=False):
    blockReason: Required[str]
    blockReasonMessage: str
    safetyRatings: list[dict[str, Any]]


class Response(TypedDict, total=False):
    candidates: list[Candidate]
    promptFeedback: Feedback
    usageMetadata: Usage
    modelVersion: Required[str]
    responseId: Required[str]
    createTime: str
