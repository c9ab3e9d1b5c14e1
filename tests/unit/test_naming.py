"""Which model name a backend is sent."""

from __future__ import annotations

import pytest

from bridge.contract.naming import ModelNames, is_pattern, pick

NAMES = ModelNames("fallback", {"gpt-*": "general", "gpt-4": "exact", "*": "any", "o[13]": "never reached"})


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        (None, "fallback"),
        ("", "fallback"),
        ("gpt-4", "exact"),
        ("gpt-4o", "general"),
        ("GPT-4", "any"),
        ("o1", "any"),
    ],
)
def test_exact_names_win_then_the_first_glob(asked: str | None, sent: str) -> None:
    assert NAMES.model_for(asked) == sent


def test_without_a_rule_the_clients_name_goes_through() -> None:
    assert ModelNames().model_for("x") == "x"
    assert ModelNames().model_for(None) is None
    assert ModelNames(None, {"*": "any"}).model_for(None) == "any"
    assert ModelNames("d", {"o[13]": "o"}).model_for("o2") == "o2"
    assert ModelNames("d", {"o?": "o"}).model_for("o2") == "o"
    assert ModelNames("d", {"plain": "o"}).model_for("plainer") == "plainer"


def test_listed_names_are_those_a_client_can_ask_for() -> None:
    assert NAMES.listed == ["gpt-4", "fallback"]
    assert ModelNames("a", {"a": "b"}).listed == ["a"]
    assert ModelNames().listed == []


@pytest.mark.parametrize(("name", "pattern"), [("a*", True), ("a?", True), ("[ab]", True), ("a]", False), ("", False)])
def test_globs(name: str, pattern: bool) -> None:
    assert is_pattern(name) is pattern


@pytest.mark.parametrize(
    ("name", "value"), [("a", 1), ("ab", 2), ("b1", 3), ("b9", None), ("A", None), ("", None), ("x[1]", 4)]
)
def test_pick(name: str, value: int | None) -> None:
    assert pick({"a?": 2, "a*": 9, "a": 1, "b[1-3]": 3, "x[[]1]": 4}, name) == value
