"""A stage of your own: it gets every batch of events between backend and client, and returns the events to send.

    dialect-bridge serve examples/configs/stage.yaml        # from the top of the repository
    dialect-bridge chat http://127.0.0.1:8080/v1 Hello --dialect openai-chat

Run alone, it serves nothing and prints one answer:

    python examples/stage.py
"""

import asyncio
from dataclasses import replace

from bridge import Bridge, Event, Message, Request, Text, TextDelta
from bridge.translation import StageFunction
from bridge.translation.policies.stages import StageContext


def shout(context: StageContext) -> StageFunction | None:
    """Called once per run; it may also change `context.request`. Return None if this run does not need the stage."""

    def stage(events: list[Event]) -> list[Event]:
        # Events are values: create a new one instead of changing the old one.
        return [replace(event, text=event.text.upper()) if isinstance(event, TextDelta) else event for event in events]

    return stage


CONFIG = {
    "backends": {"demo": {"dialect": "demo"}},
    "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "demo", "stages": ["stage:shout"]}],
}


async def main() -> None:
    async with Bridge.from_config(CONFIG) as bridge:
        answer = await bridge.complete(Request([Message("user", [Text("Hello")])]))
        print(answer.text)


if __name__ == "__main__":
    asyncio.run(main())
