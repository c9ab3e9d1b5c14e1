"""JSON as wires carry it: lone surrogates, huge numbers, and bodies that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from bridge.errors import ErrorCode, RequestError, Wrong
from bridge.model import json_text
from bridge.model.jsontext import (
    MAX_DEPTH,
    dumps,
    is_number,
    kind_of,
    loads,
    loads_repaired,
    loads_unpaired,
    read_body,
    read_json,
)
from bridge.model.surrogates import repaired
from tests.strategies import json_objects, json_values


def nested(depth: int) -> bytes:
    """An object `depth` levels deep."""
    return b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1)


class TestRagged:
    def test_lone_surrogates_stay(self) -> None:
        assert loads_unpaired(b'{"a": "x\\ud83d"}') == {"a": "x\ud83d"}
        assert loads_unpaired(b'"\\ud83d\\ude00"') == "\U0001f600"

    @pytest.mark.parametrize(
        "data",
        [b"", b"{", b"NaN", b"[Infinity]", b"-Infinity", b"1e999", b"[-1e999]", b"{'a': 1}", b'"\xff"', b"[" * 100_000],
    )
    def test_what_is_not_json_is_refused(self, data: bytes) -> None:
        with pytest.raises(ValueError):
            loads_unpaired(data)

    @given(json_values())
    def test_reads_what_the_fast_path_reads(self, value: Any) -> None:
        assert loads_unpaired(dumps(value)) == loads(dumps(value)) == value


class TestDumps:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ({"a": [1, None, True, "é\u2028"]}, '{"a":[1,null,true,"é\u2028"]}'),
            ({"a": "x\ud83d"}, '{"a":"x\ufffd"}'),
            ({"\ude00": 1}, '{"\ufffd":1}'),
            (["\ud83d\ude00"], '["\U0001f600"]'),
            ([2**64, -(2**70)], f"[{2**64},{-(2**70)}]"),
            ([2**53 + 1, 2**63], f"[{2**53 + 1},{2**63}]"),
            (["\ud800", 2**80, {"b": 1.5}], '["\ufffd",1208925819614629174706176,{"b":1.5}]'),
        ],
    )
    def test_written(self, value: Any, text: str) -> None:
        assert dumps(value).decode() == text
        assert json_text(value) == text

    def test_what_json_cannot_say_is_an_error(self) -> None:
        with pytest.raises(TypeError):
            dumps(object())

    def test_a_text_for_people_can_say_anything(self) -> None:
        assert json_text({"a": complex(1)}) == '{"a":"(1+0j)"}'


class TestBody:
    @given(json_objects())
    def test_an_object_is_read(self, value: dict[str, Any]) -> None:
        assert read_body(dumps(value)) == value
        assert read_body(b" \n" + json.dumps(value).encode() + b"\n") == value

    def test_lone_surrogates_are_read(self) -> None:
        assert read_body(b'{"a": "\\ud83d"}') == {"a": "\ud83d"}

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"", "The request body is empty; a JSON object is expected."),
            (b" \r\n\t", "The request body is empty; a JSON object is expected."),
            (b"null", "The request body must be a JSON object, but it is null."),
            (b"true", "The request body must be a JSON object, but it is a boolean."),
            (b"1.5", "The request body must be a JSON object, but it is a number."),
            (b'"x"', "The request body must be a JSON object, but it is a string."),
            (b"[]", "The request body must be a JSON object, but it is a list."),
            (b'"\\ud800"', "The request body must be a JSON object, but it is a string."),
            (b'{"a": "\xff"}', "The request body is not UTF-8."),
        ],
    )
    def test_wrong_bodies(self, body: bytes, message: str) -> None:
        with pytest.raises(RequestError) as caught:
            read_body(body)
        assert str(caught.value) == message
        assert caught.value.code is ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize(
        ("body", "place"),
        [(b'{"a": NaN}', 6),
         (b'{"a": -Infinity}', None), (b'{"a": 1,}', None), (b"{'a': 1}", 1), (b"x", 0), (b"{", None),
         (b'{"a": 1} x', 9), (b'{"a": 1e999}', None)],
    )  # fmt: skip
    def test_the_place_of_the_break_is_named(self, body: bytes, place: int | None) -> None:
        with pytest.raises(RequestError) as caught:
            read_body(body)
        where = "" if place is None else f"{place}: "
        assert str(caught.value).startswith(f"The request body is not valid JSON at character {where}")
        assert str(caught.value).endswith(".")

    def test_a_broken_body_with_many_brackets_is_not_called_deep(self) -> None:
        body = b'{"a": [' + b"{}," * 1000 + b"]}"
        with pytest.raises(RequestError, match="is not valid JSON at character"):
            read_body(body)

    def test_a_long_body_with_a_lone_surrogate_is_read(self) -> None:
        body = b'{"a": [' + b'{"b": "\\ud800"},' * 1000 + b"1]}"
        assert len(read_body(body)["a"]) == 1001


class TestDepth:
    def test_the_limit_itself_is_fine(self) -> None:
        assert MAX_DEPTH == 200
        assert read_body(nested(200))
        beside = b'{"beside": [[], {}, []], "deep": ' + nested(199) + b"}"
        assert read_body(beside), "many brackets, and none too deep"

    @pytest.mark.parametrize(
        "body",
        [
            nested(201),
            nested(1_000),
            nested(3_000),
            nested(100_000),
            b'{"a":' * 100_000,
            b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
            b'{"a":"\\ud800","b":' + nested(300) + b"}",
        ],
        ids=["201", "1k", "3k", "100k", "100k-open", "lists", "ragged"],
    )
    def test_beyond_it_is_refused(self, body: bytes) -> None:
        with pytest.raises(RequestError) as caught:
            read_body(body)
        assert str(caught.value) == "The request body is nested deeper than 200 levels."

    def test_width_is_not_depth(self) -> None:
        assert read_body(b'{"a":[' + b",".join([b"[]"] * 5000) + b"]}")


def test_kinds_of_values() -> None:
    values = (None, True, 1, 1.5, "", [], {}, b"")
    expected = ["null", "a boolean", "a number", "a number", "a string", "a list", "an object", "bytes"]
    assert [kind_of(v) for v in values] == expected


def test_lone_surrogates_are_mended_but_for_pieces() -> None:
    value = {"a\ud800": ["x\udc00", {"text": "\ud83d", "b": "\ud83d\ude00"}], "text": 5, "n": None}
    assert repaired(value) == {"a\ufffd": ["x\ufffd", {"text": "\ufffd", "b": "\U0001f600"}], "text": 5, "n": None}
    kept = {"a\ufffd": ["x\ufffd", {"text": "\ud83d", "b": "\U0001f600"}], "text": 5, "n": None}
    assert repaired(value, {"text"}) == kept


class TestFitToBeHandedOn:
    def test_lone_surrogates_are_replaced_everywhere_but_in_halves(self) -> None:
        value = {"k\ud83d": ["a\ud83d", {"delta": "b\ud83d"}], "delta": {"x": "\ude00"}, "n": 1}
        assert repaired(value) == {"k\ufffd": ["a\ufffd", {"delta": "b\ufffd"}], "delta": {"x": "\ufffd"}, "n": 1}
        kept = repaired(value, ("delta",))
        assert kept["k\ufffd"] == ["a\ufffd", {"delta": "b\ud83d"}]
        assert kept["delta"] == {"x": "\ufffd"}

    @given(json_values())
    def test_what_is_whole_stays_as_it_is(self, value: Any) -> None:
        assert repaired(value) == value
        assert read_json(dumps(value)) == value

    def test_a_body_is_read_or_is_none(self) -> None:
        assert read_json(b'{"a": "\\ud83d"}') == {"a": "\ufffd"}
        assert read_json(b"<html>") is None
        assert read_json(nested(MAX_DEPTH + 2)) is None
        unpaired = nested(MAX_DEPTH + 2)[:-1] + b',"b":"\\ud83d"}'
        assert read_json(unpaired) is None
        with pytest.raises(ValueError):
            loads_repaired(unpaired)


def test_numbers_that_can_be_counted_with() -> None:
    assert all(is_number(v) for v in (0, 1, -0.5))
    assert not any(is_number(v) for v in (True, "1", None, 1e300, [1]))


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b"", Wrong.EMPTY),
        (b" ", Wrong.EMPTY),
        (b'{"a": "\xff"}', Wrong.ENCODING),
        (b"{", Wrong.JSON),
        (b"[]", None),
        (b'{"a":' + b"[" * 600 + b"]" * 600 + b"}", None),
    ],
)
def test_an_error_about_a_body_has_a_kind(body: bytes, wrong: Wrong | None) -> None:
    with pytest.raises(RequestError) as caught:
        read_body(body)
    assert caught.value.failure.wrong is wrong
