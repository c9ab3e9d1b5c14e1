"""The real `cloudbase-agent-server` 0.1.1 with a LangGraph agent, whose model is scripted; its history is LangGraph's.

Runs in a virtual environment of its own (`make .venv-ag-kit/.stamp`): the server needs `ag-ui-protocol` below 1.0.
Usage: `server.py FD`, a listening socket. `/broken/send-message` is a server whose agent cannot be made, and
`GET /left` answers once a run of the scene `wait` was given up.
"""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from cloudbase_agent.langgraph import LangGraphAgent
from cloudbase_agent.server import AGKitAPIApp
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk as Chunk
from langchain_core.outputs import ChatResult
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

LEFT = asyncio.Event()


class State(MessagesState):
    tools: list[dict[str, Any]]


def words(*pieces: str) -> list[AIMessageChunk]:
    return [AIMessageChunk(content=p) for p in pieces]


def call(call_id: str, name: str, *pieces: str) -> list[AIMessageChunk]:
    """A call as models stream it: its name, then its arguments in pieces."""
    head = {"id": call_id, "name": name, "args": "", "index": 0}
    rest = [{"id": None, "name": None, "args": p, "index": 0} for p in pieces]
    return [AIMessageChunk(content="", tool_call_chunks=[chunk]) for chunk in (head, *rest)]


class Script(BaseChatModel):
    """Says what the talk asks for; the last human message names the scene."""

    offered: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "script"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError("the agent streams")

    async def _astream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> AsyncIterator[Chunk]:
        for chunk in self.answer(messages):
            yield Chunk(message=chunk)
        if messages[-1].content == "crash":
            raise ValueError("model exploded")
        if messages[-1].content == "wait":
            try:
                await asyncio.Event().wait()
            finally:
                LEFT.set()

    def answer(self, messages: list[BaseMessage]) -> list[AIMessageChunk]:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            return words("Tool said: ", str(last.content))
        match last.content:
            case "paint":
                return [*words("Sure. "), *call("call_c1", self.offered[0], '{"color":', ' "blue"}')]
            case "weather":
                return [*words("Checking. "), *call("call_s1", "get_weather", '{"city": ', '"Paris"}')]
            case "crash" | "wait":
                return words("partial ")
            case _:
                heard = [f"{m.type}: {m.content}" for m in messages]
                return words("I heard ", json.dumps(heard), " 你好 😀")


async def chat(state: State) -> dict[str, Any]:
    if state["messages"][-1].content == "approve":
        decided = interrupt({"question": "Go on?"})
        said = HumanMessage(f"resumed {json.dumps(decided)}")
        return {"messages": [said, await Script().ainvoke([*state["messages"], said])]}
    offered = tuple(tool["name"] for tool in state.get("tools") or ())
    answer: BaseMessage = await Script(offered=offered).ainvoke(state["messages"])
    return {"messages": [answer]}


async def run_tool(state: State) -> dict[str, Any]:
    """The tool that the agent runs itself."""
    asked = state["messages"][-1].tool_calls[0]
    said = f"Sunny in {asked['args']['city']}, 25°C"
    # The adapter breaks off over a result without an id.
    return {"messages": [ToolMessage(said, tool_call_id=asked["id"], id=f"result_{asked['id']}")]}


def next_step(state: State) -> str:
    calls = getattr(state["messages"][-1], "tool_calls", [])
    return "run_tool" if calls and calls[0]["name"] == "get_weather" else END


def graph() -> Any:
    plan = StateGraph(State)
    plan.add_node("chat", chat)
    plan.add_node("run_tool", run_tool)
    plan.add_edge(START, "chat")
    plan.add_conditional_edges("chat", next_step, ["run_tool", END])
    plan.add_edge("run_tool", "chat")
    return plan.compile(checkpointer=MemorySaver())


def make_app() -> Any:
    compiled = graph()

    def create_agent() -> dict[str, Any]:
        return {"agent": LangGraphAgent("it", "A scripted agent", compiled)}

    def create_none() -> dict[str, Any]:
        raise ValueError("cannot build agent")

    app = AGKitAPIApp().build(create_agent)

    @app.get("/left")
    async def left() -> dict[str, Any]:
        await LEFT.wait()
        LEFT.clear()
        return {}

    app.mount("/broken", AGKitAPIApp().build(create_none))
    return app


if __name__ == "__main__":
    listening = socket.socket(fileno=int(sys.argv[1]))
    uvicorn.Server(uvicorn.Config(make_app(), log_level="warning")).run(sockets=[listening])
