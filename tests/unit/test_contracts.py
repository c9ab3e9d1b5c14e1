"""The contract of a dialect: a small core that every one has, and contracts for what only some can do."""

from __future__ import annotations

import inspect

import pytest

from bridge.contract import (
    AgentDialect,
    CountingDialect,
    Dialect,
    Endpoint,
    ModelsDialect,
    ModesDialect,
    Operation,
    SessionDialect,
    SingleRunDialect,
    StoredAnswersDialect,
    TaskDialect,
    ToolHostDialect,
    registry,
    require,
)
from bridge.contract.optional.contracts import CONTRACTS, check_surface
from bridge.engine.route import Route
from bridge.errors import ConfigError

OPTIONAL = {
    *(each for needed in CONTRACTS.values() for each in needed), CountingDialect, ModelsDialect, ModesDialect,
    AgentDialect,    SessionDialect, SingleRunDialect, StoredAnswersDialect, TaskDialect, ToolHostDialect,
}  # fmt: skip


def methods(contract: type[Dialect]) -> set[str]:
    return {name for name, value in vars(contract).items() if inspect.isfunction(value) and not name.startswith("_")}


def test_the_core_is_small() -> None:
    assert len(methods(Dialect)) <= 16


@pytest.mark.parametrize("contract", sorted(OPTIONAL, key=lambda c: c.__name__), ids=lambda c: c.__name__)
def test_an_optional_contract_adds_to_the_core_and_repeats_nothing_of_it(contract: type[Dialect]) -> None:
    assert methods(contract)
    assert not methods(contract) & methods(Dialect)


@pytest.mark.parametrize("name", registry.names())
def test_dialects_inherit_what_their_surface_needs(name: str) -> None:
    check_surface(registry.get(name))


@pytest.mark.parametrize("contract", sorted(OPTIONAL, key=lambda c: c.__name__), ids=lambda c: c.__name__)
def test_every_contract_has_an_implementer_and_not_all_dialects_have_it(contract: type[Dialect]) -> None:
    have = [isinstance(registry.get(name), contract) for name in registry.names()]
    assert any(have)
    assert not all(have)


@pytest.mark.parametrize("operation", CONTRACTS)
def test_a_surface_that_promises_more_than_the_dialect_is_refused(operation: Operation) -> None:
    class Boastful(Dialect):
        name = "boastful"
        capabilities = registry.get("openai-chat").capabilities
        surface = (Endpoint("POST", "/x", operation),)

    with pytest.raises(ConfigError, match=f"'boastful'.*{'.*'.join(each.__name__ for each in CONTRACTS[operation])}"):
        Route(Boastful(), "/boastful", Boastful.front_options())


def test_operations_without_a_contract_are_those_of_every_dialect() -> None:
    """Health, runs, and what the server or a gateway of nodes does by itself."""
    others = {str(operation) for operation in Operation} - {str(operation) for operation in CONTRACTS}
    assert others == {
        *("run", "health", "forward", "call", "register", "deregister", "discover", "update", "beat"),
    }


def test_a_dialect_is_returned_as_what_it_is() -> None:
    dialect = registry.get("anthropic-messages")
    assert require(dialect, CountingDialect) is dialect
