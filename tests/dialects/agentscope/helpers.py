"""What the tests of this dialect share: captures, the real schemas, runs through encoder and decoder."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from bridge.contract import Context, Dialect, Frame, FrameLike
from bridge.dialects.agentscope import dialect
from bridge.model import Answer, Event, fold, verify
from bridge.translation.framing.sse import Splitter, join

CAPTURES = Path(__file__).parents[2] / "captures" / "agentscope"
CASES: dict[str, dict[str, Any]] = {c["name"]: c for c in json.loads((CAPTURES / "index.json").read_text())["cases"]}


def _load_schemas() -> ModuleType:
    """The real software's schema module by its file: its package needs much that is not installed."""
    spec = importlib.util.find_spec("agentscope_runtime")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(next(iter(spec.submodule_search_locations))) / "engine" / "schemas" / "agent_schemas.py"
    own = importlib.util.spec_from_file_location("agentscope_schemas", path)
    assert own is not None
    assert own.loader is not None
    module = importlib.util.module_from_spec(own)
    sys.modules[own.name] = module
    own.loader.exec_module(module)
    return module


SCHEMAS = _load_schemas()
CONTENT_CLASSES = {
    "text": "TextContent",
    "data": "DataContent",
    "image": "ImageContent",
    "audio": "AudioContent",
    "video": "VideoContent",
    "file": "FileContent",
    "refusal": "RefusalContent",
}


def context(**fields: Any) -> Context:
    return Context(**{"run_id": "run1", "created_at": 1_700_000_000.0, **fields})


def body_of(case: dict[str, Any]) -> bytes:
    """The recorded body as a client receives it; each line of an events file is one payload."""
    path = CAPTURES / case["response"]["body_file"]
    data = path.read_bytes()
    if path.suffix == ".jsonl":
        return b"".join(b"data: " + line + b"\n\n" for line in data.splitlines())
    return data


def decode(chunks: Iterable[bytes], ctx: Context | None = None, back: Dialect = dialect) -> list[Event]:
    decoder, splitter, out = back.decoder(ctx or context()), Splitter(), []
    for chunk in chunks:
        out += decoder.feed(splitter.feed(chunk))
    out += decoder.feed(splitter.close())
    out += decoder.close()
    return verify(out)


def encode(
    events: Sequence[Event], ctx: Context | None = None, size: int | None = None, front: Dialect = dialect
) -> list[FrameLike]:
    """The frames of these events, in batches of `size`."""
    encoder, out = front.encoder(ctx or context()), []
    step = size or max(1, len(events))
    for at in range(0, len(events), step):
        out += encoder.encode(events[at : at + step])
    return out


def payloads(frames: Sequence[FrameLike]) -> list[dict[str, Any]]:
    data = [f.data if isinstance(f, Frame) else f for f in frames if not (isinstance(f, Frame) and f.comment)]
    return [json.loads(d) for d in data]


def again(events: Sequence[Event], ctx: Context | None = None, form: Dialect = dialect) -> Answer:
    """The answer that comes out when these events go over the wire and back."""
    return fold(decode([join(encode(events, ctx, front=form))], back=form))


def check_schemas(events: Sequence[dict[str, Any]]) -> None:
    """Every event is one that the real software accepts, with all its fields and nothing of another kind."""
    for event in events:
        match event["object"]:
            case "response":
                kind = SCHEMAS.AgentResponse
            case "message":
                kind = SCHEMAS.Message
            case _:
                kind = getattr(SCHEMAS, CONTENT_CLASSES[event["type"]])
        model = kind.model_validate(event)
        missing = set(kind.model_fields) - set(event)
        assert not missing, (event, missing)
        assert model.sequence_number == event["sequence_number"]
