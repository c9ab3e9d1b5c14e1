"""One talk of an application that uses Google's Python SDK: `session.py BASE_URL OTHER_URL`.

The model calls two tools at once, the application answers both, then says one thing more, asks in one piece, and runs
into an error. Elsewhere it has tokens counted and lists the models. Prints what it saw, in JSON.
"""

import asyncio
import json
import sys
from typing import Any

from google import genai
from google.genai import errors, types

TOOLS: list[Any] = [
    {
        "function_declarations": [
            {"name": "get_weather", "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}},
            {
                "name": "get_time",
                "parameters_json_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        ]
    }
]
CONFIG = types.GenerateContentConfig(
    tools=TOOLS,
    system_instruction="Be brief.",
    temperature=0.5,
    thinking_config=types.ThinkingConfig(include_thoughts=True),
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)


def seen() -> dict[str, Any]:
    return {"text": "", "thoughts": "", "calls": [], "chunks": 0, "finish": None, "usage": None}


def note(told: dict[str, Any], chunk: Any) -> None:
    told["chunks"] += 1
    for candidate in chunk.candidates or []:
        for part in (candidate.content and candidate.content.parts) or []:
            if part.function_call:
                told["calls"].append([part.function_call.id, part.function_call.name, part.function_call.args])
            elif part.text:
                told["thoughts" if part.thought else "text"] += part.text
        told["finish"] = candidate.finish_reason or told["finish"]
    if chunk.usage_metadata:
        told["usage"] = [chunk.usage_metadata.prompt_token_count, chunk.usage_metadata.candidates_token_count]


def answers(calls: list[Any]) -> list[Any]:
    """Without ids, as the SDK's own helper makes them."""
    return [
        types.Part.from_function_response(name=name, response={"result": f"{name} of Paris"}) for _, name, _ in calls
    ]


async def play(base: str, other: str) -> dict[str, Any]:
    client = genai.Client(api_key="client-key", http_options=types.HttpOptions(base_url=base))
    chat = client.chats.create(model="m-1", config=CONFIG)
    turns = []
    said: Any = "What is it like in Paris?"
    for _ in range(2):
        told = seen()
        for chunk in chat.send_message_stream(said):
            note(told, chunk)
        turns.append(told)
        said = answers(told["calls"])
    # The same chat goes on, asynchronous and with all that it keeps.
    later = client.aio.chats.create(model="m-1", config=CONFIG, history=chat.get_history())
    told = seen()
    async for chunk in await later.send_message_stream("Thanks."):
        note(told, chunk)
    turns.append(told)
    whole = seen()
    note(whole, client.models.generate_content(model="m-1", contents="Thanks.", config=CONFIG))
    elsewhere = genai.Client(api_key="client-key", http_options=types.HttpOptions(base_url=other))
    tokens = elsewhere.models.count_tokens(model="m-1", contents="How many?").total_tokens
    models = [model.name for model in elsewhere.models.list()]
    failures = []
    for ask in (client.models.generate_content, client.models.generate_content_stream):
        try:
            list(ask(model="m-1", contents="Fail."))
        except errors.APIError as error:
            failures.append([error.code, error.status, error.message])
    return {"turns": turns, "whole": whole, "tokens": tokens, "models": models, "failures": failures}


json.dump(asyncio.run(play(*sys.argv[1:])), sys.stdout)
