"""What coding agents for the command line read at their start, by which they call a bridge."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bridge.connect.programs import Place


@dataclass(frozen=True, slots=True)
class Agent:
    """A program that is started with its environment and arguments pointing at a route.

    `client` is its name among `CLIENTS`; `install`, the command that installs it; `needs_model`: it names no model of
    its own. `removed` are variables that would win over those that are set. `dialects`, if not all of the client's.
    `settings`: a variable that names a file of settings, and what has to be in it. `path`: the agent adds this to its
    base URL by itself, so the path of a route has to end with it.
    """

    client: str
    command: str
    install: str
    variables: Callable[[Place], dict[str, str]]
    arguments: Callable[[Place], list[str]] = field(default=lambda place: [])
    removed: tuple[str, ...] = ()
    needs_model: bool = False
    dialects: tuple[str, ...] = ()
    path: str = ""
    settings: tuple[str, dict[str, Any]] | None = None


def _root(place: Place) -> str:
    return place.base.removesuffix("/v1")


def _codex_arguments(place: Place) -> list[str]:
    # Values of `-c` are TOML; strings of JSON are strings of TOML, too.
    provider = {"name": "dialect-bridge", "base_url": place.base, "env_key": "BRIDGE_KEY", "wire_api": "responses"}
    options = [f"model_providers.bridge.{name}={json.dumps(value)}" for name, value in provider.items()]
    return [word for option in ('model_provider="bridge"', *options) for word in ("-c", option)] + ["-m", place.model]


def _opencode_variables(place: Place) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai",
        "name": "dialect-bridge",
        "options": {"baseURL": place.base, "apiKey": place.key},
        "models": {place.model: {"name": place.model}},
    }
    config = {
        "provider": {"bridge": provider},
        "model": f"bridge/{place.model}",
        "small_model": f"bridge/{place.model}",
    }
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}


AGENTS: dict[str, Agent] = {
    "claude": Agent(
        "claude-code",
        "claude",
        "npm install -g @anthropic-ai/claude-code",
        # What is not essential goes to the vendor: updates, statistics, reports of errors.
        lambda place: {
            "ANTHROPIC_BASE_URL": _root(place),
            "ANTHROPIC_AUTH_TOKEN": place.key,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        path="/v1",
        removed=("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
    ),
    "codex": Agent(
        "codex",
        "codex",
        "npm install -g @openai/codex",
        lambda place: {"BRIDGE_KEY": place.key},
        _codex_arguments,
        needs_model=True,
    ),
    "gemini": Agent(
        "gemini-cli",
        "gemini",
        "npm install -g @google/gemini-cli",
        lambda place: {
            "GOOGLE_GEMINI_BASE_URL": _root(place),
            "GEMINI_API_KEY": place.key,
        },
        # With this base URL it chooses a way to authenticate that it then refuses, unless its settings name another.
        settings=(
            "GEMINI_CLI_SYSTEM_SETTINGS_PATH",
            {"security": {"auth": {"selectedType": "gemini-api-key"}}},
        ),
        removed=("GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"),
    ),
    "opencode": Agent(
        "opencode",
        "opencode",
        "npm install -g opencode-ai",
        _opencode_variables,
        needs_model=True,
        dialects=("openai-responses",),
    ),
    "qwen": Agent(
        "qwen-code",
        "qwen",
        "npm install -g @qwen-code/qwen-code",
        lambda place: {
            "OPENAI_BASE_URL": place.base,
            "OPENAI_API_KEY": place.key,
            "OPENAI_MODEL": place.model,
        },
        lambda place: ["--auth-type", "openai"],
        needs_model=True,
    ),
}
"""By the name that users type, which is the agent's command."""
