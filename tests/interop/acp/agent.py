"""An agent made with the official Python library: `agent.py FOLDER`, where it keeps its sessions.

It thinks, reads, asks before it deletes, waits until it is canceled, and remembers what it was told.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import acp
from acp import schema

OPTIONS = [
    schema.PermissionOption(option_id="go", name="Go on", kind="allow_once"),
    schema.PermissionOption(option_id="always", name="Always", kind="allow_always"),
    schema.PermissionOption(option_id="stop", name="Stop", kind="reject_once"),
]


class Scripted(acp.Agent):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.talks: dict[str, list[str]] = {}
        self.canceled: dict[str, asyncio.Event] = {}

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **more: Any) -> Any:
        return schema.InitializeResponse(
            protocol_version=1,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True, prompt_capabilities=schema.PromptCapabilities(image=True)
            ),
        )

    async def new_session(self, cwd: str, **more: Any) -> Any:
        session = uuid.uuid4().hex
        self.talks[session] = []
        return schema.NewSessionResponse(session_id=session)

    async def load_session(self, cwd: str, session_id: str, **more: Any) -> Any:
        file = self.folder / session_id
        if not file.exists():
            raise acp.RequestError.resource_not_found(session_id)
        self.talks[session_id] = json.loads(file.read_text())
        for text in self.talks[session_id]:
            await self.client.session_update(session_id, acp.update_user_message_text(text))
            await self.client.session_update(session_id, acp.update_agent_message_text("Told before."))
        return schema.LoadSessionResponse()

    async def cancel(self, session_id: str, **more: Any) -> None:
        self.canceled[session_id].set()

    async def prompt(self, session_id: str, prompt: list[Any], **more: Any) -> Any:
        told = self.talks[session_id]
        told.append(" | ".join(getattr(block, "text", block.type) for block in prompt))
        (self.folder / session_id).write_text(json.dumps(told))
        self.canceled[session_id] = asyncio.Event()
        say = self.client.session_update
        word = told[-1].rpartition(" | ")[2]
        reason = "end_turn"
        if word == "think":
            await say(session_id, acp.update_agent_thought_text("Hm. "))
            await say(session_id, acp.update_agent_message_text("42"))
        elif word == "read":
            await say(session_id, acp.start_read_tool_call("c1", "Reading a.txt", "a.txt"))
            content = [acp.schema.ContentToolCallContent(type="content", content=acp.text_block("three lines"))]
            await say(session_id, acp.update_tool_call("c1", status="completed", content=content))
            await say(session_id, acp.update_agent_message_text("Read."))
        elif word == "delete":
            call = schema.ToolCallUpdate(
                tool_call_id="c2", title="rm a.txt", kind="delete", raw_input={"path": "a.txt"}
            )
            asked = await self.client.request_permission(session_id=session_id, tool_call=call, options=OPTIONS)
            chosen = getattr(asked.outcome, "option_id", "cancelled")
            if chosen == "go":
                await say(session_id, acp.update_tool_call("c2", status="completed", raw_output={"gone": True}))
            await say(session_id, acp.update_agent_message_text(f"Chosen: {chosen}"))
        elif word == "wait":
            await say(session_id, acp.update_agent_message_text("Waiting."))
            await asyncio.wait_for(self.canceled[session_id].wait(), 30)
            reason = "cancelled"
        else:
            await say(session_id, acp.update_agent_message_text(f"{len(told)}: {' / '.join(told)}"))
        usage = schema.Usage(input_tokens=10, output_tokens=4, total_tokens=14)
        return schema.PromptResponse(stop_reason=reason, usage=usage)


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Scripted(Path(sys.argv[1]))))
