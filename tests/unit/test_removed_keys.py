"""A configuration with a key that there is no more is refused with its place and what holds instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.engine.config import load
from bridge.engine.config.kinds import back_options, front_options
from bridge.engine.config.removed import REMOVED
from bridge.errors import ConfigError

# Each dialect that once had the option.
HAD = {
    "arguments": ["agentscope", "agentscope-java"],
    "done_mark": ["ag-kit"],
    "honour_stream": ["agentscope", "agentscope-java"],
    "keepalive": ["ag-kit", "ag-ui", "gemini", "ollama", "openai-responses"],
    "length": ["agentscope", "agentscope-java"],
    "message_separator": ["ag-kit", "aip", "gemini", "ollama", "openai-chat"],
    "restarts": ["acp"],
}
MOUNTS: dict[str, dict[str, Any]] = {"aip": {"listen": "127.0.0.1:50051", "agent_id": "a"}}
AGENT = {"dialect": "acp", "command": "agent", "cwd": "."}
ROUTE = {"dialect": "ag-ui", "path": "/x", "backend": "it"}


def refused(folder: Path, backend: dict[str, Any], route: dict[str, Any]) -> str:
    """The error for these two, the backend in line 2 and the route in line 5."""
    path = folder / "config.yaml"
    text = f"backends:\n  it: {json.dumps(backend)}\n  demo: {{dialect: demo}}\nroutes:\n  - {json.dumps(route)}\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path, env={})
    return str(caught.value).removeprefix(f"{path}:")


def test_every_removed_option_is_tried() -> None:
    options = {key.rpartition(".options.")[2] for key in REMOVED if ".options." in key}
    assert set(HAD) == options
    assert len(REMOVED) == len(options)


@pytest.mark.parametrize(("option", "dialect"), [(option, name) for option in HAD for name in HAD[option]])
def test_an_option_that_there_was_is_refused(tmp_path: Path, option: str, dialect: str) -> None:
    if option == "restarts":
        error, place = refused(tmp_path, {**AGENT, "options": {option: 2}}, ROUTE), "2: backends.it"
        model, key = back_options(dialect), f"backends.options.{option}"
    else:
        mount = MOUNTS.get(dialect, {"path": "/v1"})
        route = {"dialect": dialect, **mount, "backend": "demo", "options": {option: "x"}}
        error, place = refused(tmp_path, {"dialect": "demo"}, route), "5: routes[0]"
        model, key = front_options(dialect), f"routes.options.{option}"
    assert error == f"{place}.options.{option}: `{option}` is gone: {REMOVED[key]}"
    assert model is not None
    assert option not in model.model_fields
