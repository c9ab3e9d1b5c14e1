"""The readers of a request body: every wrong value is explained with its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bridge.errors import ErrorCode, RequestError
from bridge.toolkit.check import Node, SpelledNode, Spelling, wrong

LONG = "x" * 41
Reader = Callable[[Node], Any]


def read(reader: Reader, value: Any) -> Any:
    return reader(Node({"f": value}, "a[0]"))


def string(node: Node) -> Any:
    return node.string("f")


def need_string(node: Node) -> Any:
    return node.need_string("f")


def boolean(node: Node) -> Any:
    return node.boolean("f")


def number(node: Node) -> Any:
    return node.number("f")


def number_or_text(node: Node) -> Any:
    return node.number("f", convert=True)


def integer(node: Node) -> Any:
    return node.integer("f")


def integer_or_text(node: Node) -> Any:
    return node.integer("f", convert=True)


def at_least(node: Node) -> Any:
    return node.integer("f", least=1)


def at_most(node: Node) -> Any:
    return node.integer("f", most=9)


def within(node: Node) -> Any:
    return node.integer("f", least=1, most=9)


def object_(node: Node) -> Any:
    found = node.object("f")
    return found and (found.path, found.value)


def need_object(node: Node) -> Any:
    found = node.need_object("f")
    return found.path, found.value


def array(node: Node) -> Any:
    return node.array("f")


def need_array(node: Node) -> Any:
    return node.need_array("f")


def objects(node: Node) -> Any:
    return [(n.path, n.value) for n in node.objects("f")]


def one_of(node: Node) -> Any:
    return node.one_of("f", {"b", "a"})


def strings(node: Node) -> Any:
    return node.strings("f")


WRONG: list[tuple[Reader, Any, str]] = [
    (string, 5, "expected a string, got 5."),
    (string, True, "expected a string, got a boolean."),
    (string, [], "expected a string, got a list."),
    (string, {}, "expected a string, got an object."),
    (string, 1.5, "expected a string, got 1.5."),
    (string, 10**50, "expected a string, got a number."),
    (need_string, None, "expected a string, got null."),
    (need_string, 5, "expected a string, got 5."),
    (boolean, "true", "expected true or false, got 'true'."),
    (boolean, 1, "expected true or false, got 1."),
    (boolean, LONG, "expected true or false, got a string."),
    (number, "5", "expected a number, got '5'."),
    (number, True, "expected a number, got a boolean."),
    (number, [1], "expected a number, got a list."),
    (number_or_text, "five", "expected a number, got 'five'."),
    (number_or_text, "", "expected a number, got ''."),
    (number_or_text, "nan", "expected a number, got 'nan'."),
    (number_or_text, "-inf", "expected a number, got '-inf'."),
    (number_or_text, "1e999", "expected a number, got '1e999'."),
    (number_or_text, False, "expected a number, got a boolean."),
    (integer, 1.5, "expected a whole number, got 1.5."),
    (integer, float("inf"), "expected a whole number, got inf."),
    (integer, "1", "expected a number, got '1'."),
    (integer, True, "expected a number, got a boolean."),
    (integer_or_text, "1.5", "expected a whole number, got 1.5."),
    (integer_or_text, "nan", "expected a number, got 'nan'."),
    (integer_or_text, "inf", "expected a number, got 'inf'."),
    (at_least, 0, "expected a number of at least 1, got 0."),
    (at_most, 10, "expected a number of at most 9, got 10."),
    (within, 0, "expected a number from 1 to 9, got 0."),
    (within, 10.0, "expected a number from 1 to 9, got 10."),
    (object_, [], "expected an object, got a list."),
    (need_object, None, "expected an object, got null."),
    (need_object, "x", "expected an object, got 'x'."),
    (array, {}, "expected a list, got an object."),
    (need_array, None, "expected a list, got null."),
    (need_array, "x", "expected a list, got 'x'."),
    (objects, {}, "expected a list, got an object."),
    (one_of, "c", "expected one of a, b, got 'c'."),
    (one_of, 5, "expected a string, got 5."),
    (one_of, LONG, "expected one of a, b, got a string."),
    (strings, 5, "expected a string or a list of strings, got 5."),
    (strings, ["a", 5], "expected a string or a list of strings, got a list."),
    (strings, [None], "expected a string or a list of strings, got a list."),
]


@pytest.mark.parametrize(("reader", "value", "message"), WRONG, ids=lambda v: getattr(v, "__name__", None))
def test_a_wrong_value_is_explained(reader: Reader, value: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(reader, value)
    assert str(caught.value) == f"a[0].f: {message}"
    assert caught.value.failure.param == "a[0].f"
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("reader", "value", "result"),
    [
        (string, "x", "x"),
        (string, "", ""),
        (string, None, None),
        (need_string, "", ""),
        (boolean, False, False),
        (boolean, None, None),
        (number, 0, 0),
        (number, 1.5, 1.5),
        (number, None, None),
        (number_or_text, "1.5", 1.5),
        (number_or_text, 2, 2),
        (number_or_text, None, None),
        (integer, 2.0, 2),
        (integer, -3, -3),
        (integer, None, None),
        (integer_or_text, "2", 2),
        (integer_or_text, "2.0", 2),
        (at_least, 1, 1),
        (at_most, -5, -5),
        (at_most, 9, 9),
        (within, 1, 1),
        (within, 9, 9),
        (within, None, None),
        (object_, {"x": 1}, ("a[0].f", {"x": 1})),
        (object_, None, None),
        (need_object, {}, ("a[0].f", {})),
        (array, [1, "x"], [1, "x"]),
        (array, None, None),
        (need_array, [], []),
        (objects, [{"x": 1}, {}], [("a[0].f[0]", {"x": 1}), ("a[0].f[1]", {})]),
        (objects, None, []),
        (one_of, "a", "a"),
        (one_of, None, None),
        (strings, "a", ["a"]),
        (strings, ["a", "b"], ["a", "b"]),
        (strings, [], []),
        (strings, None, None),
    ],
)
def test_a_good_value_is_given(reader: Reader, value: Any, result: Any) -> None:
    found = read(reader, value)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize("reader", [string, boolean, number, integer, object_, array, one_of, strings, Node.get])
def test_what_is_absent_is_none(reader: Any) -> None:
    assert reader(Node({}), *(["f"] if reader is Node.get else [])) is None


@pytest.mark.parametrize(
    ("reader", "expected"), [(need_string, "a string"), (need_object, "an object"), (need_array, "a list")]
)
def test_what_is_required_is_missed(reader: Reader, expected: str) -> None:
    with pytest.raises(RequestError) as caught:
        reader(Node({}))
    assert str(caught.value) == f"f: required, expected {expected}."
    assert caught.value.failure.param == "f"


def test_a_wrong_entry_of_a_list_is_named() -> None:
    with pytest.raises(RequestError) as caught:
        list(Node({"f": [{}, 5]}).objects("f"))
    assert str(caught.value) == "f[1]: expected an object, got 5."
    assert caught.value.failure.param == "f[1]"


def test_the_body_itself() -> None:
    with pytest.raises(RequestError) as caught:
        Node.of([], "")
    assert str(caught.value) == "body: expected an object, got a list."
    assert caught.value.failure.param is None
    with pytest.raises(RequestError, match=r"^body: required, expected x\.$"):
        wrong("", "x", None, missing=True)


def test_paths_and_the_rest() -> None:
    node = Node.of({"a": 1, "b": None, "c": {}}, "m[2]")
    assert node.at("x") == "m[2].x"
    assert Node({}).at("x") == "x"
    assert node.rest({"a"}) == {"b": None, "c": {}}


def test_names_are_read_in_any_spelling() -> None:
    spelling = Spelling()
    known = {"aB": 1, "c": {"d_e": 2}}
    assert spelling(known) is known
    assert spelling({"a_b": 1, "c_2d": {"d_e": 2}, "e_": 3, "_f_g": 4}) == {
        "aB": 1,
        "c2d": {"d_e": 2},
        "e_": 3,
        "_fG": 4,
    }
    assert spelling({"a_b": 1, "aB": 2}) == spelling({"aB": 2, "a_b": 1}) == {"aB": 2}


def test_a_table_of_spellings_leaves_other_names_alone() -> None:
    spelling = Spelling({"theName": "the_name"}, dropped={"copy"})
    same = {"the_name": 1, "otherName": 2}
    assert spelling(same) is same
    assert spelling({"theName": 1, "otherName": 2, "copy": 3}) == {"the_name": 1, "otherName": 2}


def test_errors_name_fields_as_the_client_spelled_them() -> None:
    node = SpelledNode({"a_list": [{"inner_name": 1}], "plain": 1, "both_ways": 1, "bothWays": 2})
    (inner,) = node.objects("aList")
    for read, place in (
        (lambda: inner.string("innerName"), "a_list[0].inner_name"),
        (lambda: inner.need_string("otherName"), "a_list[0].otherName"),
        (lambda: node.string("plain"), "plain"),
        (lambda: node.string("bothWays"), "bothWays"),
    ):
        with pytest.raises(RequestError) as caught:
            read()
        assert caught.value.failure.param == place
