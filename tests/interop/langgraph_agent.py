"""A graph for LangGraph's server, with a scripted model: what it does is in the last message (test_langgraph.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt
from typing_extensions import TypedDict

COUNTS = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}


def said(message: BaseMessage) -> str:
    content = message.content
    return content if isinstance(content, str) else "".join(b.get("text", "") for b in content if isinstance(b, dict))


class Scripted(BaseChatModel):
    """Answers with what it was told, calls a tool for `weather`, and counts slowly for `slow`."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, *args: Any, **more: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **more: Any) -> ChatResult:
        whole: Any = None
        async for piece in self._astream(messages):
            whole = piece.message if whole is None else whole + piece.message
        return ChatResult(generations=[ChatGeneration(message=whole)])

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **more: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        last = messages[-1]
        told = said(last)
        if last.type != "tool" and "weather" in told:
            yield ChatGenerationChunk(message=AIMessageChunk("I will look. "))
            first = {"name": "get_weather", "args": "", "id": f"call_{len(messages)}", "index": 0}
            rest = [{"name": None, "args": text, "id": None, "index": 0} for text in ('{"city": ', '"Paris"}')]
            for piece in (first, *rest):
                yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[piece]))
            words = []
        elif last.type == "tool":
            words = ["It is ", told]
        elif "slow" in told:
            words = [f"{n} " for n in range(40)]
        elif "think" in told:
            for text in ("Let me ", "see."):
                yield ChatGenerationChunk(message=AIMessageChunk("", additional_kwargs={"reasoning_content": text}))
            words = ["Thought."]
        else:
            words = ["You said: ", " / ".join(said(m) for m in messages if m.type == "human")]
        for word in words:
            if "slow" in told:
                await asyncio.sleep(0.05)
            yield ChatGenerationChunk(message=AIMessageChunk(word))
        facts = {"finish_reason": "stop", "model_name": "scripted-1"}
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=COUNTS, response_metadata=facts))


class State(TypedDict):
    messages: Annotated[list[BaseMessage], add_messages]
    count: int


async def agent(state: State) -> dict[str, Any]:
    told = said(state["messages"][-1])
    match told:
        case "ask":
            return {"messages": [AIMessage(f"Hello, {interrupt({'question': 'What is your name?'})}!")]}
        case "approve":
            action = {"name": "send_mail", "args": {"to": "bob"}, "description": "Send it?"}
            answer = interrupt({"action_requests": [action], "review_configs": []})
            return {"messages": [AIMessage(f"Decided: {answer['decisions'][0]['type']}")]}
        case "fail":
            raise ValueError("the node broke")
        case "custom":
            get_stream_writer()({"progress": 1})
    return {"messages": [await Scripted().ainvoke(state["messages"])], "count": state.get("count", 0) + 1}


async def one(state: State) -> dict[str, Any]:
    return {"messages": [AIMessage(f"A={interrupt('A?')} ")]}


async def two(state: State) -> dict[str, Any]:
    return {"messages": [AIMessage(f"B={interrupt('B?')} ")]}


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: 21 degrees"


made = StateGraph(State)
made.add_node("agent", agent)
made.add_node("tools", ToolNode([get_weather]))
made.add_node("one", one)
made.add_node("two", two)
made.add_conditional_edges(START, lambda state: ["one", "two"] if said(state["messages"][-1]) == "two" else "agent")
made.add_conditional_edges(
    "agent", lambda state: "tools" if getattr(state["messages"][-1], "tool_calls", None) else END
)
made.add_edge("tools", "agent")
graph = made.compile()
paused = made.compile(interrupt_before=["tools"])
