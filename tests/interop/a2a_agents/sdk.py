"""A scripted agent on the official SDK, a2a-sdk 1.3.0: `python sdk.py PORT`.

The first word of the message says which scene is played. JSON-RPC is at `/`, HTTP+JSON at `/rest`, both also in 0.3.
`GET /seen` has the messages that came, and which tasks were cancelled.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvicorn
from a2a.helpers import proto_helpers as made
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, TaskState
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

PORT = int(sys.argv[1])
STREAMS = "whole" not in sys.argv
PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
seen: list[Any] = []
canceled: list[str] = []
talks: dict[str, list[str]] = {}


class Agent(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: Any) -> None:
        message = context.message
        seen.append(MessageToDict(message))
        text = "".join(part.text for part in message.parts if part.HasField("text"))
        before = talks.setdefault(context.context_id, [])
        before.append(text)
        if text == "message":
            await event_queue.enqueue_event(made.new_text_message("Just a message.", context_id=context.context_id))
            return
        if context.current_task is None:
            await event_queue.enqueue_event(made.new_task_from_user_message(message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work()
        waited = context.current_task is not None
        await (self.resumed(task, text) if waited else self.play(task, text, before))

    async def say(self, task: TaskUpdater, *pieces: str, name: str = "answer") -> None:
        for number, piece in enumerate(pieces):
            last = number == len(pieces) - 1
            await task.add_artifact([Part(text=piece)], name, name, append=number > 0, last_chunk=last)
            await asyncio.sleep(0)

    async def resumed(self, task: TaskUpdater, text: str) -> None:
        await self.say(task, "You chose ", text, ".")
        await task.complete()

    async def play(self, task: TaskUpdater, text: str, before: list[str]) -> None:
        match text.split(" ", 1)[0]:
            case "ask":
                await self.say(task, "Let me see. ", name="first")
                await task.requires_input(made.new_text_message("Which city?"))
                return
            case "auth":
                question = made.new_text_message("Log in first.")
                await task.update_status(TaskState.TASK_STATE_AUTH_REQUIRED, message=question)
                return
            case "data":
                await task.add_artifact([made.new_data_part({"city": "Oslo", "degrees": 3})], "d", "numbers")
            case "file":
                part = Part(raw=PNG, media_type="image/png", filename="dot.png")
                await task.add_artifact([part], "f", "picture")
                url = Part(url="https://files.example/a.pdf", media_type="application/pdf", filename="a.pdf")
                await task.add_artifact([url], "g", "paper")
            case "progress":
                await task.update_status(TaskState.TASK_STATE_WORKING, message=made.new_text_message("Looking it up."))
                await self.say(task, "It is 42.")
            case "fail":
                await self.say(task, "Half an")
                await task.failed(made.new_text_message("The model is down."))
                return
            case "reject":
                await task.reject(made.new_text_message("I do not do that."))
                return
            case "break":
                await self.say(task, "Half an")
                raise RuntimeError("the agent broke")
            case "slow":
                for number in range(600):
                    await task.add_artifact([Part(text=f"{number} ")], "slow", append=number > 0)
                    await asyncio.sleep(0.05)
            case "before":
                await self.say(task, f"Before that: {before[-2]}" if len(before) > 1 else "Nothing before that.")
            case _:
                await self.say(task, "You said: ", text)
        await task.complete()

    async def cancel(self, context: RequestContext, event_queue: Any) -> None:
        canceled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def told(request: Request) -> Response:
    return JSONResponse({"seen": seen, "canceled": canceled, "cards": cards})


cards: list[str] = []


async def counted(card: AgentCard) -> AgentCard:
    cards.append("asked")
    return card


def main() -> None:
    base = f"http://127.0.0.1:{PORT}"
    versions = ("1.0", "0.3")
    card = AgentCard(
        name="Scripted agent",
        description="Does what the first word says",
        version="1.2.3",
        supported_interfaces=[
            AgentInterface(url=base + path, protocol_binding=binding, protocol_version=version)
            for version in versions
            for path, binding in (("/rpc", "JSONRPC"), ("/rest", "HTTP+JSON"))
        ],
        capabilities=AgentCapabilities(streaming=STREAMS),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="script", name="Script", description="Follows a script", tags=["test"])],
    )
    handler = DefaultRequestHandler(Agent(), InMemoryTaskStore(), card)
    app = Starlette(
        routes=[
            Route("/healthz", lambda _: Response("ok")),
            Route("/seen", told),
            *create_agent_card_routes(card, card_modifier=counted, cache_control="public, max-age=60"),
            *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
            *create_rest_routes(handler, enable_v0_3_compat=True, path_prefix="/rest"),
        ]
    )
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")


main()
