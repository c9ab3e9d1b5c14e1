"""Every form of a request, as backends of three model APIs get it from clients of the others, by the SDKs' types.

`wire_requests.json` has the requests, by the dialect of the client and what is special in each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from bridge.errors import Unsupported
from bridge.translation.library import Translator
from tests.cases import all_cases
from tests.sdk_types import faults

REQUESTS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "wire_requests.json").read_text())
TYPES = {
    "openai-chat": CompletionCreateParamsNonStreaming,
    "openai-responses": ResponseCreateParamsNonStreaming,
    "anthropic-messages": MessageCreateParamsNonStreaming,
}
LACKING = {
    # What other servers of chat completions read.
    "reasoning_content: unknown in ChatCompletionAssistantMessageParam",
    "extra_content: unknown in ChatCompletionMessageFunctionToolCallParam",
    # Older versions of the API have them, and the option `version` says which one it is.
    "temperature: unknown in MessageCreateParamsNonStreaming",
    "top_p: unknown in MessageCreateParamsNonStreaming",
}
"""Fields that the types lack and servers take."""


@pytest.mark.parametrize("back", TYPES)
def test_requests_are_written_as_the_types_of_the_backend_demand(back: str) -> None:
    with all_cases() as case:
        for front, requests in REQUESTS.items():
            for name, body in requests.items():
                # The Responses API documents audio as input, and its SDK has no type for it in this place.
                if front != back and not (back == "openai-responses" and "audio" in name):
                    with case((front, name)):
                        assert found(front, back, body) == []


def found(front: str, back: str, body: Any) -> list[str]:
    """What is wrong with the body that the backend gets; nothing if the request is refused, since it cannot have it."""
    translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
    path = "/v1beta/models/m:generateContent" if front == "gemini" else ""
    try:
        sent = json.loads(translator.request(json.dumps(body).encode(), client=front, path=path))
    except Unsupported:
        return []
    return [fault for fault in faults(sent, TYPES[back]) if fault.rpartition(".")[2] not in LACKING]


def test_a_request_that_the_types_refuse_is_noticed() -> None:
    said = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "txt": "x"}]}]}
    assert faults(said, CompletionCreateParamsNonStreaming) == [
        ".messages[0].content[0].text: missing in ChatCompletionContentPartTextParam",
        ".messages[0].content[0].txt: unknown in ChatCompletionContentPartTextParam",
    ]
    assert faults({"messages": []}, CompletionCreateParamsNonStreaming) == [
        ".model: missing in CompletionCreateParamsNonStreaming"
    ]
