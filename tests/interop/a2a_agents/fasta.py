"""A Pydantic AI agent behind fasta2a; only its model is ours: `python fasta.py PORT`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.responses import Response
from starlette.routing import Route

PORT = int(sys.argv[1])


async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    prompts = [p.content for m in messages for p in m.parts if isinstance(p, UserPromptPart)]
    said = ["".join(x for x in p if isinstance(x, str)) if isinstance(p, list) else str(p) for p in prompts]
    if said[-1] == "fail":
        raise RuntimeError("the model broke")
    if said[-1] == "before":
        yield "Before that: "
        yield said[-2] if len(said) > 1 else "nothing"
        return
    yield "You said: "
    yield said[-1]


agent = Agent(FunctionModel(stream_function=model), name="fasta")
app = agent_to_a2a(agent, url=f"http://127.0.0.1:{PORT}", routes=[Route("/healthz", lambda _: Response("ok"))])
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
