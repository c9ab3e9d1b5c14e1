"""An application with google-adk's `RemoteA2aAgent`: `adk_client.py BASE_URL SAYS...`. Prints what it saw as JSON.

What is said after a question answers it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings

warnings.filterwarnings("ignore")

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent  # noqa: E402
from google.adk.runners import InMemoryRunner  # noqa: E402
from google.genai import types  # noqa: E402


async def main(url: str, *said: str) -> list[dict[str, object]]:
    agent = RemoteA2aAgent("remote", f"{url}/.well-known/agent-card.json")
    runner = InMemoryRunner(agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="ann")
    seen: list[dict[str, object]] = []
    waiting: types.FunctionCall | None = None
    for text in said:
        part = types.Part(text=text)
        if waiting is not None:
            answer = types.FunctionResponse(id=waiting.id, name=waiting.name, response={"result": text})
            part = types.Part(function_response=answer)
        streamed, whole, calls, errors = "", "", list[types.FunctionCall](), list[str]()
        new = types.Content(role="user", parts=[part])
        async for event in runner.run_async(user_id="ann", session_id=session.id, new_message=new):
            errors += [event.error_message] if event.error_message else []
            for part in event.content.parts if event.content and event.content.parts else ():
                if part.function_call is not None and not event.partial:
                    calls.append(part.function_call)
                elif event.partial:
                    streamed += part.text or ""
                else:
                    whole += part.text or ""
        waiting = calls[-1] if calls else None
        asked = [[call.name, call.args] for call in calls]
        seen.append({"streamed": streamed, "whole": whole, "asked": asked, "errors": errors})
    await runner.close()
    return seen


if __name__ == "__main__":
    json.dump(asyncio.run(main(*sys.argv[1:])), sys.stdout)
