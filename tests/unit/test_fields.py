"""`toolkit.fields.Fields`: a table reads, checks and writes the fields of a body, and names what no row carries."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.contract import Losses, WireRequest
from bridge.errors import RequestError
from bridge.model import Request, ResponseFormat, Sampling, Tool, ToolChoice, ToolMode
from bridge.toolkit import Node
from bridge.toolkit.fields import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, STRINGS, Fields, Row, integer, thread_in

TABLE = Fields(
    "one",
    Row("who", STRING, "user_id"),
    Row("heat", NUMBER, "sampling.temperature"),
    Row("most", INTEGER, "sampling.max_tokens"),
    Row("limit", integer(convert=True, least=1, most=9), "sampling.max_tokens"),
    Row("ends", STRINGS, "sampling.stop", lambda stop: stop or None),
    Row("labels", OBJECT, "metadata", lambda metadata: metadata or None),
    Row("keep", BOOLEAN),
    Row("tools", to="tools"),
    also={"messages"},
    carries={"thread_id"},
    common={"tier"},
)


def read(**body: Any) -> tuple[Request, dict[str, Any]]:
    request = Request("hi")
    return request, TABLE.read(Node(body, "body"), request)


def lost_of(table: Fields = TABLE, /, given: dict[str, Any] | None = None, **fields: Any) -> dict[str, str]:
    lost = Losses()
    table.write(Request("hi", **fields), lost, given)
    return {name: lost.details.get(name, "") for name in lost.names}


def test_what_has_a_row_is_set_and_the_rest_travels_on() -> None:
    said = {"who": "u", "heat": 0.5, "ends": "x", "labels": {"a": 1}, "keep": True, "messages": [], "odd": None}
    request, rest = read(**said)
    assert (request.user_id, request.sampling, request.metadata) == ("u", Sampling(0.5, stop=["x"]), {"a": 1})
    assert rest == {"keep": True, "odd": None}
    request.metadata["b"] = 2
    assert said["labels"] == {"a": 1}


def test_of_two_fields_for_one_attribute_the_later_row_counts() -> None:
    assert read(most=5, limit="3")[0].sampling.max_tokens == 3
    assert read(most=5, limit=None)[0].sampling.max_tokens == 5


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"who": 1}, "body.who: expected a string, got 1."),
        ({"limit": "12"}, "body.limit: expected a number from 1 to 9, got 12."),
        ({"ends": [1]}, "body.ends: expected a string or a list of strings, got a list."),
        ({"keep": "yes"}, "body.keep: expected true or false, got 'yes'."),
    ],
)
def test_a_wrong_field_is_named_with_its_place(body: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(**body)
    assert (caught.value.message, caught.value.failure.param) == (text, text.partition(":")[0])


def test_fields_that_are_not_read_are_unknown() -> None:
    request = Request("hi")
    assert TABLE.read(Node({"who": 1, "heat": 2}), request, only={"heat"}) == {"who": 1}
    assert (request.user_id, request.sampling.temperature) == (None, 2)


def test_a_tolerant_reader_leaves_what_has_another_type() -> None:
    request = Request("hi")
    assert TABLE.read(Node({"who": 1, "heat": 2, "keep": 3}), request, tolerant=True) == {"who": 1, "keep": 3}
    assert (request.user_id, request.sampling.temperature) == (None, 2)


def test_fields_are_written_in_the_order_of_the_table() -> None:
    request = Request("hi", user_id="u", sampling=Sampling(1, max_tokens=3, stop=[]), tools=[Tool("f")])
    lost = Losses()
    made = {"tools": ["f"], "keep": False, "who": None, "most": None}
    assert list(TABLE.write(request, lost, made).items()) == [
        ("heat", 1), ("limit", 3), ("keep", False), ("tools", ["f"])
    ]  # fmt: skip
    assert not lost


def test_what_is_left_out_is_lost_unless_another_row_carries_it() -> None:
    request, lost = Request("hi", user_id="u", sampling=Sampling(max_tokens=3)), Losses()
    assert TABLE.write(request, lost, only={"heat"}) == {}
    assert lost.names == ["user_id", "sampling"]
    lost = Losses()
    assert TABLE.write(request, lost, only={"limit"}, carries={"user_id"}) == {"limit": 3}
    assert not lost


def test_what_no_row_carries_is_lost() -> None:
    everything = {
        "tool_choice": ToolChoice(ToolMode.REQUIRED), "parallel_tool_calls": False, "context": [{}],
        "response_format": ResponseFormat("json"), "reasoning_effort": "low", "state": 0,
        "sampling": Sampling(1, 0.5, seed=0, n=2), "thread_id": "t", "extras": {"two": {"a": 1}},
    }  # fmt: skip
    assert lost_of(**everything) == {
        "tool_choice": "", "parallel_tool_calls": "", "response_format": "", "reasoning_effort": "", "context": "",
        "state": "", "sampling": "top_p, seed, n", "extras": "fields of other dialects",
    }  # fmt: skip


def test_what_apis_do_anyway_is_no_loss() -> None:
    said = {
        "tool_choice": ToolChoice(ToolMode.AUTO), "parallel_tool_calls": True, "sampling": Sampling(n=1), "state": {},
        "response_format": ResponseFormat("text"), "extras": {"one": {"a": 1}, "two": {"tier": "low"}},
    }  # fmt: skip
    assert lost_of(**said) == {}
    assert lost_of(tool_choice=ToolChoice(ToolMode.AUTO, ["f"])) == {"tool_choice": ""}


def test_a_thread_that_the_metadata_name_is_not_lost() -> None:
    table = Fields("one", Row("labels", OBJECT, "metadata"))
    assert lost_of(table, thread_id="t", metadata={"session": "t"}) == {}
    assert lost_of(table, thread_id="t", metadata={"session": "other"}) == {"thread_id": ""}
    assert lost_of(Fields("one"), thread_id="t", metadata={"session": "t"}) == {"thread_id": "", "metadata": ""}


def test_the_thread_of_a_protocol_without_threads() -> None:
    wire = WireRequest(headers={"x-session-id": "h"})
    assert thread_in({"session_id": "", "thread_id": "t"}, wire) == "t"
    assert thread_in({"session_id": 1}, wire) == "h"
    assert thread_in({}, WireRequest()) is None


def test_a_model_is_lost_where_a_request_cannot_name_one() -> None:
    table = Fields("one", Row("model", STRING, "model"))
    assert lost_of(Fields("one"), model="m") == {}
    assert lost_of(Fields("one", has_model=False), model="m") == {"model": ""}
    lost = Losses()
    assert table.write(Request([], model="m"), lost, only=()) == {}
    assert lost.details == {"model": ""}


NESTED = Fields(
    "one",
    Row("who", STRING, "user_id"),
    Row("set.heat", NUMBER, "sampling.temperature"),
    Row("set.more", INTEGER),
    Row("late", STRING),
    carries={"thread_id"},
)


def test_rows_of_an_object_inside_of_the_body() -> None:
    request = Request("hi")
    body = Node({"who": "u", "set": {"heat": 0.5, "more": 3, "odd": 1}, "late": "x"})
    assert NESTED.read(body, request) == {"late": "x", "set": {"more": 3, "odd": 1}}
    assert (request.user_id, request.sampling) == ("u", Sampling(0.5))
    lost = Losses()
    given: dict[str, Any] = {"late": "x", "set": {"more": 3, "heat": 0.7}}
    assert list(NESTED.write(request, lost, given).items()) == [
        ("who", "u"), ("set", {"heat": 0.7, "more": 3}), ("late", "x"),
    ]  # fmt: skip
    assert NESTED.write(request, lost) == {"who": "u", "set": {"heat": 0.5}}
    assert NESTED.write(request, lost, {"set.heat": None}) == {"who": "u"}
    assert lost.names == []
    assert lost_of(NESTED, sampling=Sampling(0.5, seed=1)) == {"sampling": "seed"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"set": 1}, "set: expected an object, got 1."),
        ({"set": {"heat": "x"}}, "set.heat: expected a number, got 'x'."),
        ({"set": {"more": 0.5}}, "set.more: expected a whole number, got 0.5."),
    ],
)
def test_errors_name_the_place_inside_of_the_object(body: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as error:
        NESTED.read(Node(body), Request("hi"))
    assert error.value.message == text
