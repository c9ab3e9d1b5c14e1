"""An application with AgentScope's `A2AAgent`: `agentscope_client.py BASE_URL SAYS...`. Prints each answer as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

import httpx
from a2a.client import A2ACardResolver
from agentscope.agent import A2AAgent
from agentscope.message import UserMsg


async def main(url: str, *said: str) -> list[dict[str, object]]:
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    seen: list[dict[str, object]] = []
    async with A2AAgent(card) as agent:
        for text in said:
            streamed, answer = "", None
            async for event in agent.reply_stream(UserMsg(name="ann", content=text), yield_final_msg=True):
                streamed += getattr(event, "delta", "")
                answer = event
            assert answer is not None
            blocks = [block.text for block in answer.content]
            state = agent.state
            one = {"streamed": streamed, "blocks": blocks, "reason": str(answer.finished_reason.value)}
            seen.append({**one, "context": state.context_id, "waits": state.task_id is not None})
    return seen


if __name__ == "__main__":
    json.dump(asyncio.run(main(*sys.argv[1:])), sys.stdout)
