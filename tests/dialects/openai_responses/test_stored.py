"""Stored responses in the codec alone: what is kept is what a client would send back, whatever the answer held."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Context, StoredAnswer, StoredResponses, WireRequest, WireResponse
from bridge.dialects.openai_responses import dialect
from bridge.dialects.openai_responses.options import FrontOptions
from bridge.errors import RequestError
from bridge.model import Message, Text
from bridge.testing import fake_backend
from tests.dialects.openai_responses.helpers import BODIES, CAPTURES, asked, front, names, request
from tests.dialects.openai_responses.test_socket import setup
from tests.server.harness import post, serving

ENDED = ("completed", "incomplete")
FINISHED = [c for c in BODIES if json.loads((CAPTURES / c["file"]).read_bytes()).get("status") in ENDED]
RUN = "0123456789abcdef0123456789abcdef"
ASKED = asked([{"role": "user", "content": "Hi"}], instructions="Be brief.")


def kept(body: bytes, **fields: Any) -> tuple[dict[str, Any], StoredAnswer]:
    """The response that a client gets for this backend's answer, and what is kept of it."""
    context = Context(RUN, created_at=1700000000.0, stored_responses=StoredResponses(), **fields)
    context.request = request(ASKED, context)
    wire = WireResponse(200, {"content-type": "application/json"}, body)
    events = dialect.parse_response(wire, Context(RUN, created_at=1700000000.0))
    value: dict[str, Any] = json.loads(dialect.assemble(events, context).body)
    assert context.stored_responses is not None
    assert context.stored_responses.answer is not None
    return value, context.stored_responses.answer


def ask(stored_responses: StoredResponses | None, **fields: Any) -> Any:
    context = front()
    context.stored_responses = stored_responses
    return request({"model": "m", **fields}, context)


@pytest.mark.parametrize("capture", FINISHED, ids=names(FINISHED))
def test_going_on_is_the_request_of_a_client_that_kept_everything(capture: dict[str, Any]) -> None:
    value, answer = kept((CAPTURES / capture["file"]).read_bytes())
    assert (value["id"], value["store"], answer.body) == (f"resp_{RUN}", True, value)
    new = {"role": "user", "content": "Go on"}
    continued = ask(StoredResponses({answer.id: answer}), input=[new], previous_response_id=answer.id)
    whole = ask(None, input=[*ASKED["input"], *value["output"], new])
    assert continued.messages == whole.messages
    assert continued.extra("openai-responses") == {}, "backends know nothing of it"


def test_every_item_can_be_pointed_at() -> None:
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": f"rs_{RUN}", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "id": f"msg_{RUN}2", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "Look.", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": f"fc_{RUN}3", "call_id": "c1", "name": "f", "arguments": "{}",
         "status": "completed"},
        {"type": "web_search_call", "id": f"ws_{RUN}4", "status": "completed", "action": {"type": "search"}},
    ]  # fmt: skip
    value, answer = kept(
        json.dumps({"id": "r", "object": "response", "status": "completed", "output": output}).encode()
    )
    assert [i["id"] for i in value["output"]] == [i["id"] for i in output]
    result = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    body = {"input": [*({"type": "item_reference", "id": i["id"]} for i in output), result]}
    assert set(dialect.stored_ids(WireRequest(body=json.dumps(body).encode()))) == {answer.id}
    pointed = ask(StoredResponses({answer.id: answer}), **body)
    assert pointed.messages == ask(None, input=[*output, result]).messages
    assert pointed.messages[-1].parts[0].name == "f"
    for kind in ({}, {"type": None}):
        short = {"input": [*({"id": i["id"], **kind} for i in output), result]}
        assert set(dialect.stored_ids(WireRequest(body=json.dumps(short, indent=1).encode()))) == {answer.id}
        assert ask(StoredResponses({answer.id: answer}), **short).messages == pointed.messages


@pytest.mark.parametrize(
    "body",
    [
        b"", b"previous_response_id", b'["item_reference"]', b'{"previous_response_id": 5}',
        b'{"input": "item_reference"}', b'{"input": [{"type": "item_reference"}, 1]}',
        b'{"input": [{"type": "item_reference", "id": []}]}',
        b'{"input": [{"type": "item_reference", "id": "msg_short"}, {"type": "item_reference", "id": "fc_\xff"}]}',
    ],
)  # fmt: skip
def test_bodies_that_name_nothing(body: bytes) -> None:
    assert dialect.stored_ids(WireRequest(body=body)) == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": "Hi", "previous_response_id": 5}, "previous_response_id"),
        ({"input": "Hi", "store": "yes"}, "store"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"input": [{"type": "item_reference", "id": f"msg_{RUN}9"}]}, "input[0]"),
        ({"input": [{"id": f"msg_{RUN}9"}]}, "input[0]"),
        ({"input": [], "previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
def test_mistakes_name_their_place(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        ask(
            StoredResponses({f"resp_{RUN}": StoredAnswer(f"resp_{RUN}", {}, [Message("user", [Text("Hi")])])}), **fields
        )
    assert caught.value.failure.param == param


def test_what_a_backend_says_of_storing_is_not_told() -> None:
    told = {"id": "resp_theirs", "store": False, "previous_response_id": "resp_x", "status": "completed", "output": []}
    value, _ = kept(json.dumps({"object": "response", **told}).encode())
    assert (value["id"], value["store"], value["previous_response_id"]) == (f"resp_{RUN}", True, None)


def test_who_keeps_them() -> None:
    assert dialect.keeps_answers(FrontOptions())
    assert not dialect.keeps_answers(FrontOptions(stored="refuse"))
    assert not dialect.keeps_answers(FrontOptions(stored="backend"))


ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "Look.", "annotations": [], "logprobs": []}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
async def test_references_to_items_of_a_responses_backend(stream: bool) -> None:
    """Items have ids of the backend's own, which it needs back; those of a response that is kept lead to it."""
    whole = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": ITEMS}
    async with (
        fake_backend() as backend,
        serving(setup(backend, "openai-responses", stores={"history": "sqlite:///:memory:"})) as base,
    ):
        url = f"{base}/v1/responses"
        if stream:
            parts = [
                {"type": f"response.output_item.{kind}", "output_index": n, "item": item}
                for n, item in enumerate(ITEMS)
                for kind in ("added", "done")
            ]
            parts.append({"type": "response.completed", "response": whole})
            backend.streams(*(b"data: %b\n\n" % json.dumps(part).encode() for part in parts))
            reply = await post(url, {"model": "m", "input": "Hi", "stream": True})
            events = [json.loads(line[6:]) for line in reply.body.split(b"\n") if line.startswith(b"data: ")]
            output = events[-1]["response"]["output"]
            assert [e["item"]["id"] for e in events if e["type"] == "response.output_item.done"] == [
                i["id"] for i in output
            ]
        else:
            backend.answers(200, json.dumps(whole).encode())
            output = (await post(url, {"model": "m", "input": "Hi"})).json["output"]
        assert [{**i, "id": ""} for i in output] == [{**i, "id": ""} for i in ITEMS]
        backend.answers(200, json.dumps({**whole, "id": "resp_2"}).encode())
        result = {"type": "function_call_output", "call_id": "c1", "output": "1"}
        references = [{"type": "item_reference", "id": i["id"]} for i in output]
        for items in (references, output):
            reply = await post(url, {"model": "m", "input": [*items, result]})
            assert reply.status == 200, reply.body
            assert backend.seen[-1].json["input"][:4] == ITEMS
        unknown = await post(url, {"model": "m", "input": [{"type": "item_reference", "id": "rs_1"}]})
        assert (unknown.status, unknown.json["error"]["param"]) == (404, "input[0]")
