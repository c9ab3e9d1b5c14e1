"""Configurations that are valid and almost surely wrong, and files that no configuration needs."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.engine.config import load, parse
from bridge.engine.config.advice import warnings
from bridge.errors import ConfigError


def test_a_large_file_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="expected a file of at most 1048576 characters, got 4000000"):
        load("config.yaml", text="a" * 4_000_000)


def test_endless_nesting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^config\.yaml: lists and mappings are nested too deeply$"):
        load("config.yaml", text="backends: " + "[" * 5000)


def test_aliases_that_stand_for_billions_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="expected at most 100000 values in the file, aliases included"):
        load("config.yaml", text="\n".join(lines))


ADVICE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "variable without braces": (
        {"api_key": "$LLM_KEY"}, {},
        "backends.it.api_key: $LLM_KEY is used literally; an environment variable is written ${LLM_KEY}",
    ),
    "model without braces": (
        {"model": "$MODEL"}, {},
        "backends.it.model: $MODEL is used literally; an environment variable is written ${MODEL}",
    ),
    "variable of LiteLLM": (
        {"api_key": "os.environ/LLM_KEY"}, {},
        "backends.it.api_key: os.environ/LLM_KEY is used literally; an environment variable is written ${LLM_KEY}",
    ),
    "variable of a template": (
        {"model": "{{ env.MODEL }}"}, {},
        "backends.it.model: {{ env.MODEL }} is used literally; an environment variable is written ${MODEL}",
    ),
    "variable of Windows": (
        {"model": "%MODEL%"}, {},
        "backends.it.model: %MODEL% is used literally; an environment variable is written ${MODEL}",
    ),
    "placeholder": ({"api_key": "<your key>"}, {}, "backends.it.api_key: this looks like a placeholder"),
    "milliseconds": (
        {"timeouts": {"idle": 30000}}, {},
        "backends.it.timeouts.idle: 30000 s are 8.3 hours; a number is in seconds",
    ),
    "version twice": ({"url": "http://llm.example/v1/v1"}, {}, "backends.it.url: has /v1 twice"),
    "durable without clients that resume": (
        {}, {"durable": True},
        "routes[0].durable: clients of openai-chat cannot resume a stream, so that runs are stored, and "
        "continue after their clients disconnect, without use",
    ),
    "tasks that are kept nowhere": (
        {}, {"dialect": "a2a", "path": "/a2a"},
        "routes[0].durable: a task that waits for an answer is kept in the process that asked, so that a restart loses "
        "it, and another worker does not know it; durable: true stores it",
    ),
    "url of an endpoint": (
        {"url": "http://llm.example/v1/chat/completions"}, {},
        "backends.it.url: expected the base URL; the dialect adds /chat/completions itself",
    ),
    "a tool without a description": (
        {}, {"dialect": "mcp", "path": "/mcp"},
        "routes[0].options.description: missing; a model chooses a tool by its description",
    ),
    "one of several tools without a description": (
        {}, {"dialect": "mcp", "path": "/mcp", "backend": None,
             "tools": {"a": {"backend": "it", "description": "Knows a."}, "b": {"backend": "it"}}},
        "routes[0].tools.b.description: missing; a model chooses a tool by its description",
    ),
    "path of an endpoint": (
        {}, {"path": "/v1/chat/completions"},
        "routes[0].path: clients find it at /v1/chat/completions/chat/completions; the dialect adds /chat/completions "
        "itself",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ADVICE)
def test_what_is_almost_surely_wrong(name: str) -> None:
    backend, route, said = ADVICE[name]
    chat = {"dialect": "openai-chat", "url": "http://llm.example/v1", "model": "m"}
    routes = [{"dialect": "openai-chat", "path": "/v1", "backend": "it", **route}]
    assert warnings(parse({"backends": {"it": {**chat, **backend}}, "routes": routes})) == [said]


def test_a_limit_in_megabytes() -> None:
    config = {"server": {"max_body": 10}, "backends": {"it": {"dialect": "demo"}}}
    routes = [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}]
    said = "server.max_body: 10 bytes are too few for most requests; a number is in bytes"
    assert warnings(parse({**config, "routes": routes})) == [said]


@pytest.mark.parametrize(
    "dialect", ["ag-ui", "ag-kit", "agentscope", "agentscope-java", "agent-runs", "ai-sdk-ui", "a2a"]
)
def test_clients_that_name_their_runs_may_resume_them(dialect: str) -> None:
    routes = [{"dialect": dialect, "path": "/x", "backend": "it", "durable": True}]
    assert warnings(parse({"backends": {"it": {"dialect": "demo"}}, "routes": routes})) == []


def test_sessions_with_several_processes() -> None:
    config = {"server": {"workers": 2}, "backends": {"it": {"dialect": "demo"}}}
    routes = [{"dialect": "mcp", "path": "/mcp", "backend": "it", "options": {"description": "Knows it."}}]
    assert warnings(parse({**config, "routes": routes})) == []
    (said,) = warnings(parse({**config, "routes": routes, "stores": {"runs": "sqlite:///:memory:"}}))
    assert said.startswith("routes[0]: a client that cancels a call of a session")
    assert "another one of the 2 workers" in said


def test_a_plain_configuration_gets_no_advice() -> None:
    chat = {"dialect": "openai-chat", "url": "http://llm.example/v1", "api_key": "sk-$x", "model": "m"}
    routes = [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}]
    assert warnings(parse({"backends": {"it": chat}, "routes": routes})) == []
