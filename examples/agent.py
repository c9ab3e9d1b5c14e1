"""Your own async generator as an agent, served in every dialect.

    dialect-bridge serve examples/configs/agent.yaml        # from the top of the repository
    dialect-bridge chat http://127.0.0.1:8080/v1 "What is the weather in Paris?" --dialect openai-chat

Run alone, it prints what it yields:

    python examples/agent.py
"""

import asyncio
from collections.abc import AsyncIterator

from bridge import Event, Message, Part, ReasoningDelta, Request, Text, ToolCall, ToolResult


async def run(request: Request) -> AsyncIterator[Event | Part | str]:
    """Yield strings for text, whole parts, or events for streamed parts; the bridge adds starts and ends."""
    results = [part for part in request.messages[-1].parts if isinstance(part, ToolResult)]
    if results:
        yield "It is "
        for part in results[0].parts:
            if isinstance(part, Text):
                yield part.text
        return
    for word in ("They ", "ask ", "for ", "weather."):
        yield ReasoningDelta("thought", word)
    for word in ("Let ", "me ", "look."):
        await asyncio.sleep(0.01)
        yield word
    yield ToolCall("call_1", "get_weather", '{"city": "Paris"}')


async def main() -> None:
    async for item in run(Request([Message("user", [Text("What is the weather in Paris?")])])):
        print(repr(item))


if __name__ == "__main__":
    asyncio.run(main())
