"""One talk of an editor that uses the official Python client: `session.py URL`, or `session.py COMMAND ARG...`.

Prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import acp
from acp import schema


class Editor:
    """Shows updates, and allows once what it is asked."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[str] = []

    def on_connect(self, connection: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append(update.model_dump(by_alias=True, exclude_none=True))

    async def request_permission(self, **asked: Any) -> Any:
        self.asked.append(asked["tool_call"].title)
        option = next(o for o in asked["options"] if o.kind == "allow_once")
        chosen = schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
        return schema.RequestPermissionResponse(outcome=chosen)


@asynccontextmanager
async def connected(editor: Editor, words: list[str]) -> AsyncIterator[Any]:
    if words[0].startswith("ws"):
        from acp.ws.client import create_websocket_stream

        stream = await create_websocket_stream(words[0])
        yield acp.connect_to_agent(editor, stream)
        await stream.close()
    else:
        async with acp.spawn_agent_process(editor, *words) as (connection, _):
            yield connection


async def main(words: list[str]) -> dict[str, Any]:
    editor = Editor()
    async with connected(editor, words) as agent:
        greeting = await agent.initialize(protocol_version=1, client_capabilities=schema.ClientCapabilities())
        created = await agent.new_session(cwd="/home/user/project", mcp_servers=[])
        session, (option,) = created.session_id, created.config_options
        names = [each.value for each in option.options]
        chosen = await agent.set_config_option(config_id=option.id, session_id=session, value=names[-1])
        turns = []
        for text in ("Think.", "Pay.", "Fail."):
            editor.updates.clear()
            turn: dict[str, Any] = {}
            try:
                ended = await agent.prompt(session_id=session, prompt=[acp.text_block(text)])
                turn |= {"stop": ended.stop_reason, "total": ended.usage.total_tokens if ended.usage else None}
            except acp.RequestError as error:
                turn |= {"error": error.code, "message": str(error)}
            turns.append({**turn, "updates": [*editor.updates]})
        editor.updates.clear()
        listed = await agent.list_sessions()
        await agent.load_session(session_id=session, cwd="/home/user/project", mcp_servers=[])
        return {
            "version": greeting.protocol_version,
            "models": [names, chosen.config_options[0].current_value],
            "turns": turns,
            "asked": editor.asked,
            "titles": [s.title for s in listed.sessions],
            "replayed": [u["sessionUpdate"] for u in editor.updates],
        }


if __name__ == "__main__":
    json.dump(asyncio.run(main(sys.argv[1:])), sys.stdout)
