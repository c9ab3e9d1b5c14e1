"""AG-UI 1.0."""

from __future__ import annotations

from collections.abc import Iterator

from tests.pairs.agents.scenes import BREAKS, Agent, Ask, Fall, Hang, Heard, Ran, Say, Step, Think, Use, Wire, halves


class Agui(Agent):
    dialect = "ag-ui"

    def hear(self, body: Wire) -> Heard:
        ids = [m["id"] for m in body["messages"]]
        assert len(ids) == len(set(ids))
        heard = Heard([], [t["name"] for t in body["tools"]], thread=body["threadId"])
        for message in body["messages"]:
            agui_message(heard, message)
        for entry in body.get("resume") or []:
            heard.resume, heard.resumed = entry.get("payload"), entry["interruptId"]
            heard.refused = entry["status"] == "cancelled"
        return heard

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        run = {"threadId": "t", "runId": "r"}
        yield {"type": "RUN_STARTED", **run}
        asked: list[Wire] = []
        for number, step in enumerate(steps):
            match step:
                case Ask(interrupt_id, payload, reason, call_id):
                    call = {"toolCallId": call_id} if call_id else {}
                    asked.append({"id": interrupt_id, "reason": reason, **call, **payload})
                case Fall():
                    yield {"type": "RUN_ERROR", "message": BREAKS}
                    return
                case Hang():
                    return
                case _:
                    yield from agui_events(step, f"m{len(self.heard)}-{number}")
        outcome = {"outcome": {"type": "interrupt", "interrupts": asked}} if asked else {}
        yield {"type": "RUN_FINISHED", **run, **outcome}


def agui_message(heard: Heard, message: Wire) -> None:
    content = message.get("content")
    if message["role"] == "tool":
        heard.conversation.append(("result", message["toolCallId"], content))
        return
    if isinstance(content, list):
        for part in content:
            if part["type"] in ("binary", "image"):
                source = part.get("source") or part
                url = source.get("url") or source.get("value")
                data = source.get("data")
                mime = source.get("mimeType")
                heard.images.append(
                    f"data:{mime};base64,{data or url}" if data or source.get("type") == "data" else url
                )
        content = "".join(p["text"] for p in content if p["type"] == "text")
    if content and message["role"] in ("system", "user", "assistant"):
        heard.conversation.append((message["role"], content))
    for call in message.get("toolCalls") or []:
        heard.conversation.append(("call", call["id"], call["function"]["name"], call["function"]["arguments"]))


def agui_events(step: Step, name: str) -> Iterator[Wire]:
    match step:
        case Say(text):
            yield {"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"}
            for piece in halves(text):
                yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": piece}
            yield {"type": "TEXT_MESSAGE_END", "messageId": name}
        case Think(text):
            yield {"type": "REASONING_START", "messageId": name}
            yield {"type": "REASONING_MESSAGE_START", "messageId": name, "role": "reasoning"}
            for piece in halves(text):
                yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": name, "delta": piece}
            yield {"type": "REASONING_MESSAGE_END", "messageId": name}
            yield {"type": "REASONING_END", "messageId": name}
        case Use(call_id, tool, arguments) | Ran(call_id, tool, arguments):
            yield {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": tool, "parentMessageId": "calls"}
            for piece in halves(arguments):
                yield {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": piece}
            yield {"type": "TOOL_CALL_END", "toolCallId": call_id}
            if isinstance(step, Ran):
                yield {
                    "type": "TOOL_CALL_RESULT",
                    "toolCallId": call_id,
                    "messageId": f"{name}-result",
                    "content": step.result,
                }
