"""Dialects are found by name: by entry point, or because the program registered them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.cli import main
from bridge.contract import Capabilities, Dialect, Endpoint, Feature, Operation, registry
from bridge.engine.config import json_schema, parse
from bridge.errors import ConfigError

MODULE = """
from bridge.contract import Dialect

class Outside(Dialect):
    name = "outside"

outside = Outside()
nothing = "not a dialect"
"""


class Inside(Dialect):
    name = "inside"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_installed", {})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package of somebody else: a module, and a dist-info folder with its entry points."""
    (tmp_path / "outside_package_for_tests.py").write_text(MODULE)
    info = tmp_path / "outside_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[bridge.dialects]\n"
        "outside = outside_package_for_tests:outside\n"
        "outside-nothing = outside_package_for_tests:nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    import sys

    sys.modules.pop("outside_package_for_tests", None)


def test_register_and_unregister() -> None:
    before = registry.names()
    dialect = Inside()
    registry.register(dialect)
    assert registry.get("inside") is dialect
    assert registry.names() == sorted([*before, "inside"])
    assert registry.known("inside")
    registry.register(dialect, "another-name")
    assert registry.get("another-name") is dialect
    registry.unregister("inside")
    registry.unregister("another-name")
    registry.unregister("never-there")
    assert registry.names() == before
    assert not registry.known("inside")
    with pytest.raises(ConfigError):
        registry.get("inside")


def test_an_installed_dialect_that_was_unregistered_is_found_again() -> None:
    assert registry.known("ollama")
    registry.unregister("ollama")
    assert registry.known("ollama")
    assert registry.get("ollama").name == "ollama"


@pytest.mark.usefixtures("package")
def test_a_third_partys_package_is_found_by_its_entry_point() -> None:
    import sys

    assert "outside" in registry.names()
    assert registry.known("outside")
    assert "outside_package_for_tests" not in sys.modules, "listing loads nothing"
    dialect = registry.get("outside")
    assert dialect.name == "outside"
    assert registry.get("outside") is dialect
    assert registry.names().count("outside") == 1


def test_a_package_that_is_installed_later_is_found(request: pytest.FixtureRequest) -> None:
    """What was read of the others is kept, and read anew for a name that was not there."""
    assert not registry.known("outside")
    request.getfixturevalue("package")
    assert registry.get("outside").name == "outside"


def test_a_package_that_is_removed_is_not_listed_any_more(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before = registry.names()
    request.getfixturevalue("package")
    assert "outside" in registry.names()
    shutil.rmtree(tmp_path / "outside_package-1.0.dist-info")
    # The clock of a file system may stand still for as long as this test takes.
    os.utime(tmp_path, ns=(1, 1))
    assert registry.names() == before
    assert not registry.known("outside")


def test_packages_are_read_again_only_if_one_was_added_or_removed(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    real = registry.entry_points
    monkeypatch.setattr(registry, "entry_points", lambda **wanted: reads.append(wanted) or real(**wanted))
    monkeypatch.syspath_prepend(str(tmp_path))
    os.utime(tmp_path, ns=(1, 1))
    before = registry.names()
    assert (registry.names(), registry.known("outside"), len(reads)) == (before, False, 1)
    request.getfixturevalue("package")
    assert registry.names() == sorted([*before, "outside", "outside-nothing"])
    assert len(reads) == 2


@pytest.mark.usefixtures("package")
def test_an_entry_point_that_is_no_dialect_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        registry.get("outside-nothing")
    assert str(caught.value) == (
        "the entry point 'outside_package_for_tests:nothing' of dialect 'outside-nothing' is not a "
        "bridge.contract.Dialect"
    )


@pytest.mark.usefixtures("package")
def test_a_dialect_that_cannot_be_loaded_names_file_and_line(tmp_path: Path) -> None:
    module = tmp_path / "outside_package_for_tests.py"
    for text, said in (
        ("from bridge.contract import Feature\n\nWRONG = Feature.HISTORY\n", "AttributeError: .*HISTORY.*:3\\)$"),
        ("def f(:\n", "SyntaxError: .*:1\\)$"),
    ):
        module.write_text(text)
        with pytest.raises(ConfigError, match=said) as caught:
            registry.get("outside")
        assert f"({module}:" in str(caught.value)


def test_without_the_package_it_is_unknown() -> None:
    assert "outside" not in registry.names()
    assert not registry.known("outside")


@pytest.mark.parametrize(("asked", "hint"), [("insde", "; did you mean 'inside'?"), ("xyzzy", ".")])
def test_an_unknown_name_suggests_the_nearest(asked: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda **_: ())
    registry.register(Inside())
    registry.register(Inside(), "beside-all")
    with pytest.raises(ConfigError) as caught:
        registry.get(asked)
    assert str(caught.value) == f"unknown dialect {asked!r}{hint} Known: beside-all, inside."


def test_our_own_dialects_are_installed_the_same_way() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    declared = project["project"]["entry-points"]["bridge.dialects"]
    assert declared
    assert set(declared) <= set(registry.names())


class Called(Dialect):
    """Spoken by backends alone: it has no endpoints."""

    name = "only-called"
    capabilities = registry.get("openai-chat").capabilities


class Served(Called):
    """Spoken by routes alone."""

    name = "only-served"
    surface = registry.get("openai-chat").surface
    called = False


@pytest.fixture
def _one_sided() -> Iterator[None]:
    for dialect in (Called(), Served()):
        registry.register(dialect)
    yield
    for name in ("only-called", "only-served"):
        registry.unregister(name)


@pytest.mark.usefixtures("_one_sided")
def test_a_dialect_may_have_one_side() -> None:
    assert ("only-called" in registry.served(), "only-called" in registry.called()) == (False, True)
    assert ("only-served" in registry.served(), "only-served" in registry.called()) == (True, False)
    assert "only-called" not in registry.over_http()
    definitions = json_schema()["$defs"]
    assert "only-called" not in definitions["RouteSection"]["properties"]["dialect"]["anyOf"][0]["enum"]
    assert "only-called" in definitions["BackendSection"]["properties"]["dialect"]["anyOf"][0]["enum"]
    assert "only-served" not in definitions["BackendSection"]["properties"]["dialect"]["anyOf"][0]["enum"]


@pytest.mark.usefixtures("_one_sided")
def test_the_other_side_is_refused_by_name() -> None:
    route = {"dialect": "only-called", "path": "/", "backend": "b"}
    demo = {"backends": {"b": {"dialect": "demo"}}, "routes": [route]}
    with pytest.raises(ConfigError, match=r"only-called can be used by backends only; a route can use one of a2a, "):
        parse(demo)
    back = {"b": {"dialect": "only-served", "url": "http://h"}}
    with pytest.raises(ConfigError, match=r"only-served can be used by routes only; a backend can use one of a2a, "):
        parse({"backends": back, "routes": [{"dialect": "openai-chat", "path": "/", "backend": "b"}]})


@pytest.mark.usefixtures("_one_sided")
def test_init_offers_each_side_what_it_has(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(tmp_path / "it.yaml")
    assert main(["init", "--from", "only-called", "--output", file]) == 2
    assert "--from: only backends can speak only-called" in capsys.readouterr().err
    assert main(["init", "--from", "openai-chat", "--to", "only-served", "--output", file]) == 2
    assert "--to: only routes can speak only-served" in capsys.readouterr().err


def test_what_is_no_dialect_and_no_name_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected a dialect or its name, got list"):
        registry.resolve([])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("claude", "anthropic-messages"), ("Google", "gemini"), ("openai", "openai-chat"),
        ("copilotkit", "ag-ui"), ("vercel", "ai-sdk-ui"), ("codex", "openai-responses"),
        ("anthropic", "anthropic-messages"),
    ],
)  # fmt: skip
def test_the_name_of_a_product_leads_to_its_dialect(name: str, dialect: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown dialect '{name}'; did you mean '{dialect}'[?]"):
        registry.get(name)
    route = {"dialect": name, "path": "/", "backend": "b"}
    with pytest.raises(ConfigError, match=f'unknown dialect "{name}"; did you mean "{dialect}"[?]'):
        parse({"backends": {"b": {"dialect": "demo"}}, "routes": [route]})


class Nameless(Dialect):
    pass


class Bare(Dialect):
    name = "bare"
    capabilities = Capabilities.only({Feature.TEXT}, "no field")
    surface = (Endpoint("POST", "/ask", Operation.RUN), Endpoint("GET", "/alive", Operation.HEALTH))


class BareFront(Bare):
    called = False


def test_a_dialect_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="the dialect Nameless has no name: set the class attribute name"):
        registry.register(Nameless())


@pytest.mark.parametrize(
    ("dialect", "lacks"),
    [
        (Nameless(), "the dialect Nameless has no name"),
        (Inside(), "the dialect 'inside' has no capabilities"),
        (Bare(), "'bare' lacks decode_request, encoder, encode_error, example_request, encode_health .*, and "
                 "encode_request, decoder, parse_response, decode_error "),
        (BareFront(), "'bare' lacks decode_request, encoder, encode_error, example_request, encode_health .*call it.$"),
    ],
)  # fmt: skip
def test_all_that_a_dialect_lacks_is_one_error(dialect: Dialect, lacks: str) -> None:
    with pytest.raises(ConfigError, match=lacks):
        registry.check_complete(dialect)


@pytest.mark.parametrize("name", registry.names())
def test_ours_lack_nothing(name: str) -> None:
    registry.check_complete(registry.get(name))
