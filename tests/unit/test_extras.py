"""Extras are a dialect's own: what several dialects need is a field of the model."""

from __future__ import annotations

import ast
from pathlib import Path

import bridge.dialects
from bridge.contract import registry
from bridge.model import FinishReason, Media, MediaKind, Message, PartKind, Request, Text, TextDelta, Url
from bridge.model.jsontext import dumps
from bridge.testing.wires import context, decode, encode

ADAPTERS = Path(bridge.dialects.__file__).parent
BUILT_ON = {("agent_runs", "ag-ui"), ("ag_kit", "ag-ui"), ("openai_chat", "openai-responses")}
"""Dialects whose wire is that of another one, for some clients or for all: what they note is noted for that."""


def test_no_adapter_names_another_dialect() -> None:
    names = {name: registry.get(name) for name in registry.names()}
    folders = {name: type(dialect).__module__.split(".")[-2] for name, dialect in names.items()}
    found = set()
    for file in sorted(ADAPTERS.rglob("*.py")):
        place = file.relative_to(ADAPTERS)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            value = node.value if isinstance(node, ast.Constant) else None
            if not isinstance(value, str) or folders.get(value, place.parts[0]) == place.parts[0]:
                continue
            if (place.parts[0], value) not in BUILT_ON:
                found.add((str(place), value))
    assert found == set()


def test_fields_that_apis_share_pass_between_their_dialects() -> None:
    asked = Request([Message("user", [Text("Hi")])], model="m", shared={"service_tier": "flex", "unheard_of": 1})
    for name in ("openai-chat", "openai-responses"):
        dialect = registry.get(name)
        body = dialect.encode_request(asked, context(dialect.back_options())).body
        assert b'"service_tier":"flex"' in body
        assert b"unheard_of" not in body


LOGPROB = {"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}


def test_log_probabilities_reach_every_dialect_that_has_them() -> None:
    builder = context(None).builder()
    builder.flow(0, PartKind.TEXT, "Hi", {"shared": {"logprobs": {"content": [LOGPROB]}}})
    builder.finish(FinishReason.STOP)
    builder.end()
    events = builder.take()
    for name in ("openai-chat", "openai-responses", "agentscope"):
        assert dumps(LOGPROB) in encode(registry.get(name), events), name
    for name in ("openai-chat", "openai-responses"):
        dialect = registry.get(name)
        delta = next(e for e in decode(dialect, [encode(dialect, events)]) if isinstance(e, TextDelta))
        assert (delta.extras or {})["shared"] == {"logprobs": {"content": [LOGPROB]}}, name


def test_the_detail_of_an_image_reaches_every_dialect_that_has_it() -> None:
    image = Media(MediaKind.IMAGE, Url("https://x.example/a.png"), detail="low")
    request = Request([Message("user", [image])], model="m", thread_id="t")
    for name in ("openai-chat", "openai-responses", "agentscope"):
        dialect = registry.get(name)
        wire = dialect.encode_request(request, context(dialect.back_options(), request))
        assert b'"detail":"low"' in wire.body, name
        (message,) = dialect.decode_request(wire, context(dialect.front_options())).messages
        assert isinstance(message.parts[0], Media)
        assert message.parts[0].detail == "low", name
