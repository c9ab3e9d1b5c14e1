"""A backend that refuses a parameter is asked once more without it, and later requests go without it at once."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Losses
from bridge.errors import ErrorCode, Failure
from bridge.run.amendments import AMENDMENTS, Amendment, Remembered, amended_body, rows_for
from tests.server.harness import FakeBackend, Reply, fake_backend, post, serving
from tests.translation.test_requirements import asked

TOOL = {"type": "object", "properties": {}}
FRONTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": ("/chat/completions", {"max_tokens": 50, "temperature": 0.5, "reasoning_effort": "low"}),
    "openai-responses": ("/responses", {"max_output_tokens": 50, "temperature": 0.5, "reasoning": {"effort": "low"}}),
    "anthropic-messages": (
        "/messages",
        {"max_tokens": 50, "temperature": 0.5, "output_config": {"effort": "low"}},
    ),
    "agentscope": ("/process", {"max_tokens": 50, "temperature": 0.5, "reasoning_effort": "low"}),
}
Refuses = Callable[[dict[str, Any]], Any]


def error(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def unsupported(name: str) -> Refuses:
    text = f"Unsupported parameter: '{name}' is not supported with this model."
    return lambda body: error(text, name, "unsupported_parameter") if _at(body, name) is not None else None


def _at(body: Any, path: str) -> Any:
    for step in path.split("."):
        body = body.get(step) if isinstance(body, dict) else None
    return body


CHAT: dict[str, tuple[Refuses, str, str]] = {
    "limit": (unsupported("max_tokens"), "max_completion_tokens", "sampling"),
    "temperature, by its value": (
        lambda b: "temperature" in b and error(
            "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) is supported.",
            "temperature", "unsupported_value"),
        "-temperature", "sampling",
    ),
    "temperature, in words alone": (
        lambda b: "temperature" in b and error("`temperature` is deprecated for this model."),
        "-temperature", "sampling",
    ),
    "an unknown argument": (
        lambda b: "stream_options" in b and error("Unrecognized request argument supplied: stream_options"),
        "-stream_options", "usage",
    ),
    "a field that is not allowed": (
        lambda b: "reasoning_effort" in b and {"detail": [
            {"type": "extra_forbidden", "loc": ["body", "reasoning_effort"], "msg": "Extra inputs are not permitted"}]},
        "-reasoning_effort", "reasoning_effort",
    ),
    "effort beside tools": (
        lambda b: b.get("tools") and b.get("reasoning_effort") != "none" and error(
            "Function tools with reasoning_effort are not supported for m in /v1/chat/completions. Please use "
            "/v1/responses or set reasoning_effort to 'none'.", "reasoning_effort"),
        "reasoning_effort", "reasoning_effort",
    ),
}  # fmt: skip


@asynccontextmanager
async def refusing(back: str, refuses: Refuses, **more: Any) -> AsyncIterator[tuple[str, FakeBackend]]:
    async with fake_backend(back) as backend:
        backend.says("ok")
        good = backend.script

        async def script(exchange: Any) -> None:
            refusal = refuses(json.loads(exchange.seen.body))
            if refusal:
                await exchange.answer(400, json.dumps(refusal).encode())
            else:
                assert good is not None
                await good(exchange)

        backend.plays(script)
        table = [
            {"dialect": name, "path": f"/{name}", "backend": "it", **more}
            for name in FRONTS
            if not more or name == back
        ]
        config = {"backends": {"it": {"dialect": back, "url": backend.url, "model": "m"}}, "routes": table}
        async with serving(config) as base:
            yield base, backend


async def ask(base: str, front: str, **fields: Any) -> Reply:
    path, more = FRONTS[front]
    return await post(
        f"{base}/{front}{path}", {"model": "m", **asked(front, tool=TOOL), **more, "stream": True, **fields}
    )


def sent(backend: FakeBackend) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(backend.seen[-1].body)
    return body


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("name", CHAT)
async def test_the_second_try_has_what_the_refusal_asks_for(front: str, name: str) -> None:
    refuses, field, lost = CHAT[name]
    async with refusing("openai-chat", refuses) as (base, backend):
        for count in (2, 3):  # the second request is amended before it is sent
            reply = await ask(base, front)
            assert (reply.status, len(backend.seen)) == (200, count)
            assert b"ok" in reply.body
            # The head of an eager stream is out before the backend refuses.
            assert lost in reply.headers["x-bridge-lost"].split(",") or (count == 2 and front == "agentscope")
            assert (field.lstrip("-") in sent(backend)) is not field.startswith("-")


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("back", "path"),
    [
        ("openai-responses", "reasoning.effort"),
        ("openai-responses", "temperature"),
        ("anthropic-messages", "temperature"),
    ],
)
async def test_every_api_with_such_refusals_is_asked_again(front: str, back: str, path: str) -> None:
    async with refusing(back, unsupported(path)) as (base, backend):
        reply = await ask(base, front)
        assert reply.status == 200
        assert _at(sent(backend), path) is None


async def test_one_amendment_after_another() -> None:
    def refuses(body: dict[str, Any]) -> Any:
        return unsupported("max_tokens")(body) or unsupported("temperature")(body)

    async with refusing("openai-chat", refuses) as (base, backend):
        assert (await ask(base, "anthropic-messages")).status == 200
        assert len(backend.seen) == 3
        assert (await ask(base, "openai-responses")).status == 200
        assert len(backend.seen) == 4


async def test_what_does_not_help_is_not_remembered() -> None:
    always = error("Unsupported parameter: 'temperature' is not supported with this model.", "temperature")
    async with refusing("openai-chat", lambda body: always) as (base, backend):
        reply = await ask(base, "openai-chat")
        assert (reply.status, reply.json["error"]["param"]) == (400, "temperature")
        assert len(backend.seen) == 2
        await ask(base, "openai-chat")
        assert "temperature" in json.loads(backend.seen[2].body)


async def test_other_models_are_left_alone() -> None:
    def refuses(body: dict[str, Any]) -> Any:
        return body["model"] == "m" and unsupported("temperature")(body)

    async with refusing("openai-chat", refuses) as (base, backend):
        assert (await ask(base, "openai-chat")).status == 200
        assert (await ask(base, "openai-chat", model="other")).status == 200
        assert sent(backend)["temperature"] == 0.5


async def test_a_passthrough_route_is_not_amended() -> None:
    async with refusing("openai-chat", unsupported("temperature"), passthrough=True) as (base, backend):
        assert (await ask(base, "openai-chat")).status == 400
        assert len(backend.seen) == 1


async def test_it_is_logged_once_for_each_model(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "bridge.run")
    async with refusing("openai-chat", unsupported("max_tokens")) as (base, _):
        for _ in range(3):
            await ask(base, "anthropic-messages")
    assert [r.getMessage().partition(",")[0] for r in caplog.records if "is sent for" in r.getMessage()] == [
        "backend it"
    ]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"max_completion_tokens": 5}, {"max_completion_tokens": 5}),
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"max_tokens": 6, "max_completion_tokens": 5}, {"max_completion_tokens": 5}),
    ],
)
async def test_a_chat_client_keeps_its_spelling(fields: dict[str, int], wanted: dict[str, int]) -> None:
    async with refusing("openai-chat", lambda body: None) as (base, backend):
        await post(f"{base}/openai-chat/chat/completions", {"model": "m", **asked("openai-chat"), **fields})
        assert {k: v for k, v in sent(backend).items() if k.startswith("max_")} == wanted


# ---------------------------------------------------------------------- the table

FULL: dict[str, Any] = {
    "max_tokens": 5, "temperature": 0.5, "top_p": 0.5, "reasoning_effort": "low", "tools": [{}],
    "response_format": {"type": "json_schema", "json_schema": {}}, "stream_options": {}, "parallel_tool_calls": False,
    "messages": [{"role": "developer", "content": "x"}], "reasoning": {"effort": "low"}, "user": "u",
    "generationConfig": {"seed": 1, "topK": 2, "thinkingConfig": {}},
    "output_config": {"effort": "low", "format": {}}, "text": {"verbosity": "low", "format": {}}, "store": True,
}  # fmt: skip


def refused(message: str, param: str | None = None) -> Failure:
    return Failure(ErrorCode.INVALID_REQUEST, message, param)


@pytest.mark.parametrize(
    ("message", "param", "gone", "there"),
    [
        ("`temperature` and `top_p` cannot both be specified for this model.", None, "top_p", "temperature"),
        ("This model does not support the effort parameter.", None, "output_config.effort", "output_config.format"),
        ("The 'metadata' parameter is only allowed when 'store' is enabled.", "metadata", "metadata", "store"),
        ("This response_format type is unavailable now", None, "response_format.json_schema", "response_format.type"),
        ("litellm.UnsupportedParamsError: gpt-5 models don't support temperature=0.5.", None, "temperature", "top_p"),
        ("Argument not supported on this model: reasoningEffort", None, "reasoning_effort", "user"),
        ("Model x does not support parameter topP.", None, "top_p", "temperature"),
        ("`temperature` may only be set to 1 when thinking is enabled.", None, "temperature", "output_config.effort"),
        ("Invalid JSON payload received. Unknown name \"seed\" at 'generation_config': Cannot find field.", None,
         "generationConfig.seed", "generationConfig.topK"),
        ("Unsupported parameter: 'text.verbosity'", "text.verbosity", "text.verbosity", "text.format"),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.", None, "max_tokens", "temperature"),
        ("[{'type': 'extra_forbidden', 'loc': ('body', 'parallel_tool_calls'), 'msg': 'Extra inputs are forbidden'}]",
         None, "parallel_tool_calls", "tools"),
    ],
)  # fmt: skip
def test_a_refusal_changes_what_it_names_and_nothing_else(
    message: str, param: str | None, gone: str, there: str
) -> None:
    body = {**FULL, "metadata": {"a": "b"}}
    rows = rows_for(refused(message, param))
    changed = next(c for row in rows if (c := amended_body(json.dumps(body).encode(), [row], Losses()))[1])
    value = json.loads(changed[0])
    assert _at(value, gone) is None
    assert _at(value, there) is not None
    assert len(value.keys() ^ body.keys()) <= 2


@pytest.mark.parametrize("tool", [{"function": {"parameters": {}}}, {"parameters": {}}, {"input_schema": {}}])
def test_choices_at_the_root_of_a_schema(tool: dict[str, Any]) -> None:
    schema = {"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
    tool = json.loads(json.dumps(tool).replace("{}", json.dumps(schema)))
    said = refused("schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf' at the top level", "tools[0]")
    body, _ = amended_body(json.dumps({"tools": [tool, "x"]}).encode(), rows_for(said), Losses())
    assert b"anyOf" not in body
    assert b'"properties":{"a":{},"b":{}}' in body


@pytest.mark.parametrize("message", ['"x" does not support thinking', "thinking is not supported by this model"])
def test_models_that_do_not_think(message: str) -> None:
    body, _ = amended_body(json.dumps(FULL).encode(), rows_for(refused(message)), Losses())
    value = json.loads(body)
    assert [name for name in ("reasoning_effort", "reasoning", "output_config.effort") if _at(value, name)] == []
    assert _at(value, "generationConfig.thinkingConfig") is None
    assert _at(value, "output_config.format") == {}


def test_the_role_developer() -> None:
    said = refused(
        "messages[0].role: unknown variant `developer`, expected one of `system`, `user`", "messages[0].role"
    )
    body, rows = amended_body(json.dumps(FULL).encode(), rows_for(said), Losses())
    assert json.loads(body)["messages"] == [{"role": "system", "content": "x"}]
    assert len(rows) == 1


@pytest.mark.parametrize(
    "failure",
    [
        refused("max_tokens is too large: 9. This model supports at most 5 completion tokens."),
        refused("Invalid 'temperature': decimal above maximum value. Expected a value <= 2.", "temperature"),
        refused("messages: at least one message is required", "messages"),
        Failure(ErrorCode.OVERLOADED, "Unsupported parameter: 'temperature'"),
        Failure(ErrorCode.BACKEND_AUTH, "Unsupported parameter: 'temperature'"),
    ],
)
def test_other_refusals_change_nothing(failure: Failure) -> None:
    assert amended_body(json.dumps(FULL).encode(), rows_for(failure), Losses())[1] == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(FULL)), inner, max_size=3),
    max_leaves=8,
)
_WORDS = st.text() | st.sampled_from(
    ["unsupported 'temperature' top_p cannot both developer role reasoning_effort none tools"]
)


@given(_WORDS, st.none() | st.text(), st.none() | st.text(), st.sampled_from(list(ErrorCode)), _JSON)
def test_nothing_that_a_refusal_says_raises(
    message: str, param: str | None, code: str | None, kind: ErrorCode, body: Any
) -> None:
    rows = rows_for(Failure(kind, message, param, backend_code=code))
    data = json.dumps(body).encode()
    written, changed = amended_body(data, rows, Losses())
    assert (written == data) is not bool(changed) or json.loads(written) == body
    assert isinstance(json.loads(amended_body(data, AMENDMENTS, Losses())[0]), type(body))


def test_only_so_many_models_are_remembered() -> None:
    remembered, row = Remembered("it"), AMENDMENTS[0]
    for number in range(1000):
        remembered.add(f"m{number}", row, refused("no"))
    assert remembered.rows("m999") == (row,)
    assert remembered.rows("m0") == ()


def test_each_row_names_its_source() -> None:
    assert all(isinstance(row, Amendment) and row.source and row.what for row in AMENDMENTS)
