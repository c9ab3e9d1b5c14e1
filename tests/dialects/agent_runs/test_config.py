"""What a configuration of this dialect may not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.engine.config import parse
from bridge.errors import ConfigError

from .helpers import config

CHOICE = "expected the name of a backend, a list of names, or a mapping of modes to names"


def refusal(it: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(it)
    return caught.value.message


def test_it_needs_a_history(tmp_path: Path) -> None:
    told = refusal(config(tmp_path, stores={"history": "off"}))
    assert "stores.history: off, but the clients of routes[0] read their conversations" in told


@pytest.mark.parametrize("wrong", [{"poll_interval": 0}, {"connection_limit": 0}, {"max_attachment": -1}, {"nope": 1}])
def test_options_that_are_none(tmp_path: Path, wrong: dict[str, Any]) -> None:
    assert f"routes[0].options.{next(iter(wrong))}" in refusal(config(tmp_path, **wrong))


@pytest.mark.parametrize(
    ("backend", "told"),
    [
        ({"chat": "it", "work": "it"}, "routes[0].backend.work: unknown mode; expected chat, automation."),
        ({"chat": "nobody"}, 'routes[0].backend.chat: unknown backend "nobody". Known backends: it'),
        ({"chat": 1}, "routes[0].backend.chat: expected the name of a backend, or a list of them, got 1"),
        ({}, f"routes[0].backend: {CHOICE}, got a mapping"),
        (1, f"routes[0].backend: {CHOICE}, got 1"),
    ],
)
def test_backends_by_mode_that_are_none(tmp_path: Path, backend: Any, told: str) -> None:
    assert told in refusal(config(tmp_path, modes=backend))


def test_payloads_cannot_go_through_untouched(tmp_path: Path) -> None:
    it = config(tmp_path)
    it["routes"][0]["passthrough"] = True
    assert "routes[0].passthrough: cannot be combined with a dialect that stores its runs" in refusal(it)
