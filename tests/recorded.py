"""Recorded wires as a backend's answers: the bytes of every capture, by the dialect that reads them."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path

from bridge.contract import registry
from bridge.testing.wires import decode, encode
from bridge.translation.framing import messages

CAPTURES = Path(__file__).parent / "captures"
# Neither of them is what a backend answered.
_ASKED = (".request.", ".client.")
_SESSIONS = ("RouteAgentCalling", "CallAgent")


def body(path: Path) -> bytes:
    """What a recorded file holds; of a recorded HTTP message, the body without its chunks."""
    data = path.read_bytes()
    if path.suffix == ".jsonl":
        return b"".join(b"data: " + line + b"\n\n" for line in data.splitlines())
    if path.suffix != ".http":
        return data
    head, _, rest = data.partition(b"\r\n\r\n")
    chunked = b"transfer-encoding: chunked" in head.lower()
    return re.sub(rb"(?:\A|\r\n)[0-9a-fA-F]+\r\n", b"", rest) if chunked else rest


@cache
def answers(dialect: str) -> dict[str, bytes]:
    """Each recorded answer of a backend of this dialect by its name: streams, bodies in one piece, errors.

    AgentScope's Java form was recorded as requests only: its answers are those of the Python form, written in it.
    """
    if dialect == "agentscope-java":
        java, python = registry.get(dialect), registry.get("agentscope")
        return {name: encode(java, decode(python, [wire])) for name, wire in answers("agentscope").items()}
    paths = [p for p in sorted((CAPTURES / dialect).glob("*.*")) if p.name != "index.json"]
    if dialect == "acp":
        return {name: wire for path in paths for name, wire in _prompts(path).items()}
    if dialect == "aip":
        return {name: wire for path in paths for name, wire in _sessions(path).items()}
    return {p.name: body(p) for p in paths if not any(word in p.name for word in _ASKED)}


def _sessions(path: Path) -> dict[str, bytes]:
    """What agents answered in a recorded session: one stream of messages for each hop."""
    out: dict[str, bytes] = {}
    for number, rpc in enumerate(json.loads(path.read_text())["rpcs"]):
        said = [base64.b64decode(e["raw_b64"]) for e in rpc["events"] if e["dir"] == "s2c" and "raw_b64" in e]
        if said and rpc["method"].rpartition("/")[2] in _SESSIONS:
            out[f"{path.stem}-{number}"] = messages.join(said)
    return out


def _prompts(path: Path) -> dict[str, bytes]:
    """What an agent said in each prompt of a recorded conversation, to the answer: one message on each line."""
    open_prompts: dict[object, tuple[str, list[bytes]]] = {}
    out: dict[str, bytes] = {}
    for record in map(json.loads, path.read_text().splitlines()):
        line = record.get("line", "")
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if not isinstance(message, dict):
            continue
        if record["from"] == "client" and message.get("method") == "session/prompt":
            open_prompts[message["id"]] = message["params"]["sessionId"], []
        elif record["from"] == "agent" and "method" in message:
            named = (message.get("params") or {}).get("sessionId")
            for session, lines in open_prompts.values():
                if session == named:
                    lines.append(line.encode())
        elif record["from"] == "agent" and message.get("id") in open_prompts:
            _, lines = open_prompts.pop(message["id"])
            out[f"{path.stem}-{len(out)}"] = b"\n".join([*lines, line.encode()]) + b"\n"
    return out
