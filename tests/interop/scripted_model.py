"""A model for the agents of `test_own_agents.py`: it asks for a tool, and answers from its result."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bridge import Event, Part, Request, ToolCall, ToolResult, UsageReported

WORDS = ("I look.", "It is sunny there.", "You are welcome.")
heard: list[Request] = []


async def run(request: Request) -> AsyncIterator[Event | Part | str]:
    heard.append(request)
    if any("Thanks." in each.text for each in request.messages):
        said = WORDS[2]
    else:
        has_result = any(isinstance(part, ToolResult) for part in request.messages[-1].parts)
        said = WORDS[1] if has_result else WORDS[0]
    for letter in said:
        yield letter
    if said == WORDS[0]:
        yield ToolCall("call_1", "get_weather", '{"city": "Paris"}')
    yield UsageReported(input=10, output=5)
