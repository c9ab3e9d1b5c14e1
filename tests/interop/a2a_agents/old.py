"""A scripted agent on the last SDK that speaks 0.3 alone, a2a-sdk 0.3.26: `python old.py PORT [JSONRPC|HTTP+JSON]`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithUri,
    Part,
    TaskState,
    TextPart,
)
from a2a.utils import new_agent_text_message, new_task
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

PORT = int(sys.argv[1])
TRANSPORT = sys.argv[2]
canceled: list[str] = []
talks: dict[str, list[str]] = {}


class Agent(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: Any) -> None:
        text = context.get_user_input()
        if text == "message":
            await event_queue.enqueue_event(new_agent_text_message("Just a message."))
            return
        waited = context.current_task is not None
        if not waited:
            await event_queue.enqueue_event(new_task(context.message))
        before = talks.setdefault(context.context_id, [])
        before.append(text)
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work()
        if waited:
            await self.say(task, "You chose ", text, ".")
        elif text == "ask":
            await task.update_status(TaskState.input_required, new_agent_text_message("Which city?"), final=True)
            return
        elif text == "file":
            file = FileWithUri(uri="https://files.example/a.pdf", mime_type="application/pdf", name="a.pdf")
            await task.add_artifact([Part(root=FilePart(file=file)), Part(root=DataPart(data={"degrees": 3}))], "f")
        elif text == "fail":
            await task.failed(new_agent_text_message("The model is down."))
            return
        elif text == "slow":
            for number in range(600):
                await task.add_artifact([Part(root=TextPart(text=f"{number} "))], "slow", append=number > 0)
                await asyncio.sleep(0.05)
        elif text == "look":
            file = context.message.parts[1].root.file
            await self.say(task, f"You sent {file.mime_type}: {file.bytes}")
        elif text == "before":
            await self.say(task, f"Before that: {before[-2]}" if len(before) > 1 else "Nothing before that.")
        else:
            await self.say(task, "You said: ", text)
        await task.complete()

    async def say(self, task: TaskUpdater, *pieces: str) -> None:
        for number, piece in enumerate(pieces):
            last = number == len(pieces) - 1
            await task.add_artifact([Part(root=TextPart(text=piece))], "a", append=number > 0, last_chunk=last)

    async def cancel(self, context: RequestContext, event_queue: Any) -> None:
        canceled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def told(request: Request) -> Response:
    return JSONResponse({"canceled": canceled})


card = AgentCard(
    name="Old agent",
    description="Does what the first word says",
    url=f"http://127.0.0.1:{PORT}/",
    preferred_transport=TRANSPORT,
    version="1.0.0",
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    capabilities=AgentCapabilities(streaming=True),
    skills=[AgentSkill(id="script", name="Script", description="Follows a script", tags=["test"])],
)
Application = A2AStarletteApplication if TRANSPORT == "JSONRPC" else A2ARESTFastAPIApplication
app = Application(card, DefaultRequestHandler(Agent(), InMemoryTaskStore())).build()
app.add_route("/healthz", lambda _: Response("ok"))
app.add_route("/seen", told)
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
