"""An application with A2A's Python SDK: `session.py BASE_URL BINDING [tasks [0.3] | push URL]`.

Prints what it saw as JSON.
"""

import asyncio
import json
import sys
import uuid

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.client.client import Client
from a2a.types import a2a_pb2 as pb


def message(text: str, task: pb.Task | None = None) -> pb.SendMessageRequest:
    said = pb.Message(message_id=uuid.uuid4().hex, role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    if task is not None:
        said.task_id, said.context_id = task.id, task.context_id
    return pb.SendMessageRequest(message=said)


def text_of(parts: object) -> str:
    return "".join(part.text for part in parts)


def state(status: pb.TaskStatus) -> str:
    return pb.TaskState.Name(status.state)


class Seen:
    """What one stream showed."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.states: list[str] = []
        self.text = ""
        self.question = ""
        self.task: pb.Task | None = None
        self.usage: dict[str, float] = {}

    def add(self, event: pb.StreamResponse) -> None:
        kind = event.WhichOneof("payload")
        self.kinds.append(kind)
        if kind == "task":
            self.task = self.task or event.task
            self.states.append(state(event.task.status))
            self.text += "".join(text_of(each.parts) for each in event.task.artifacts)
            self.question = text_of(event.task.status.message.parts)
        elif kind == "artifact_update":
            self.text += text_of(event.artifact_update.artifact.parts)
        elif kind == "status_update":
            update = event.status_update
            self.states.append(state(update.status))
            self.question = text_of(update.status.message.parts)
            self.usage = dict(update.metadata["usage"]) if "usage" in update.metadata else self.usage

    @property
    def said(self) -> dict[str, object]:
        return {"kinds": self.kinds, "states": self.states, "text": self.text, "question": self.question}


async def ask(client: Client, text: str, task: pb.Task | None = None) -> Seen:
    seen = Seen()
    async for event in client.send_message(message(text, task)):
        seen.add(event)
    return seen


async def watched(client: Client, text: str) -> tuple[Seen, Seen]:
    """What the one who asked saw, and one who came when the answer had begun and ended it."""
    first, second, watching = Seen(), Seen(), []

    async def watch() -> None:
        assert first.task is not None
        async for event in client.subscribe(pb.SubscribeToTaskRequest(id=first.task.id)):
            second.add(event)
            if len(second.kinds) == 2:
                await client.cancel_task(pb.CancelTaskRequest(id=first.task.id))

    async for event in client.send_message(message(text)):
        first.add(event)
        if event.WhichOneof("payload") == "artifact_update" and not watching:
            watching.append(asyncio.create_task(watch()))
    await asyncio.gather(*watching)
    return first, second


async def failure(call: object) -> str:
    try:
        await call
    except Exception as error:
        return type(error).__name__
    return "none"


async def pushed(url: str, binding: str, hook: str) -> dict[str, object]:
    """Asks a question, has what follows its answer pushed to `hook`, and returns what was streamed then."""
    async with httpx.AsyncClient(timeout=30) as http:
        factory = ClientFactory(ClientConfig(httpx_client=http, supported_protocol_bindings=[binding]))
        client = await factory.create_from_url(url)
        asked = await ask(client, "interrupt")
        assert asked.task is not None
        where = pb.TaskPushNotificationConfig(task_id=asked.task.id, id="mine", url=hook, token="a-token")
        made = await client.create_task_push_notification_config(where)
        one = await client.get_task_push_notification_config(
            pb.GetTaskPushNotificationConfigRequest(task_id=asked.task.id, id="mine")
        )
        all_ = await client.list_task_push_notification_configs(
            pb.ListTaskPushNotificationConfigsRequest(task_id=asked.task.id)
        )
        answered = await ask(client, "yes", asked.task)
        second = pb.TaskPushNotificationConfig(task_id=asked.task.id, id="other", url=hook)
        refused = pb.TaskPushNotificationConfig(task_id=asked.task.id, id="bad", url="http://elsewhere.example/")
        await client.create_task_push_notification_config(second)
        await client.delete_task_push_notification_config(
            pb.DeleteTaskPushNotificationConfigRequest(task_id=asked.task.id, id="other")
        )
        return {
            "same": [made == where, one == where, list(all_.configs) == [where]],
            "answered": answered.said,
            "refused": await failure(client.create_task_push_notification_config(refused)),
            "gone": await failure(
                client.get_task_push_notification_config(
                    pb.GetTaskPushNotificationConfigRequest(task_id=asked.task.id, id="other")
                )
            ),
        }


async def main(url: str, binding: str) -> dict[str, object]:
    async with httpx.AsyncClient(timeout=30) as http:
        factory = ClientFactory(ClientConfig(httpx_client=http, supported_protocol_bindings=[binding]))
        client = await factory.create_from_url(url)
        plain = await ClientFactory(
            ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], streaming=False)
        ).create_from_url(url)
        said: dict[str, object] = {}
        streamed = await ask(client, "hello")
        said["streamed"], said["usage"] = streamed.said, streamed.usage
        said["whole"] = (await ask(plain, "hello")).said
        asked = await ask(client, "interrupt")
        said["asked"], said["answered"] = asked.said, (await ask(client, "yes", asked.task)).said
        if sys.argv[3:4] != ["tasks"]:
            return said
        assert asked.task is not None
        assert streamed.task is not None
        kept = await client.get_task(pb.GetTaskRequest(id=asked.task.id))
        said["kept"] = [state(kept.status), [text_of(a.parts) for a in kept.artifacts], len(kept.history)]
        brief = await client.get_task(pb.GetTaskRequest(id=asked.task.id, history_length=0))
        said["brief"] = len(brief.history)
        waiting = await ask(client, "interrupt")
        assert waiting.task is not None
        canceled = await client.cancel_task(pb.CancelTaskRequest(id=waiting.task.id))
        said["canceled"] = state(canceled.status)
        said["failures"] = [
            await failure(client.cancel_task(pb.CancelTaskRequest(id=waiting.task.id))),
            await failure(client.get_task(pb.GetTaskRequest(id="nobody"))),
            await failure(ask(client, "again", streamed.task)),
        ]
        first, second = await watched(client, "slow")
        said["watched"] = [first.text == second.text, second.kinds[:2], first.states[-1], second.states[-1]]
        if sys.argv[4:] != ["0.3"]:
            page = await client.list_tasks(pb.ListTasksRequest(page_size=2, context_id=asked.task.context_id))
            said["listed"] = [[task.id == asked.task.id for task in page.tasks], page.total_size, page.next_page_token]
        return said


if __name__ == "__main__":
    if sys.argv[3:4] == ["push"]:
        found = asyncio.run(pushed(sys.argv[1], sys.argv[2], sys.argv[4]))
    else:
        found = asyncio.run(main(sys.argv[1], sys.argv[2]))
    json.dump(found, sys.stdout)
