"""Extras are a dialect's own: what several dialects need is a field of the model."""

from __future__ import annotations

import ast
from pathlib import Path

import bridge.dialects
from bridge.codec import registry
from bridge.model import Message, Request, Text
from bridge.testing.wires import context

ADAPTERS = Path(bridge.dialects.__file__).parent
BUILT_ON = {("agent_runs", "ag-ui"), ("ag_kit", "ag-ui")}
"""Dialects whose wire is that of another one: what they note is noted for that."""
LEFT = {("agentscope/contents.py", "openai-chat"), ("agentscope/encoder.py", "openai-chat")}
"""The detail of an image, and the log probabilities of a text."""


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
    assert found == LEFT


def test_fields_that_apis_share_pass_between_their_dialects() -> None:
    asked = Request([Message("user", [Text("Hi")])], model="m", shared={"service_tier": "flex", "unheard_of": 1})
    for name in ("openai-chat", "openai-responses"):
        dialect = registry.get(name)
        body = dialect.encode_request(asked, context(dialect.back_options())).body
        assert b'"service_tier":"flex"' in body
        assert b"unheard_of" not in body
