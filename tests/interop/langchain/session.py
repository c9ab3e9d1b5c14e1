"""One talk of an application that uses LangChain: `session.py WIRE BASE_URL OPTIONS`, with the model's options in JSON.

WIRE is `openai` (Responses), `anthropic` or `ollama`.
The model calls two tools at once, the application answers both, then says one thing more. Prints what it saw, in JSON.
"""

import json
import sys
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool


@tool
def get_weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


@tool
def get_time(city: str) -> dict[str, str]:
    """The time."""
    return {"city": city, "time": "12:00"}


TOOLS = {t.name: t for t in (get_weather, get_time)}


def model_of(wire: str, base: str, **options: Any) -> BaseChatModel:
    """Import the package of this wire only: each takes seconds."""
    if wire == "ollama":
        from langchain_ollama import ChatOllama

        return ChatOllama(model="m-1", base_url=base, **options)
    options = {"model": "m-1", "base_url": base, "api_key": "client-key", "max_retries": 0, **options}
    if wire == "anthropic":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(**options)
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(use_responses_api=True, **options)


def play(model: Any) -> list[dict[str, Any]]:
    conversation: list[BaseMessage] = [SystemMessage("Be brief.")]
    turns = []
    for text in ("What is it like in Paris?", "Thanks."):
        conversation.append(HumanMessage(text))
        seen: dict[str, Any] = {"calls": [], "results": [], "usage": [0, 0], "pieces": 0}
        while True:
            answer: Any = None
            for piece in model.stream(conversation):
                answer = piece if answer is None else answer + piece
                seen["pieces"] += 1
            assert isinstance(answer, AIMessage)
            assert not answer.invalid_tool_calls
            conversation.append(answer)
            used = answer.usage_metadata or {}
            seen["usage"][0] += used.get("input_tokens", 0)
            seen["usage"][1] += used.get("output_tokens", 0)
            if not answer.tool_calls:
                break
            for call in answer.tool_calls:
                result: ToolMessage = TOOLS[call["name"]].invoke(call)
                seen["calls"].append([call["id"], call["name"], call["args"]])
                seen["results"].append([result.tool_call_id, result.content])
                conversation.append(result)
        thoughts = "".join(m.additional_kwargs.get("reasoning_content", "") for m in conversation)
        turns.append({**seen, "text": answer.text, "thoughts": thoughts})
    return turns


wire, base, options = sys.argv[1:]
json.dump({"turns": play(model_of(wire, base, **json.loads(options)).bind_tools(list(TOOLS.values())))}, sys.stdout)
