"""One conversation of a person with the bridge, by the client of each frontend protocol, told in the same words.

OpenAI chat by the `openai` package, AG-UI by the official client, AgentScope and AG-Kit by the rules of their pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any, Protocol

import aiohttp
import orjson

from tests.interop.client import Frontend, View
from tests.pairs.clients import Call, Seen, agentscope_client, openai_client

NAME, DESCRIPTION = "set-color", "Paints the page"
SCHEMA = {"type": "object", "properties": {"color": {"type": "string"}}}
_FUNCTION = {"type": "function", "function": {"name": NAME, "description": DESCRIPTION, "parameters": SCHEMA}}


class Talk(Protocol):
    """A client with one conversation; each request offers the tool `set-color`."""

    async def say(self, text: str) -> Seen: ...

    async def answer(self, call_id: str, result: str) -> Seen:
        """The result of a tool that this client ran."""
        ...

    async def leave(self, text: str) -> str:
        """Says this and goes away with the first words of the answer, which it returns."""
        ...


async def _left(reading: asyncio.Task[Seen], seen: Seen) -> str:
    await seen.started.wait()
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    return seen.text


class ChatTalk:
    """Sends the whole talk each time, without any id of it."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._messages: list[dict[str, Any]] = []

    async def say(self, text: str) -> Seen:
        return await self._ask({"role": "user", "content": text})

    async def answer(self, call_id: str, result: str) -> Seen:
        return await self._ask({"role": "tool", "tool_call_id": call_id, "content": result})

    async def leave(self, text: str) -> str:
        seen = Seen()
        return await _left(asyncio.create_task(self._ask({"role": "user", "content": text}, seen)), seen)

    async def _ask(self, message: dict[str, Any], seen: Seen | None = None) -> Seen:
        self._messages.append(message)
        seen = await openai_client(self._base, self._messages, seen=seen, tools=[_FUNCTION])
        if seen.error is None:
            said: dict[str, Any] = {"role": "assistant", "content": seen.text}
            if seen.calls:
                said["tool_calls"] = [
                    {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                    for c in seen.calls
                ]
            self._messages.append(said)
        return seen


class ScopeTalk:
    """Sends what is new."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._session = uuid.uuid4().hex

    async def say(self, text: str) -> Seen:
        return await self._ask({"role": "user", "content": text})

    async def answer(self, call_id: str, result: str) -> Seen:
        return await self._ask({"role": "tool", "tool_call_id": call_id, "content": result})

    async def leave(self, text: str) -> str:
        """What it has seen so far is not told: its web frontend takes the last word only."""
        seen = Seen()
        return await _left(asyncio.create_task(self._ask({"role": "user", "content": text}, seen)), seen)

    async def _ask(self, message: dict[str, Any], seen: Seen | None = None) -> Seen:
        more = {"session_id": self._session, "tools": [_FUNCTION]}
        return await agentscope_client(self._base, [message], seen=seen, **more)


class KitTalk:
    """Sends what is new, in generation 1."""

    def __init__(self, base: str) -> None:
        self._url = f"{base}/ag-kit/send-message"
        self._conversation = uuid.uuid4().hex
        self.interrupts: list[dict[str, Any]] = []

    async def say(self, text: str) -> Seen:
        return await self._ask({"messages": [{"role": "user", "content": text}]})

    async def answer(self, call_id: str, result: str) -> Seen:
        return await self._ask({"messages": [{"role": "tool", "content": result, "toolCallId": call_id}]})

    async def resume(self, interrupt_id: str, payload: Any) -> Seen:
        return await self._ask({"resume": {"interruptId": interrupt_id, "payload": payload}})

    async def leave(self, text: str) -> str:
        seen = Seen()
        body = {"messages": [{"role": "user", "content": text}]}
        return await _left(asyncio.create_task(self._ask(body, seen)), seen)

    async def _ask(self, body: dict[str, Any], seen: Seen | None = None) -> Seen:
        seen = seen or Seen()
        tool = {"name": NAME, "description": DESCRIPTION, "parameters": orjson.dumps(SCHEMA).decode()}
        asked = {"conversationId": self._conversation, "tools": [tool], **body}
        async with aiohttp.ClientSession() as session, session.post(self._url, json=asked) as response:
            seen.status = response.status
            if response.status != 200:
                seen.error = await response.text()
                return seen
            done = False
            async for line in response.content:
                data = line.removeprefix(b"data:").strip()
                assert not done or not data, "something after [DONE]"
                if data == b"[DONE]":
                    done = True
                elif data:
                    self._take(orjson.loads(data), seen)
            assert done
        return seen

    def _take(self, event: dict[str, Any], seen: Seen) -> None:
        assert event["type"] == "text" or "content" not in event, "clients would show it"
        match event["type"]:
            case "text":
                seen.text += event["content"]
                seen.started.set()
            case "tool-call-start":
                seen.calls.append(Call(event["toolCallId"], event["toolCallName"], ""))
            case "tool-call-args":
                assert seen.calls[-1].id == event["toolCallId"]
                seen.calls[-1].arguments += event["delta"]
            case "tool-result":
                seen.results.append((event["toolCallId"], event["result"]))
            case "interrupt":
                self.interrupts.append(event)
            case "error":
                seen.error = event["error"]


class UITalk:
    """The official AG-UI client; it sends its whole list."""

    def __init__(self, client: Frontend) -> None:
        self._client = client
        self._more: dict[str, Any] = {
            "tools": [{"name": NAME, "description": DESCRIPTION, "parameters": SCHEMA}],
            "quiet": False,  # it complains of errors, which are wanted here
        }
        self.interrupts: list[dict[str, Any]] = []

    async def say(self, text: str) -> Seen:
        return self._seen(await self._client.say(text, **self._more))

    async def answer(self, call_id: str, result: str) -> Seen:
        return self._seen(await self._client.answer({call_id: result}, **self._more))

    async def resume(self, interrupt_id: str, payload: Any) -> Seen:
        answers = [{"interruptId": interrupt_id, "status": "resolved", "payload": payload}]
        return self._seen(await self._client.run(resume=answers, **self._more))

    async def leave(self, text: str) -> str:
        return (await self._client.say(text, abort_at="TEXT_MESSAGE_CONTENT", **self._more)).text

    def _seen(self, view: View) -> Seen:
        assert view.rejected is None, view.rejected
        self.interrupts += view.interrupts
        calls = [Call(i, name, orjson.dumps(arguments).decode()) for i, name, arguments in view.calls]
        return Seen(text=view.text, calls=calls, results=view.results, error=view.error)
