"""A chain that streams its events, as LangChain's `astream_events` does, served in every dialect that streams answers.

    python examples/chain.py                     # calls it once in each dialect
    python examples/chain.py serve               # serves it: each dialect at /<its name>
    dialect-bridge chat http://127.0.0.1:8080/ag-ui/v1 "What is the weather in Paris?" --dialect ag-ui

`Chain` stands for your own chain; `run` is all that you need to serve it. PORT names another port than 8080.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from bridge import Bridge, Event, Message, Part, ReasoningDelta, Request, Text, ToolCall, ToolResult, UsageReported
from bridge.contract import Operation, offers, registry
from bridge.server import serve


class Chain:
    """A runnable of some library: messages in, dictionaries out."""

    async def astream_events(self, messages: list[tuple[str, str]]) -> AsyncIterator[dict[str, Any]]:
        question = messages[-1][1]
        yield {"event": "on_chat_model_stream", "data": {"chunk": {"reasoning": "They want the weather."}}}
        yield {"event": "on_tool_start", "run_id": "t1", "name": "get_weather", "data": {"input": '{"city": "Paris"}'}}
        await asyncio.sleep(0)  # here the tool would work
        yield {"event": "on_tool_end", "run_id": "t1", "name": "get_weather", "data": {"output": "sunny, 21 C"}}
        for word in ("You ", "asked: ", question, " It ", "is ", "sunny."):
            yield {"event": "on_chat_model_stream", "data": {"chunk": {"content": word}}}
        yield {"event": "on_chat_model_end", "data": {"usage": {"input_tokens": 12, "output_tokens": 6}}}


async def run(request: Request) -> AsyncIterator[Event | Part | str]:
    """Translate the chain's events: text as strings, complete values as parts, streamed values as deltas."""
    messages = [(m.role, "".join(p.text for p in m.parts if isinstance(p, Text))) for m in request.messages]
    async for event in Chain().astream_events(messages):
        data = event["data"]
        match event["event"]:
            case "on_chat_model_stream" if "reasoning" in data["chunk"]:
                yield ReasoningDelta("thought", data["chunk"]["reasoning"])
            case "on_chat_model_stream":
                yield data["chunk"]["content"]
            case "on_tool_start":
                yield ToolCall(event["run_id"], event["name"], data["input"])
            case "on_tool_end":
                yield ToolResult(event["run_id"], [Text(data["output"])], event["name"])
            case "on_chat_model_end":
                yield UsageReported(data["usage"]["input_tokens"], data["usage"]["output_tokens"])


NAMES = [name for name in registry.names() if offers(registry.get(name).surface, Operation.RUN)]
CONFIG = {
    "server": {"port": int(os.environ.get("PORT", "8080"))},
    "stores": {"history": "off"},  # the chain gets what each client sends
    "backends": {"chain": {"dialect": "python", "target": f"{__name__}:run"}},
    "routes": [{"dialect": name, "path": f"/{name}/v1", "backend": "chain"} for name in NAMES],
}


async def main() -> None:
    bridge = Bridge.from_config(CONFIG)
    if sys.argv[1:] == ["serve"]:
        await serve(bridge)
        return
    async with bridge:
        for route in bridge.routes:
            answer = await bridge.complete(
                Request([Message("user", [Text("What is the weather in Paris?")])]), route=route.path
            )
            tokens = answer.usage.output if answer.usage is not None else "?"
            print(f"{route.dialect.name}: {answer.text} ({tokens} tokens)")


if __name__ == "__main__":
    asyncio.run(main())
