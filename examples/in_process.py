"""Routes and backends inside your own program, without a server.

    python examples/in_process.py

The configuration is the same as in a file; `Bridge.from_config` also takes a path.
"""

import asyncio

from bridge import Bridge, Message, ReasoningDelta, Request, RunFinished, Text, TextDelta

CONFIG = {
    "backends": {"demo": {"dialect": "demo"}},
    "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "demo"}],
}


async def main() -> None:
    async with Bridge.from_config(CONFIG) as bridge:
        answer = await bridge.complete(Request([Message("user", [Text("tool")])]))
        print("text:", answer.text)
        print("calls:", [(call.name, call.arguments) for call in answer.calls])
        print("reason:", answer.reason)

        async for event in bridge.stream(Request([Message("user", [Text("reasoning")])])):
            match event:
                case ReasoningDelta():
                    print("thinks:", event.text)
                case TextDelta():
                    print("says:", repr(event.text))
                case RunFinished():
                    print("ends:", event.reason)


if __name__ == "__main__":
    asyncio.run(main())
