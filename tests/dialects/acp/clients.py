"""People at frontends over HTTP who talk to an agent, answer its questions and leave. See `tests.pairs.people`."""

from __future__ import annotations

from typing import Any

import orjson

from tests.pairs.clients import Call, Seen
from tests.pairs.people import AguiPerson, ChatPerson, ContinuingPerson, Person, Question, _events

Wire = dict[str, Any]


class AiSdkPerson(Person):
    """`useChat` of the AI SDK: the whole chat every time, as its chunks built it; approvals are states of calls."""

    route = "/ai-sdk"
    dialect = "ai-sdk-ui"

    def __init__(self, base: str, thread: str, tools: tuple[str, ...] = ()) -> None:
        super().__init__(base, thread, tools)
        self.messages: list[Wire] = []

    async def say(self, text: str, image: str | None = None) -> Seen:
        message = {"id": f"u-{len(self.messages)}", "role": "user", "parts": [{"type": "text", "text": text}]}
        self.messages.append(message)
        return await self._send()

    async def resume(self, payload: Any) -> Seen:
        for part in self.messages[-1]["parts"]:
            if part.get("state") == "approval-requested":
                part["state"] = "approval-responded"
                part["approval"]["approved"] = payload == "yes"
        return await self._send()

    async def _send(self) -> Seen:
        if self.messages[-1]["role"] == "user":
            self.messages.append({"id": f"a-{len(self.messages)}", "role": "assistant", "parts": []})
            sent = self.messages[:-1]
        else:
            sent = self.messages
        message, self.asked, seen = self.messages[-1], [], Seen()
        self.seen = seen
        parts: dict[str, Wire] = {p["toolCallId"]: p for p in message["parts"] if "toolCallId" in p}
        async for data in _events(f"{self.base}{self.route}", {"id": self.thread, "messages": sent}, seen):
            if data != b"[DONE]":
                self._chunk(orjson.loads(data), message, parts)
                seen.started.set()
        return seen

    def _chunk(self, chunk: Wire, message: Wire, parts: dict[str, Wire]) -> None:
        seen = self.seen
        match chunk["type"]:
            case "start":
                message["id"] = chunk.get("messageId", message["id"])
            case "start-step":
                message["parts"].append({"type": "step-start"})
            case "text-start" | "reasoning-start" as kind:
                parts[chunk["id"]] = {"type": kind.partition("-")[0], "text": ""}
                message["parts"].append(parts[chunk["id"]])
            case "text-delta" | "reasoning-delta":
                part = parts[chunk["id"]]
                part["text"] += chunk["delta"]
                if part["type"] == "text":
                    seen.text += chunk["delta"]
                else:
                    seen.reasoning += chunk["delta"]
            case "tool-input-available":
                name, call_id = chunk["toolName"], chunk["toolCallId"]
                kind = "dynamic-tool" if chunk.get("dynamic") else f"tool-{name}"
                parts[call_id] = {"type": kind, "toolName": name, "toolCallId": call_id, "state": "input-available"}
                parts[call_id]["input"] = chunk["input"]
                message["parts"].append(parts[call_id])
                seen.calls.append(Call(call_id, name, orjson.dumps(chunk["input"]).decode()))
            case "tool-approval-request":
                part = parts[chunk["toolCallId"]]
                part |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
                self.asked.append(Question(chunk["approvalId"], part["input"], chunk["toolCallId"]))
            case "tool-output-available":
                parts[chunk["toolCallId"]] |= {"state": "output-available", "output": chunk["output"]}
                seen.results.append((chunk["toolCallId"], str(chunk["output"])))
            case "tool-output-error":
                parts[chunk["toolCallId"]] |= {"state": "output-error", "errorText": chunk["errorText"]}
                seen.results.append((chunk["toolCallId"], chunk["errorText"]))
            case "tool-output-denied":
                parts[chunk["toolCallId"]]["state"] = "output-denied"
            case "error":
                seen.error = chunk["errorText"]
            case "finish":
                seen.finish = chunk.get("finishReason", "stop")


class A2aPerson(Person):
    """A client of A2A 1.0: messages in a context, and answers to the task that waits."""

    route = "/a2a"
    dialect = "a2a"

    def __init__(self, base: str, thread: str, tools: tuple[str, ...] = ()) -> None:
        super().__init__(base, thread, tools)
        self.count = 0

    async def say(self, text: str, image: str | None = None) -> Seen:
        return await self._send(text)

    async def resume(self, payload: Any) -> Seen:
        return await self._send(payload, taskId=self.asked[0].id)

    async def _send(self, text: str, **more: Any) -> Seen:
        self.count += 1
        message = {"messageId": f"{self.thread}-{self.count}", "role": "ROLE_USER", "parts": [{"text": text}]}
        params = {"message": {**message, "contextId": self.thread, **more}}
        body = {"jsonrpc": "2.0", "id": self.count, "method": "SendStreamingMessage", "params": params}
        seen, self.asked = Seen(), []
        self.seen = seen
        async for data in _events(f"{self.base}{self.route}?A2A-Version=1.0", body, seen):
            event = orjson.loads(data)
            if "error" in event:
                seen.error = event["error"]["message"]
                continue
            result = event["result"]
            seen.text += _words(result.get("artifactUpdate", {}).get("artifact", {}))
            if (update := result.get("statusUpdate")) is not None:
                seen.finish = state = update["status"]["state"].removeprefix("TASK_STATE_").lower()
                said = _words(update["status"].get("message", {}))
                if state == "input_required":
                    self.asked = [Question(update["taskId"], said)]
                elif state in ("failed", "rejected"):
                    seen.error = said
            seen.started.set()
        return seen


def _words(holder: Wire) -> str:
    return "".join(part.get("text", "") for part in holder.get("parts", ()))


PEOPLE: dict[str, type[Person]] = {
    person.dialect: person for person in (ChatPerson, ContinuingPerson, AguiPerson, A2aPerson, AiSdkPerson)
}
"""Somebody at each of the frontends of agents, by dialect."""
