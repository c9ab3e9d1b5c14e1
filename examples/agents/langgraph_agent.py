"""A graph of LangGraph: `pip install langgraph langchain-openai`."""

import json
import os
from collections.abc import AsyncIterator

from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from bridge import Event, Part, Request, Text, TextDelta, ToolCall, ToolResult, UsageReported


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


MODEL = ChatOpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
    model=os.environ.get("OPENAI_MODEL", "qwen3:8b"),
    stream_usage=True,
).bind_tools([get_weather])


async def model(state: MessagesState) -> dict:
    return {"messages": [await MODEL.ainvoke(state["messages"])]}


graph = (
    StateGraph(MessagesState)
    .add_node("model", model)
    .add_node("tools", ToolNode([get_weather]))
    .add_edge(START, "model")
    .add_conditional_edges("model", tools_condition)
    .add_edge("tools", "model")
    .compile()
)


async def run(request: Request) -> AsyncIterator[Event | Part]:
    said = [{"role": each.role, "content": each.text} for each in request.messages if each.text]
    tokens = UsageReported(input=0, output=0)
    async for kind, news in graph.astream({"messages": said}, stream_mode=["messages", "updates"]):
        if kind == "messages":
            chunk, _ = news
            if isinstance(chunk, AIMessageChunk) and chunk.text:
                yield TextDelta(chunk.id, chunk.text)
            continue
        for message in (each for update in news.values() for each in update["messages"]):
            match message:
                case AIMessage():
                    for call in message.tool_calls:
                        yield ToolCall(call["id"], call["name"], json.dumps(call["args"]))
                    if usage := message.usage_metadata:
                        tokens = UsageReported(
                            tokens.input + usage["input_tokens"], tokens.output + usage["output_tokens"]
                        )
                case ToolMessage():
                    failed = message.status == "error"
                    yield ToolResult(message.tool_call_id, [Text(message.text)], is_error=failed)
    yield tokens
