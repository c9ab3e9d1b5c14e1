"""An agent whose prompts name what it does. It speaks lines of JSON and uses nothing of the bridge.

    python scripted_agent.py [name=value ...]

The settings: `load=yes|late|no`, `resume=yes|promised`, `close=yes`, `same=id` (of all sessions), `version=1`,
`options=no` (the model as agents from before options have it), `auth=new|prompt`, `start=seconds`, `state=folder`
(where sessions are kept for the next process), `die=start`, `spawn=yes` (with a child of its own).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

SETTINGS = dict(each.partition("=")[::2] for each in sys.argv[1:])
WRITING = threading.Lock()
ANSWERS: dict[Any, Waiting] = {}
CANCELED: dict[str, threading.Event] = {}
SESSIONS: dict[str, list[str]] = {}
NUMBER = 0


class Waiting:
    """Waits for the answers to requests with one id."""

    def __init__(self, count: int = 1) -> None:
        self.done = threading.Event()
        self.messages: list[dict[str, Any]] = []
        self.count = count

    def take(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if len(self.messages) == self.count:
            self.done.set()


def write(text: str) -> None:
    with WRITING:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def send(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def ask(method: str, params: dict[str, Any], number: Any = None) -> dict[str, Any]:
    """The whole answer to a request of the agent."""
    global NUMBER
    if number is None:
        number, NUMBER = NUMBER, NUMBER + 1
    waiting = ANSWERS[number] = Waiting()
    send(id=number, method=method, params=params)
    waiting.done.wait()
    return waiting.messages[0]


class Turn:
    def __init__(self, session: str) -> None:
        self.session = session
        self.usage: dict[str, Any] | None = None
        self.meta: dict[str, Any] | None = None

    def update(self, update_kind: str, /, **fields: Any) -> None:
        update = {"sessionUpdate": update_kind, **fields}
        send(method="session/update", params={"sessionId": self.session, "update": update})

    def text(self, text: str, kind: str = "agent_message_chunk", **more: Any) -> None:
        self.update(kind, content={"type": "text", "text": text}, **more)

    def permission(self, call: dict[str, Any], options: list[str] | None = None) -> dict[str, Any]:
        kinds = options or ["allow_once", "allow_always", "reject_once"]
        params = {
            "sessionId": self.session,
            "toolCall": call,
            "options": [{"optionId": f"id-{kind}", "name": kind.replace("_", " "), "kind": kind} for kind in kinds],
        }
        return ask("session/request_permission", params)

    def run(self, words: list[str]) -> str | dict[str, Any]:
        """Do what the prompt says; return the stop reason, or an error."""
        canceled = CANCELED.setdefault(self.session, threading.Event())
        canceled.clear()
        match words:
            case ["say", *rest]:
                for word in rest:
                    self.text(word + " ")
            case ["remember"]:
                self.text(f"{len(SESSIONS[self.session])}: {' / '.join(SESSIONS[self.session])}")
            case ["where"]:
                self.text(f"{os.getcwd()} {os.getpid()} {self.session}")
            case ["env"]:
                self.text(" ".join(sorted(os.environ)))
            case ["tool"]:
                call = {"toolCallId": "c1", "title": "Reading a.txt", "kind": "read"}
                self.update("tool_call", **call, status="pending", rawInput={})
                self.update("tool_call_update", toolCallId="c1", rawInput={"path": "a.txt"}, status="in_progress")
                content = [{"type": "content", "content": {"type": "text", "text": "three lines"}}]
                self.update("tool_call_update", toolCallId="c1", status="completed", content=content)
                self.text("It has three lines.")
            case ["ask", *options]:
                call = {"toolCallId": "c2", "title": "rm -r build", "kind": "execute", "rawInput": {"command": "rm"}}
                answer = self.permission(call, options)
                outcome = answer.get("result", {}).get("outcome", answer)
                if outcome.get("outcome") == "cancelled":
                    if not canceled.wait(1.0):
                        self.text("Nobody canceled.")
                    return "cancelled"
                if "allow" in str(outcome.get("optionId")):
                    content = [{"type": "content", "content": {"type": "text", "text": "gone"}}]
                    self.update("tool_call_update", toolCallId="c2", status="completed", content=content)
                self.text(f"Chosen: {outcome.get('optionId')}")
            case ["write"]:
                diff = {"type": "diff", "path": "/a.txt", "oldText": None, "newText": "x"}
                shown = {"title": "Writing a.txt", "kind": "edit", "locations": [{"path": "/a.txt"}]}
                self.permission(
                    {"toolCallId": "w1", **shown, "content": [diff, {"type": "terminal", "terminalId": "t"}]}
                )
                self.update("tool_call_update", toolCallId="w1", status="completed", content=[diff])
            case ["asktwo"]:
                answers: dict[int, Any] = {}

                def one(number: int) -> None:
                    call = {"toolCallId": f"two-{number}", "title": f"step {number}", "kind": "execute"}
                    answers[number] = self.permission(call)["result"]["outcome"]["optionId"]

                asking = [threading.Thread(target=one, args=(number,)) for number in (1, 2)]
                for thread in asking:
                    thread.start()
                for thread in asking:
                    thread.join()
                self.text(f"{answers[1]} {answers[2]}")
            case ["askslow"]:
                self.permission({"toolCallId": "c3", "title": "echo", "kind": "execute"})
                return self.run(["slow"])
            case ["refused"]:
                self.permission({"toolCallId": "c3", "title": "echo", "kind": "execute"})
                return "cancelled"
            case ["form"]:
                schema = {"type": "object", "properties": {"way": {"type": "string", "enum": ["left", "right"]}}}
                params = {"sessionId": self.session, "mode": "form", "message": "Which way?", "requestedSchema": schema}
                self.text(json.dumps(ask("elicitation/create", params)["result"]))
            case ["diemid"]:
                threading.Timer(0.3, os._exit, (7,)).start()
                self.permission({"toolCallId": "c4", "title": "explode", "kind": "execute"})
            case ["die", *words]:
                self.text("half ")
                sys.stderr.write("boom: sk-secret0123456789 " + " ".join(words) + "\n")
                sys.stderr.flush()
                os._exit(3)
            case ["garbage"]:
                write("this is no JSON")
                write("[1, 2, 3]")
                write("null")
                write("{}")
                send(id=999, result={})
                send(id=None, error={"code": -32700, "message": "what?"})
                self.text("still here")
            case ["foreign"]:
                answers_ = [
                    ask("fs/read_text_file", {"sessionId": self.session, "path": "/etc/passwd"}),
                    ask("terminal/create", {"sessionId": self.session, "command": "ls"}),
                    ask("craft/drain", {}, "a-string"),
                ]
                self.text(" ".join(str(each.get("error", {}).get("code")) for each in answers_))
            case ["ids"]:
                # All ids that the client's own requests may have, among them that of this prompt; then one twice.
                refused = {ask("craft/drain", {}, number)["error"]["code"] for number in range(10)}
                params = {"sessionId": self.session, "toolCall": {"toolCallId": "c6"}, "options": [
                    {"optionId": "yes", "name": "Yes", "kind": "allow_once"}]}  # fmt: skip
                waiting = ANSWERS[7] = Waiting(2)
                asked = {"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params}
                write("\n".join([json.dumps(asked)] * 2))  # at once: the first is not answered before the second comes
                waiting.done.wait()
                again, first = waiting.messages
                self.text(f"{refused} {again['error']['code']} {first['result']['outcome']['optionId']}")
            case ["floodquestions", count, size]:
                call = {"toolCallId": "c7", "title": "y" * int(size)}
                asking = [threading.Thread(target=self.permission, args=(call,)) for _ in range(int(count))]
                for thread in asking:
                    thread.start()
                while len(ANSWERS) < len(asking):
                    time.sleep(0.01)
                ask("craft/drain", {})
                sys.stderr.write("all were read\n")
                sys.stderr.flush()
                for thread in asking:
                    thread.join()
                self.text("all answered")
            case ["large", size]:
                self.text("x" * int(size))
            case ["flood", size]:
                for _ in range(int(size)):
                    self.text("y" * 1000)
            case ["floodask", size]:
                threading.Thread(target=lambda: self.permission({"toolCallId": "c5", "title": "t"})).start()
                time.sleep(0.3)
                for _ in range(int(size)):
                    self.text("y" * 1000)
            case ["slow", *rest]:
                self.text("working ")
                if canceled.wait(float(rest[0]) if rest else 30):
                    return "cancelled"
                self.text("done")
            case ["deaf"]:
                self.text("working ")
                time.sleep(60)
            case ["silent"]:
                time.sleep(60)
            case ["abort"]:
                self.text("working ")
                canceled.wait(30)
                return {"code": -32603, "message": "aborted"}
            case ["error", code, *message]:
                return {"code": int(code), "message": " ".join(message) or "Internal error", "data": {"details": "why"}}
            case ["usage", where]:
                self.usage_in(where)
            case ["stop", reason]:
                self.text("Stopping.")
                return reason
            case ["model"]:
                self.text(str(MODELS.get(self.session)))
            case ["mode"]:
                self.text(MODES.get(self.session, "auto"))
            case ["plan"]:
                self.update("plan", entries=[{"content": "look", "priority": "low", "status": "pending"}])
            case ["odd"]:
                self.update("usage_update", used=5, size=100)
                self.update("available_commands_update", availableCommands=[])
                self.update("session_info_update", title="t")
                self.text("before ", kind="user_message_chunk")
                self.text("")
                send(method="session/update", params={"sessionId": "other", "update": {"sessionUpdate": "x"}})
                self.text("odd")
            case _:
                self.text("?")
        return "end_turn"

    def usage_in(self, where: str) -> None:
        counts = {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18, "cachedReadTokens": 3, "thoughtTokens": 2}
        if where == "answer":
            self.usage = counts
        elif where == "quota":
            self.meta = {"quota": {"token_count": {"input_tokens": 11, "output_tokens": 7}}}
        elif where == "chunks":
            self.text("", _meta={"usage": counts})
            self.text("", _meta={"usage": counts})
        self.update("usage_update", used=500, size=1000)
        self.text("Counted.")


MODELS: dict[str, str] = {}
MODES: dict[str, str] = {}
STATE = Path(SETTINGS["state"]) if "state" in SETTINGS else None


def options_of(session: str) -> dict[str, Any]:
    values = [{"value": "small", "name": "Small"}, {"value": "big", "name": "Big"}]
    current = MODELS.setdefault(session, "small")
    if SETTINGS.get("options") == "no":
        models = [{"modelId": each["value"], "name": each["name"]} for each in values]
        return {"models": {"currentModelId": current, "availableModels": models}}
    option = {"id": "m", "name": "Model", "category": "model", "type": "select", "currentValue": current}
    return {"configOptions": [{**option, "options": values}]}


def keep(session: str) -> None:
    if STATE is not None:
        (STATE / session).write_text(json.dumps(SESSIONS[session]))


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """The result of a request of the client, or its error."""
    params = message.get("params") or {}
    session = params.get("sessionId", "")
    match message["method"]:
        case "initialize":
            time.sleep(float(SETTINGS.get("start", 0)))
            can: dict[str, Any] = {"promptCapabilities": {"image": True}}
            can["loadSession"] = SETTINGS.get("load", "no") != "no"
            can["sessionCapabilities"] = {name: {} for name in ("resume", "close") if name in SETTINGS}
            methods = [{"id": "login", "name": "Log in", "description": "Run `agent login`"}]
            version = int(SETTINGS.get("version", 1))
            sys.stderr.write(json.dumps(params) + "\n")
            return {"result": {"protocolVersion": version, "agentCapabilities": can, "authMethods": methods}}
        case "authenticate":
            return {"result": {}}
        case "session/new":
            if SETTINGS.get("auth") == "new":
                return {"error": {"code": -32000, "message": "Authentication required"}}
            if not os.path.isabs(params["cwd"]) or params["mcpServers"] != []:
                return {"error": {"code": -32602, "message": "Invalid params"}}
            session = SETTINGS.get("same") or uuid.uuid4().hex
            SESSIONS[session] = []
            keep(session)
            modes = [{"id": each, "name": each} for each in ("auto", "default")]
            known = {"currentModeId": "auto", "availableModes": modes}
            return {"result": {"sessionId": session, "modes": known, **options_of(session)}}
        case "session/set_mode":
            MODES[session] = params["modeId"]
            return {"result": {}}
        case "session/resume" if SETTINGS.get("resume") == "promised":
            return {"error": {"code": -32601, "message": "Method not found"}}
        case "session/load" | "session/resume":
            if STATE is None or not (STATE / session).exists():
                return {"error": {"code": -32002, "message": "Resource not found", "data": {"sessionId": session}}}
            SESSIONS[session] = json.loads((STATE / session).read_text())

            def replay() -> None:
                for text in SESSIONS[session]:
                    Turn(session).text(text, kind="user_message_chunk")
                    Turn(session).text("OLD ANSWER")

            if message["method"] == "session/load":
                if SETTINGS["load"] == "late":
                    threading.Timer(0.05, replay).start()
                else:
                    replay()
            return {"result": options_of(session)}
        case "session/close":
            SESSIONS.pop(session, None)
            return {"result": {}}
        case "session/set_config_option" if SETTINGS.get("options") != "no":
            MODELS[session] = params["value"]
            return {"result": options_of(session)}
        case "session/set_model" if SETTINGS.get("options") == "no":
            MODELS[session] = params["modelId"]
            return {"result": {}}
        case "session/prompt":
            return prompt(session, params)
    return {"error": {"code": -32601, "message": "Method not found"}}


def prompt(session: str, params: dict[str, Any]) -> dict[str, Any]:
    if SETTINGS.get("auth") == "prompt":
        return {"error": {"code": -32000, "message": "Authentication required: sk-secret0123456789"}}
    if session not in SESSIONS:
        return {"error": {"code": -32002, "message": "Resource not found"}}
    blocks = params["prompt"]
    text = " | ".join(each.get("text") or each["type"] for each in blocks)
    SESSIONS[session].append(text)
    keep(session)
    turn = Turn(session)
    last = next((each["text"] for each in reversed(blocks) if each["type"] == "text"), "")
    ended = turn.run(last.split())
    if isinstance(ended, dict):
        return {"error": ended}
    result: dict[str, Any] = {"stopReason": ended}
    if turn.usage is not None:
        result["usage"] = turn.usage
    if turn.meta is not None:
        result["_meta"] = turn.meta
    return {"result": result}


def main() -> None:
    if SETTINGS.get("spawn") == "yes":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
    if SETTINGS.get("die") == "start":
        sys.stderr.write("no configuration found\n")
        sys.exit(4)
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            waiting = ANSWERS.get(message["id"])
            if waiting is not None:
                waiting.take(message)
        elif message["method"] == "session/cancel":
            CANCELED.setdefault(message["params"]["sessionId"], threading.Event()).set()
        elif "id" in message:
            work = threading.Thread(target=lambda m: send(id=m["id"], **answer(m)), args=(message,), daemon=True)
            work.start()
            if message["method"] != "session/prompt":
                work.join()


if __name__ == "__main__":
    main()
