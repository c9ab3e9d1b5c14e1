"""The dialect as an object: what it says of itself is true and documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

import bridge.dialects.anthropic_messages
from bridge.contract import Dialect, Operation, Support
from bridge.dialects.anthropic_messages import AnthropicMessages, dialect
from bridge.dialects.anthropic_messages.options import BackOptions, FrontOptions
from bridge.model import HistoryMode

ROOM = Path(bridge.dialects.anthropic_messages.__file__).parent


def test_the_object() -> None:
    assert isinstance(dialect, Dialect)
    assert type(dialect) is AnthropicMessages
    assert dialect.name == "anthropic-messages"
    assert [(e.method, e.path, e.operation, e.header) for e in dialect.surface] == [
        ("POST", "/messages", Operation.RUN, None),
        ("POST", "/messages/count_tokens", Operation.COUNT, None),
        ("GET", "/models", Operation.MODELS, "anthropic-version"),
        ("GET", "/models/{id:.+}", Operation.MODELS, "anthropic-version"),
    ]
    assert dialect.auth_headers("k") == {"x-api-key": "k"}
    asked = dialect.models_request()
    assert asked is not None
    assert (asked.path, asked.headers["anthropic-version"]) == ("/v1/models", "2023-06-01")


def test_the_card() -> None:
    capabilities = dialect.capabilities
    assert (capabilities.history, capabilities.keeps_history, capabilities.eager_start) == (
        HistoryMode.FULL,
        False,
        False,
    )
    assert (capabilities.client_runs_calls, str(capabilities.runs_tools), capabilities.usage_on_failure) == (
        True,
        "never",
        False,
    )
    for entry in [*capabilities.answers.values(), *capabilities.requests.values()]:
        assert (entry.support is Support.EXACT) is not bool(entry.reason)


@pytest.mark.parametrize("options", [FrontOptions, BackOptions])
def test_options_are_described(options: type[FrontOptions] | type[BackOptions]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "dialects" / "anthropic-messages.md").read_text()
    for name, field in options.model_fields.items():
        assert field.description
        assert f"| `{name}` |" in page
    with pytest.raises(ValidationError):
        options.model_validate({"nonsense": 1})
