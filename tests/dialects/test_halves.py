"""A character that a server cut in two between pieces of a text reaches the client whole, whatever the dialect.

Agents in Java and JavaScript count UTF-16 units, so a piece may end in the middle of a surrogate pair. AIP is not here:
its texts are UTF-8 by its schema, and hold no halves.
"""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from bridge.contract import Dialect, Feature, Support, registry
from bridge.model import Builder, FinishReason, PartKind, fold, verify
from bridge.testing.wires import context, decode, encode

TEXT = "a\U0001f600b\U0001f601\U0001f602"
UNITS = [TEXT.encode("utf-16-le")[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, 16, 2)]
CUTS = [(n,) for n in range(1, len(UNITS))] + [tuple(range(1, len(UNITS)))]
KINDS = {PartKind.TEXT: Feature.TEXT, PartKind.REASONING: Feature.REASONING, PartKind.TOOL_CALL: Feature.TOOL_CALL}
WRITTEN = [d for d in (registry.get(name) for name in registry.names()) if d.served and d.called and d.name != "aip"]
ROWS = [(d, kind) for d in WRITTEN for kind in KINDS if d.capabilities.answer(KINDS[kind]) is Support.EXACT]


def pieces(cuts: tuple[int, ...]) -> list[str]:
    edges = [0, *cuts, len(UNITS)]
    return ["".join(UNITS[a:b]) for a, b in pairwise(edges)]


def wire(dialect: Dialect, kind: PartKind, cut: list[str]) -> bytes:
    """The stream of a server of this dialect. What it writes of each piece is replaced by the piece with its halves."""
    marks = [f"xx{number}xx" for number in range(len(cut))]
    builder = Builder("run1", "thread1", 1_700_000_000.0, context(dialect.front_options()).make_id)
    name = "f" if kind is PartKind.TOOL_CALL else None
    builder.open_part("p", "m", kind, call_id="c", name=name)
    for piece in ['{"a":"', *marks, '"}'] if name else marks:
        builder.delta("p", piece)
    builder.end_part("p")
    builder.finish(FinishReason.STOP)
    builder.end()
    out = encode(dialect, builder.take())
    for mark, piece in zip(marks, cut, strict=True):
        out = out.replace(mark.encode(), json.dumps(piece)[1:-1].encode())
    return out


def said(dialect: Dialect, reads: list[bytes], kind: PartKind) -> str:
    answer = fold(verify(decode(dialect, reads)))
    if kind is PartKind.TOOL_CALL:
        return str(json.loads(answer.calls[0].arguments)["a"])
    return answer.text if kind is PartKind.TEXT else answer.reasoning.strip()


@pytest.mark.parametrize(("dialect", "kind"), ROWS, ids=[f"{d.name}-{kind}" for d, kind in ROWS])
@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: "every" if len(cuts) > 1 else str(cuts[0]))
def test_a_pair_cut_anywhere_is_joined(dialect: Dialect, kind: PartKind, cuts: tuple[int, ...]) -> None:
    stream = wire(dialect, kind, pieces(cuts))
    assert said(dialect, [stream], kind) == TEXT
    assert said(dialect, stream.splitlines(keepends=True), kind) == TEXT


@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: "every" if len(cuts) > 1 else str(cuts[0]))
def test_a_pair_cut_by_an_agent_service_is_joined(cuts: tuple[int, ...]) -> None:
    """Nothing here writes this wire."""
    deltas = [{"type": "TEXT_BLOCK_DELTA", "block_id": "b", "delta": piece} for piece in pieces(cuts)]
    begun = [{"type": "REPLY_START"}, {"type": "MODEL_CALL_START", "model_name": "m"}]
    events = [*begun, *deltas, {"type": "REPLY_END", "finished_reason": "completed"}]
    numbered = [{**event, "id": f"e{number}", "reply_id": "r"} for number, event in enumerate(events)]
    reads = [f"data: {json.dumps(event)}\n\n".encode() for event in numbered]
    assert said(registry.get("agentscope-service"), reads, PartKind.TEXT) == TEXT
