"""Durations, sizes, variables and YAML: what a single value may look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bridge.engine.config.origin import ConfigOrigin
from bridge.engine.config.problems import Problem, path_text
from bridge.engine.config.source import read
from bridge.engine.config.substitute import substitute
from bridge.engine.config.units import Duration, DurationOrOff, Size
from bridge.errors import ConfigError

FORMS = 'expected ${NAME}, ${NAME:-default} or ${file:/path}; a literal "${" is written "$${"'


# ------------------------------------------------------------------------------ units


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0, 0.0),
        (2, 2.0),
        (0.25, 0.25),
        ("3", 3.0),
        ("500ms", 0.5),
        ("5s", 5.0),
        ("1.5s", 1.5),
        ("10m", 600.0),
        ("24h", 86400.0),
        ("90d", 7776000.0),
        (" 10 m ", 600.0),
    ],
)
def test_a_duration_is_float_seconds(written: object, seconds: float) -> None:
    found = TypeAdapter(Duration).validate_python(written)
    assert found == seconds
    assert isinstance(found, float)


@pytest.mark.parametrize(
    "written",
    ["", "s", "5 parsecs", "5S", "-5s", "1h30m", "٥s", -1, True, None, [5], float("inf"), float("nan"), 10**400],
)
def test_what_is_no_duration(written: object) -> None:
    with pytest.raises(ValidationError, match="a duration such as 500ms"):
        TypeAdapter(Duration).validate_python(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(False, None), ("off", None), ("OFF", None), ("no", None), (0, None), ("0s", None), (None, None), ("5s", 5.0)],
)
def test_a_duration_may_be_off(written: object, seconds: float | None) -> None:
    assert TypeAdapter(DurationOrOff).validate_python(written) == seconds


def test_on_is_no_duration() -> None:
    with pytest.raises(ValidationError, match="or off"):
        TypeAdapter(DurationOrOff).validate_python(True)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (1, 1),
        ("512", 512),
        ("10B", 10),
        ("64KiB", 65536),
        ("10MiB", 10485760),
        ("1GiB", 1073741824),
        ("5kB", 5000),
        ("5KB", 5000),
        ("5MB", 5000000),
        ("2GB", 2000000000),
        ("1.5KiB", 1536),
    ],
)
def test_a_size_is_int_bytes(written: object, size: int) -> None:
    found = TypeAdapter(Size).validate_python(written)
    assert found == size
    assert isinstance(found, int)


@pytest.mark.parametrize("written", ["", "MiB", "8 bits", "8mib", "-1", -1, True, None, 0, "0"])
def test_what_is_no_size(written: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Size).validate_python(written)


# ------------------------------------------------------------------------------ variables

ENV = {"NAME": "web", "EMPTY": "", "NESTED": "${NAME}", "BRACE": "a}b"}


@pytest.mark.parametrize(
    ("written", "replaced"),
    [
        ("plain $NAME {NAME}", "plain $NAME {NAME}"),
        ("${NAME}", "web"),
        ("<${NAME}-${NAME}>", "<web-web>"),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${NOPE:-}", ""),
        ("${NOPE:-https://h/v1?a=b}", "https://h/v1?a=b"),
        ("${NAME:-x}", "web"),
        ("${NESTED}", "${NAME}"),
        ("${BRACE}", "a}b"),
        ("$${NAME}", "${NAME}"),
        ("$${NAME}${NAME}", "${NAME}web"),
    ],
)
def test_variables_in_text(written: str, replaced: str) -> None:
    result = substitute({"a": [written]}, ENV)
    assert result.problems == []
    assert result.data == {"a": [replaced]}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("${NOPE}", "the environment variable NOPE is not set; set it, or write ${NOPE:-default}"),
        ("${NAME", FORMS),
        ("${}", FORMS),
        ("${1NAME}", FORMS),
        ("${NAME-x}", FORMS),
        ("${NOPE:-${NAME}}", FORMS),
        ("${file:}", FORMS),
        ("${file:/nowhere/key}", "the file /nowhere/key cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_with_a_reference(written: str, message: str) -> None:
    result = substitute({"a": [1, written]}, ENV)
    assert result.problems == [Problem(("a", 1), message)]


def test_a_file_gives_its_text_without_the_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("two\nlines\n")
    assert substitute(f"<${{file:{tmp_path}/key}}>", {}).data == "<two\nlines>"


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff")
    (problem,) = substitute(f"${{file:{tmp_path}/key}}", {}).problems
    assert problem.message == f"the file {tmp_path}/key is not UTF-8 text"


def test_only_strings_are_touched_and_the_original_stays() -> None:
    data = {"a": 1, "b": None, "c": True, "${NAME}": ("${NAME}",)}
    assert substitute(data, ENV).data == {"a": 1, "b": None, "c": True, "${NAME}": ["web"]}
    assert data["${NAME}"] == ("${NAME}",)


def test_where_a_value_came_from_is_kept_without_the_default() -> None:
    result = substitute({"a": "${NAME}${NOPE:-secret}", "b": "$${NAME}"}, ENV)
    assert result.sources == {("a",): "${NAME}, ${NOPE}"}


def test_a_key_that_is_no_text() -> None:
    assert substitute({"a": {4: "x"}}, {}).problems == [Problem(("a",), "expected text as key, got 4")]


# ------------------------------------------------------------------------------ YAML


def test_every_key_and_item_has_its_place() -> None:
    document = read("a:\n  - b: 1\n  - {c: [x,\n      y]}\n", "f")
    found = {path_text(path): (place.line, place.column) for path, place in document.positions.items()}
    assert document.data == {"a": [{"b": 1}, {"c": ["x", "y"]}]}
    assert found == {
        "": (1, 1),
        "a": (1, 1),
        "a[0]": (2, 5),
        "a[0].b": (2, 5),
        "a[1]": (3, 5),
        "a[1].c": (3, 6),
        "a[1].c[0]": (3, 10),
        "a[1].c[1]": (4, 7),
    }


def test_a_place_that_was_not_written_is_the_one_around_it() -> None:
    origin = ConfigOrigin("f", read("a:\n  b: 1\n", "f").positions)
    place = origin.position(("a", "x", 3))
    assert place is not None
    assert (place.line, place.column) == (1, 1)


def test_a_key_is_the_text_that_was_written() -> None:
    assert read("on: 1\n4: 2\n1e3: 3\n", "f").data == {"on": 1, "4": 2, "1e3": 3}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\n", {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}}),
        (
            "a: &x {p: 1}\nb: &y {p: 2, q: 2}\nc: {<<: [*x, *y]}\n",
            {"a": {"p": 1}, "b": {"p": 2, "q": 2}, "c": {"p": 1, "q": 2}},
        ),
        ("a: &x [1]\nb: *x\n", {"a": [1], "b": [1]}),
        ("", None),
    ],
)
def test_anchors_and_merges(text: str, data: Any) -> None:
    document = read(text, "f")
    assert document.data == data
    assert document.problems == []


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", ("a",), "written twice, on line 1 and on line 3"),
        ("l:\n- {a: 1, a: 2}\n", ("l", 0, "a"), "written twice, on line 2 and on line 2"),
        ("a: &x [*x]\n", ("a", 0), "an alias may not be inside the value that it refers to"),
        ("a: !env X\n", ("a",), "not a valid value of type !env; an environment variable is written ${NAME}"),
        ("a: !!int x\n", ("a",), "not a valid value of type tag:yaml.org,2002:int"),
        ("a:\n  ? [1]\n  : 2\n", ("a",), "expected text as key on line 2"),
        ("a: {<<: 5}\n", ("a",), "expected a mapping after <<"),
    ],
)
def test_what_is_wrong_in_sound_yaml(text: str, path: tuple[str | int, ...], message: str) -> None:
    assert read(text, "f").problems == [Problem(path, message)]


COLON = "no `key: value` is expected here; check the indentation, and quote text that holds `: `"
INDENT = "the indentation does not fit the lines above"
VARIABLE = 'inside { } and [ ] a variable needs quotes: "${NAME}"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server:\n\tport: 1\n", "2: a tab is not allowed here; indent with spaces"),
        ("server:\n  host: a\n   port: 1\n", f"3: {COLON}"),
        ("backends:\n  a: b: c\n", f"2: {COLON}"),
        ("server\nport: 1\n", f"2: {COLON}"),
        ("server:\n    host: a\n  port: 1\n", f"3: {INDENT}"),
        ("routes:\n  - a: 1\n  b: 2\n", f"3: {INDENT}"),
        ('server:\n  host: "abc\n  port: 1\n', "2: the quote that opens here is not closed"),
        ("a: 1\nb: [1\n", "2: the [ that opens here is not closed, or a comma is missing in it"),
        ("server: {a: b, port: 1\nroutes: []\n", "1: the { that opens here is not closed, or a comma is missing in it"),
        ("a: {b: ${X}}\n", f"1: the {{ that opens here is not closed, or a comma is missing in it; {VARIABLE}"),
        ("a: [1, , 2]\n", "1: a value is missing before ','"),
        ("a: [1, 2]]\n", "1: ']' is not expected here"),
        ("a: [\n", "2: the file ends where a value is expected"),
        ("a: 1\nb: \x01\n", "2: a character that YAML does not allow"),
        ("a: *x\n", "1: no anchor is named 'x'; quote a value that begins with *"),
        ("models:\n  *: a\n", "2: a value that begins with * or & needs quotes"),
        ("a: @b\n", "1: a value that begins with '@' needs quotes"),
        ('a: "\\d"\n', "1: '\\d' has no meaning between double quotes; use single quotes"),
        ("a: 1\n---\nb: 1\n", "2: a line --- begins a second document; expected one"),
        ("%FOO\na: 1\n", "2: expected '<document start>', but found '<scalar>'"),
    ],
)
def test_what_is_no_yaml(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text, "c.yaml")
    line, _, words = message.partition(": ")
    assert str(caught.value) == f"c.yaml:{line}: not valid YAML: {words}"
    (problem,) = caught.value.failure.details["problems"]
    assert problem["file"] == "c.yaml"
    assert f"{problem['line']}: {problem['message']}" == f"{line}: not valid YAML: {words}"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("a",), "a"),
        (("a", 0, "b-c", 12), "a[0].b-c[12]"),
        (("models", "gpt-*", "x.y"), 'models["gpt-*"]["x.y"]'),
    ],
)
def test_paths_as_text(path: tuple[str | int, ...], text: str) -> None:
    assert path_text(path) == text
