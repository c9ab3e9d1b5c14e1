"""An application that uses A2A's Python SDK of version 0.3: `session_old.py BASE_URL TRANSPORT`. Prints what it saw."""

import asyncio
import json
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, Task, TaskIdParams, TaskQueryParams, TextPart


def message(text: str, task: Task | None = None) -> Message:
    ids = {} if task is None else {"task_id": task.id, "context_id": task.context_id}
    return Message(message_id=uuid.uuid4().hex, role=Role.user, parts=[Part(root=TextPart(text=text))], **ids)


def text_of(parts: object) -> str:
    return "".join(part.root.text for part in parts or () if isinstance(part.root, TextPart))


def question(task: Task) -> str:
    return text_of(task.status.message.parts) if task.status.message is not None else ""


async def ask(client: object, text: str, task: Task | None = None) -> tuple[list[str], Task]:
    kinds, last = [], None
    async for event in client.send_message(message(text, task)):
        last, update = event
        kinds.append(update.kind if update is not None else last.kind)
    return kinds, last


def shown(kinds: list[str], task: Task) -> list[object]:
    return [kinds, task.status.state.value, [text_of(a.parts) for a in task.artifacts or ()], question(task)]


async def main(base: str, transport: str) -> dict[str, object]:
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, base).get_agent_card()
        config = {"httpx_client": http, "supported_transports": [transport], "use_client_preference": True}
        client = ClientFactory(ClientConfig(**config)).create(card)
        plain = ClientFactory(ClientConfig(**config, streaming=False)).create(card)
        said = {"streamed": shown(*await ask(client, "hello")), "whole": shown(*await ask(plain, "hello"))}
        kinds, asked = await ask(client, "interrupt")
        said["asked"], said["answered"] = shown(kinds, asked), shown(*await ask(client, "yes", asked))
        kept = await client.get_task(TaskQueryParams(id=asked.id))
        said["kept"] = shown([], kept)
        _, waiting = await ask(client, "interrupt")
        said["canceled"] = (await client.cancel_task(TaskIdParams(id=waiting.id))).status.state.value
        try:
            await client.cancel_task(TaskIdParams(id=waiting.id))
        except Exception as error:
            said["failure"] = str(error)
        return said


if __name__ == "__main__":
    json.dump(asyncio.run(main(*sys.argv[1:])), sys.stdout)
