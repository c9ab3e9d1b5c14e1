#!/usr/bin/env python3
"""What it costs to pass a long conversation on: reading the request, the stages before the call, writing it.

    python bench/micro/conversation.py [rounds]        # CPU time of each step, beside orjson.loads of the same bytes
    python bench/micro/conversation.py --bytecodes     # bytecodes of each step, by function
    python bench/micro/conversation.py --times N       # run all steps N times and say nothing, to count instructions

Unlike the other micro benchmarks this one runs the code of the bridge, from `openai-chat` to `anthropic-messages` and
to `openai-chat`. Bytecodes do not depend on how busy the machine is, so that tests hold them (`tests/bench`).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bridge.contract import Context, Losses, WireRequest
from bridge.contract.registry import resolve
from bridge.model import Request
from bridge.model.error_paths import note_places
from bridge.translation.policies.stages import StageContext, prepare
from bridge.translation.requirements import required

MESSAGES, CHARACTERS = 100, 400
FRONT = "openai-chat"
BACKS = ("anthropic-messages", "openai-chat")
_SENTENCE = "The quick brown fox jumps over the lazy dog, and says so. "
_TEXT = (_SENTENCE * (CHARACTERS // len(_SENTENCE) + 1))[:CHARACTERS]

Step = Callable[[], Any]


def plain(messages: int = MESSAGES) -> bytes:
    """A system message, then a user and an assistant who take turns; the user speaks last."""
    roles = ("user", "assistant")
    turns = [{"role": roles[n % 2], "content": f"{n}: {_TEXT}"} for n in range(messages - 1)]
    return orjson.dumps({"model": "m", "messages": [{"role": "system", "content": _TEXT}, *turns]})


def agent(messages: int = MESSAGES) -> bytes:
    """A task of the user on which an assistant works with tools: each other message is a call with its result."""
    said: list[dict[str, Any]] = [{"role": "system", "content": _TEXT}, {"role": "user", "content": _TEXT}]
    while len(said) < messages:
        call_id = f"call_{len(said)}"
        function = {"name": "read_file", "arguments": '{"path":"src/main.py","lines":[1,120]}'}
        calls = [{"id": call_id, "type": "function", "function": function}]
        said += [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call_id, "content": f"{len(said)}: {_TEXT}"},
        ]
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": parameters}}]
    return orjson.dumps({"model": "m", "messages": said, "tools": tools})


BODIES = {"plain": plain, "agent": agent}


class Passage:
    """One body on its way from `FRONT` to `back`: each method is a step."""

    def __init__(self, body: bytes, back: str) -> None:
        self.front, self.back = resolve(FRONT), resolve(back)
        self.wire = WireRequest("POST", "", {"content-type": "application/json"}, body=body)
        self.asked = Context("run", None, 1.0, self.front.front_options())
        self.options = self.back.back_options()

    def load(self) -> Any:
        return orjson.loads(self.wire.body)

    def read(self) -> Request:
        request = self.front.decode_request(self.wire, self.asked)
        note_places(request)
        return request

    def stages(self, request: Request) -> Request:
        lost = Losses()
        front, back = self.front.capabilities, self.back.capabilities
        prepared = prepare((), StageContext(request, front, back, self.asked.options, lost))
        return required(prepared.request, back.demands, lost, prepared.survey)

    def write(self, request: Request) -> WireRequest:
        context = Context("run", None, 1.0, self.options, "m", request, Losses())
        return self.back.encode_request(request, context)

    def steps(self) -> dict[str, Step]:
        """The steps by name, each with what the one before has made."""
        request = self.read()
        staged = self.stages(request)
        return {
            "orjson.loads": self.load,
            "read": self.read,
            "stages": lambda: self.stages(request),
            "write": lambda: self.write(staged),
        }


def passages() -> dict[str, Passage]:
    """By a name such as `plain -> anthropic-messages`."""
    return {f"{kind} -> {back}": Passage(make(), back) for kind, make in BODIES.items() for back in BACKS}


def bytecodes(step: Step) -> Counter[str]:
    """How many bytecodes one run of a step executes, by function. The second run counts: caches are filled by then."""
    step()
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            code = frame.f_code
            found[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        step()
    finally:
        sys.settrace(before)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", type=int, nargs="?", default=15)
    parser.add_argument("--bytecodes", action="store_true", help="count bytecodes")
    parser.add_argument("--times", type=int, help="only run, so many times")
    args = parser.parse_args()
    for name, passage in passages().items():
        steps = passage.steps()
        if args.times is not None:
            for _ in range(args.times):
                passage.write(passage.stages(passage.read()))
            continue
        print(f"\n{name}: {len(passage.wire.body)} bytes, {MESSAGES} messages")
        if args.bytecodes:
            for what, step in steps.items():
                found = bytecodes(step)
                print(f"{found.total():9}  {what}")
                for function, number in found.most_common(8):
                    print(f"{number:15}  {function}")
            continue
        from common import run

        def repeated(step: Step) -> Step:
            def go() -> None:
                for _ in range(10):
                    step()

            return go

        run([(what, repeated(step)) for what, step in steps.items()], per=10, rounds=args.rounds)


if __name__ == "__main__":
    main()
