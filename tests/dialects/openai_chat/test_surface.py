"""The dialect as an object: what it says of itself is true and documented."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from pydantic import ValidationError

import bridge.dialects.openai_chat
from bridge.contract import Dialect, Operation, Support
from bridge.dialects.openai_chat import OpenAIChat, dialect
from bridge.dialects.openai_chat.options import BackOptions, FrontOptions
from bridge.model import HistoryMode

ROOM = Path(bridge.dialects.openai_chat.__file__).parent


def test_the_object() -> None:
    assert isinstance(dialect, Dialect)
    assert type(dialect) is OpenAIChat
    assert dialect.name == "openai-chat"
    assert [(e.method, e.path, e.operation) for e in dialect.surface if e.operation is not Operation.FORWARD] == [
        ("POST", "/chat/completions", Operation.RUN),
        ("GET", "/models", Operation.MODELS),
        ("GET", "/models/{id:.+}", Operation.MODELS),
    ]


def test_the_card() -> None:
    capabilities = dialect.capabilities
    assert (capabilities.history, capabilities.keeps_history, capabilities.eager_start) == (
        HistoryMode.FULL,
        False,
        False,
    )
    assert (capabilities.client_runs_calls, str(capabilities.runs_tools)) == (True, "never")
    for entry in [*capabilities.answers.values(), *capabilities.requests.values()]:
        assert (entry.support is Support.EXACT) is not bool(entry.reason)


@pytest.mark.parametrize("options", [FrontOptions, BackOptions])
def test_options_are_described(options: type[FrontOptions] | type[BackOptions]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "dialects" / "openai-chat.md").read_text()
    for name, field in options.model_fields.items():
        assert field.description
        assert f"| `{name}` |" in page
    with pytest.raises(ValidationError):
        options.model_validate({"nonsense": 1})


def test_a_codec_has_no_clock_and_no_sockets() -> None:
    rooms = (
        "bridge.dialects.openai_chat",
        "bridge.dialects.openai.",
        "bridge.contract",
        "bridge.toolkit",
        "bridge.model",
        "bridge.errors",
    )
    allowed = (*rooms, "pydantic", "orjson")
    plain = {"__future__", "base64", "collections.abc", "dataclasses", "functools", "operator", "re", "typing"}
    for file in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert [n for n in names if n not in plain and not n.startswith(allowed)] == [], file.name
