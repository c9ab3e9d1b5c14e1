"""A google-adk agent behind its own A2A server; only its model is ours: `python adk.py PORT`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import AsyncIterator
from typing import Any

warnings.filterwarnings("ignore")

import uvicorn  # noqa: E402
from google.adk.a2a.utils.agent_to_a2a import to_a2a  # noqa: E402
from google.adk.agents import LlmAgent  # noqa: E402
from google.adk.models.base_llm import BaseLlm  # noqa: E402
from google.adk.models.llm_response import LlmResponse  # noqa: E402
from google.adk.tools.long_running_tool import LongRunningFunctionTool  # noqa: E402
from google.genai import types  # noqa: E402
from starlette.responses import Response  # noqa: E402

PORT = int(sys.argv[1])


def weather(city: str) -> dict[str, int]:
    """The weather in a city."""
    return {"temp": 3}


def approve(amount: int) -> None:
    """Asks a person to approve an amount."""


def call(name: str, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=args))


class Model(BaseLlm):
    model: str = "scripted"

    async def generate_content_async(self, request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        contents = request.contents
        results = [p.function_response for p in contents[-1].parts if p.function_response]
        words = [p.text for c in contents for p in c.parts if c.role == "user" and p.text]
        part = types.Part(text=f"You said: {words[-1] if words else ''}")
        if results:
            part = types.Part(text=f"The tool said {results[-1].response}.")
        elif words[-1:] == ["tool"]:
            part = call("weather", city="Oslo")
        elif words[-1:] == ["approve"]:
            part = call("approve", amount=5)
        elif words[-1:] == ["before"]:
            part = types.Part(text=f"Before that: {words[-2]}")
        elif words[-1:] == ["fail"]:
            raise RuntimeError("the model broke")
        counts = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=11, candidates_token_count=4, total_token_count=15
        )
        content = types.Content(role="model", parts=[part])
        yield LlmResponse(content=content, usage_metadata=counts)


agent = LlmAgent(name="adk_agent", model=Model(), tools=[weather, LongRunningFunctionTool(approve)])
app = to_a2a(agent, host="127.0.0.1", port=PORT)
app.add_route("/healthz", lambda _: Response("ok"))
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
