"""A backend that refuses a parameter is asked once more without it, and later requests go without it at once."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Losses
from bridge.errors import ErrorCode, Failure
from bridge.run.amendments import AMENDMENTS, Amendment, Remembered, amended_body, rows_for
from bridge.toolkit.errors import is_full_context
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
async def refusing(
    back: str, refuses: Refuses, *, keys: Sequence[dict[str, str]] = (), **more: Any
) -> AsyncIterator[tuple[str, FakeBackend]]:
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
        config: dict[str, Any] = {
            "backends": {"it": {"dialect": back, "url": backend.url, "model": "m"}},
            "routes": table,
        }
        if keys:
            config["server"] = {"auth": {"keys": list(keys)}}
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


@pytest.mark.parametrize("front", FRONTS)
async def test_a_limit_that_is_too_large_is_lowered_to_what_the_model_takes(front: str) -> None:
    """router-for-me/CLIProxyAPI#2758, Gitlawb/openclaude#331: Claude Code asks for 32,000 tokens and more."""

    def refuses(body: dict[str, Any]) -> Any:
        text = f"max_tokens is too large: {body['max_tokens']}. This model supports at most 16384 completion tokens."
        return body["max_tokens"] > 16384 and error(text, "max_tokens", "invalid_value")

    field = "max_output_tokens" if front == "openai-responses" else "max_tokens"
    async with refusing("openai-chat", refuses) as (base, backend):
        for count in (2, 3):
            reply = await ask(base, front, **{field: 32000})
            assert (reply.status, len(backend.seen), sent(backend)["max_tokens"]) == (200, count, 16384)
        await ask(base, front, **{field: 100})
        assert sent(backend)["max_tokens"] == 100


async def test_a_limit_that_the_context_has_no_room_for_is_lowered_for_this_request_alone() -> None:
    """claude-code-best/claude-code#272: vLLM. Such a refusal does not mean that the conversation is too long."""

    def refuses(body: dict[str, Any]) -> Any:
        asked, prompt = body["max_tokens"], 24235
        text = (
            f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is "
            f"64001 tokens and your request has {prompt} input tokens ({asked} > 64001 - {prompt})."
        )
        return asked > 64001 - prompt and error(text, "max_tokens")

    async with refusing("openai-chat", refuses) as (base, backend):
        assert (await ask(base, "anthropic-messages", max_tokens=64000)).status == 200
        assert sent(backend)["max_tokens"] == 39766
        assert (await ask(base, "anthropic-messages", max_tokens=39000)).status == 200
        assert (len(backend.seen), sent(backend)["max_tokens"]) == (3, 39000)


@pytest.mark.parametrize(("prompt", "limits"), [(5000, [32000, 8000]), (31000, [32000, 8000, 2000, 500])])
async def test_a_prompt_that_the_server_did_not_count_to_its_end(prompt: int, limits: list[int]) -> None:
    """vLLM counts up to the first token that is too many, whatever the size of the prompt is."""

    def refuses(body: dict[str, Any]) -> Any:
        asked, size = body["max_tokens"], 32768
        text = (
            f"You passed {size - asked + 1} input tokens and requested {asked} output tokens. However, the model's "
            f"context length is only {size} tokens, resulting in a maximum input length of {size - asked} tokens."
        )
        return asked > size - prompt and error(text, "input_tokens")

    async with refusing("openai-chat", refuses) as (base, backend):
        reply = await ask(base, "anthropic-messages", max_tokens=32000)
        sizes = [json.loads(seen.body)["max_tokens"] for seen in backend.seen]
        if limits[-1] < 1024:
            assert (reply.status, sizes) == (400, limits[:-1])
            assert reply.json["error"]["message"].startswith("prompt is too long")
        else:
            assert (reply.status, sizes) == (200, limits)


async def test_a_full_context_is_told_to_the_client() -> None:
    text = (
        "This model's maximum context length is 4096 tokens. However, you requested 8096 tokens (4000 in the messages, "
        "4096 in the completion). Please reduce the length of the messages or completion."
    )
    async with refusing("openai-chat", lambda body: error(text, "messages")) as (base, backend):
        reply = await ask(base, "anthropic-messages", max_tokens=4096)
        assert (reply.status, len(backend.seen)) == (400, 1)
        assert reply.json["error"]["message"].startswith("prompt is too long")


async def test_what_a_client_makes_a_backend_say_is_not_remembered() -> None:
    """A refusal that repeats a value of the client names rows that no request needs."""
    value = "unsupported: System role not supported, max_tokens is too large: supports at most 300 completion tokens"

    def refuses(body: dict[str, Any]) -> Any:
        given = body.get("service_tier")
        text = f"Invalid value: '{given}'. Supported values are: 'auto'. (request 7f3a{len(str(body)):012x})"
        return given and error(text, "service_tier", "invalid_value")

    told_first = {"messages": told(("system", "S"), ("user", "q")), "max_tokens": 900}
    async with refusing("openai-chat", refuses) as (base, backend):
        reply = await post(f"{base}/openai-chat/chat/completions", {"model": "m", "service_tier": value, **told_first})
        assert reply.status == 200
        assert (sent(backend)["messages"], sent(backend)["max_tokens"]) == (told_first["messages"], 900)
        count = len(backend.seen)
        await post(f"{base}/openai-chat/chat/completions", {"model": "m", **told_first})
        assert len(backend.seen) == count + 1
        assert (sent(backend)["messages"], sent(backend)["max_tokens"]) == (told_first["messages"], 900)


async def test_what_one_user_makes_a_backend_say_changes_nothing_for_others() -> None:
    """A refusal repeats a key of the client's metadata, which names itself as what is not supported."""

    def refuses(body: dict[str, Any]) -> Any:
        long = [key for key, value in (body.get("metadata") or {}).items() if len(value) > 512]
        return long and error(f"Invalid metadata.{long[0]}: string too long.", "metadata")

    keys = [{"name": "ann", "key": "key-ann"}, {"name": "bob", "key": "key-bob"}]
    async with refusing("openai-chat", refuses, keys=keys) as (base, backend):
        url, hello = f"{base}/openai-chat/chat/completions", {"model": "m", "messages": told(("user", "q"))}
        hostile = {"this is not supported": "x" * 600}
        for who, value, kept in ("ann", hostile, None), ("bob", {"a": "b"}, {"a": "b"}):
            reply = await post(url, {**hello, "metadata": value}, authorization=f"Bearer key-{who}")
            assert (reply.status, sent(backend).get("metadata")) == (200, kept)


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


@pytest.mark.parametrize(
    ("message", "most"),
    [
        ("max_tokens is too large: 32000. This model supports at most 16384 completion tokens.", 16384),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
        ("integer above maximum value, expected a value <= 12288, but got 32000: `max_completion_tokens`", 12288),
        ("max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-x", 8192),
        ("input length and `max_tokens` exceed context limit: 188240 + 32000 > 200000, decrease", 11760),
        ("This model's maximum context length is 32768 tokens. However, you requested 32000 output tokens and your "
         "prompt contains at least 769 input tokens, for a total of at least 32769 tokens.", 8000),
        ("You passed 769 input tokens and requested 32000 output tokens. However, the model's context length is only "
         "32768 tokens, resulting in a maximum input length of 768 tokens. Please reduce the length of the input "
         "prompt. (parameter=input_tokens, value=769)", 8000),
        ("You passed 20000 input tokens and requested 32000 output tokens. However, the model's context length is "
         "only 32768 tokens, resulting in a maximum input length of 768 tokens.", 12768),
        ("This endpoint's maximum context length is 40000 tokens. However, you requested about 54000 tokens (18000 of "
         "text input, 4000 of tool input, 32000 in the output).", 18000),
        ("Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of "
         "33000 tokens: 1000 tokens from the input messages and 32000 tokens for the completion.", 31768),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 1000 `inputs` tokens and 32000 `max_new_tokens`",
         3096),
        ("it has a maxOutputTokens value of 32000 but the supported range is from 1 (inclusive) to 8193 (exclusive).",
         8192),
        ("`max_completion_tokens` must be less than or equal to `8192`, the maximum value for it", 8192),
        ("The maximum tokens you requested exceeds the model limit of 4096.", 4096),
        ("Invalid max_tokens param", None),
    ],
)  # fmt: skip
def test_what_a_refusal_says_of_the_largest_limit(message: str, most: int | None) -> None:
    for field in ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"):
        holder = {field: 32000, "n": 1}
        body = {"generationConfig": holder} if field == "maxOutputTokens" else holder
        code = ErrorCode.CONTEXT_LENGTH if is_full_context(message) else ErrorCode.INVALID_REQUEST
        written, rows = amended_body(json.dumps(body).encode(), rows_for(Failure(code, message)), Losses())
        value = json.loads(written)
        assert value.get("generationConfig", value) == {"n": 1, **({field: most} if most is not None else {})}
        assert len(rows) == 1


def test_of_the_largest_limits_of_a_model_the_last_one_is_remembered() -> None:
    remembered = Remembered("it")
    for most in (16384, 8192):
        said = refused(f"max_tokens is too large: 32000. This model supports at most {most} completion tokens.")
        remembered.add("", "m", rows_for(said, remembered.rows("", "m"))[0], said)
    body, _ = amended_body(b'{"max_tokens":32000}', remembered.rows("", "m"), Losses())
    assert (json.loads(body), len(remembered.rows("", "m"))) == ({"max_tokens": 8192}, 1)


@pytest.mark.parametrize(
    "message",
    [
        "Budget 0 is invalid. This model only works in thinking mode.",
        "Unable to submit request because Thinking can't be disabled for this model. Remove "
        "'thinking_config.thinking_budget' from your request and try again.",
        "Unable to submit request because The model does not support setting thinking_budget to 0.",
    ],
)
def test_models_that_always_think(message: str) -> None:
    config = {"thinkingConfig": {"thinkingBudget": 0}, "seed": 1}
    for body in (
        {"generationConfig": config, "a": 1},
        {"reasoning_effort": "none", "a": 1},
        {"thinking": {"type": "disabled"}, "a": 1},
    ):
        written, rows = amended_body(json.dumps(body).encode(), rows_for(refused(message)), Losses())
        assert json.loads(written) in ({"a": 1}, {"a": 1, "generationConfig": {"seed": 1}})
        assert len(rows) == 1


@pytest.mark.parametrize(
    "message",
    [
        "parameter.enable_thinking must be set to false for non-streaming calls",
        "enable thinking can not be support when `stream=False`.",
        "parameter.enable_thinking必须设置为false才能进行非流式调用",
    ],
)
def test_models_that_think_in_streams_alone(message: str) -> None:
    rows = rows_for(refused(message))
    for body in ({"a": 1}, {"a": 1, "enable_thinking": True, "stream": False}):
        written = json.loads(amended_body(json.dumps(body).encode(), rows, Losses())[0])
        assert written == {**body, "enable_thinking": False}
        assert amended_body(json.dumps(written).encode(), rows, Losses())[1] == []
    assert amended_body(b'{"stream":true}', rows, Losses())[1] == []


@pytest.mark.parametrize(
    "message",
    [
        "Thinking level MINIMAL is not supported for this model. Please retry with other thinking level.",
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".',
    ],
)
def test_ways_to_think_that_a_model_does_not_have(message: str) -> None:
    body = {"generationConfig": {"thinkingConfig": {"thinkingLevel": "MINIMAL"}}, "thinking": {"type": "enabled"}}
    assert amended_body(json.dumps(body).encode(), rows_for(refused(message)), Losses())[0] == b"{}"


@pytest.mark.parametrize(
    "message",
    [
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
        "Please ensure that multiturn requests ends with a user role or a function response.",
    ],
)
def test_models_that_continue_no_message(message: str) -> None:
    for name, role in (("messages", "assistant"), ("contents", "model")):
        told = [{"role": "user"}, {"role": role}]
        body, rows = amended_body(json.dumps({name: told}).encode(), rows_for(refused(message)), Losses())
        after = json.loads(body)[name]
        assert (after[:2], after[2]["role"], len(rows)) == (told, "user", 1)
        assert amended_body(json.dumps({name: told[:1]}).encode(), rows, Losses())[1] == []


TOLD = {
    "context_management": {"edits": []}, "output_config": {"effort": "low"}, "model": "m", "system": [
        {"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "scope": "global"}}],
    "tools": [{"name": "a", "strict": True, "input_schema": {"properties": {"strict": {}}}}, {"name": "b"}],
    "messages": [{"role": "user", "name": "n", "content": [{"type": "tool_use", "name": "a", "caller": {}}, "x"]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("place", "without", "lost"),
    [
        ("context_management", "context_management", "extras"),
        ("output_config", "output_config", "reasoning_effort"),
        ("tools.0.custom.strict", "tools.0.strict", "tools"),
        ("messages.0.content.0.tool_use.caller", "messages.0.content.0.caller", "extras"),
        ("messages.0.name", "messages.0.name", "extras"),
        ("system.0.cache_control.ephemeral.scope", "system.0.cache_control.scope", "extras"),
    ],
)
def test_fields_that_a_backend_does_not_know(place: str, without: str, lost: str) -> None:
    """anthropics/claude-code#21612, can1357/oh-my-pi#826: each server takes other fields of one protocol."""
    wanted = json.loads(json.dumps(TOLD))
    *way, name = without.split(".")
    holder: Any = wanted
    for step in way:
        holder = holder[int(step) if step.isdecimal() else step]
    del holder[name]
    losses = Losses()
    said = refused(f"{place}: Extra inputs are not permitted")
    body, rows = amended_body(json.dumps(TOLD).encode(), rows_for(said), losses)
    assert (json.loads(body), losses.names, len(rows)) == (wanted, [lost], 1)


@pytest.mark.parametrize(
    "place",
    ["model", "messages", "tools", "messages.0.content.0.text.text", "tools.0.custom.name", "messages.0.role", "x",
     "messages.0.content.0.tool_use.name", "previous_response_id"],
)  # fmt: skip
def test_what_a_request_needs_is_not_left_out(place: str) -> None:
    said = refused(f"{place}: Extra inputs are not permitted")
    body = {**TOLD, "previous_response_id": "r"}
    if place != "messages.0.content.0.tool_use.name":
        assert amended_body(json.dumps(body).encode(), rows_for(said), Losses())[1] == []
    else:
        written = json.loads(amended_body(json.dumps(body).encode(), rows_for(said), Losses())[0])
        assert written["messages"][0]["content"][0]["name"] == "a"


async def test_a_coding_agents_newest_fields_do_not_stop_it() -> None:
    def refuses(body: dict[str, Any]) -> Any:
        for name in ("context_management", "output_config"):
            if name in body:
                return {"type": "error", "error": error(f"{name}: Extra inputs are not permitted")["error"]}
        return None

    async with refusing("anthropic-messages", refuses) as (base, backend):
        for count in (3, 4):
            reply = await ask(base, "anthropic-messages", context_management={"edits": []})
            assert (reply.status, len(backend.seen)) == (200, count)


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ("Unexpected value(s) `effort-2025-11-24`, `b-2026` for the `anthropic-beta` header. Please consult", "a-2025"),
        ("invalid beta flag", None),
    ],
)
async def test_betas_that_a_backend_does_not_know(message: str, left: str | None) -> None:
    """anthropics/claude-code#34802: Vertex AI, anthropics/claude-code#82549: Bedrock."""
    async with fake_backend("anthropic-messages") as backend:
        backend.says("ok")
        good = backend.script

        async def script(exchange: Any) -> None:
            sent = exchange.seen.headers.get("anthropic-beta", "")
            if "2026" in sent or (left is None and sent):
                body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
                await exchange.answer(400, json.dumps(body).encode())
            else:
                assert good is not None
                await good(exchange)

        backend.plays(script)
        config = {
            "backends": {"it": {"dialect": "anthropic-messages", "url": backend.url, "model": "m"}},
            "routes": [{"dialect": "anthropic-messages", "path": "/v1", "backend": "it"}],
        }
        async with serving(config) as base:
            for count in (2, 3 if left else 4):
                body = {"model": "m", **asked("anthropic-messages")}
                sent_on = {"anthropic-beta": "a-2025, effort-2025-11-24,b-2026"}
                reply = await post(f"{base}/v1/messages", body, **sent_on)
                assert (reply.status, len(backend.seen)) == (200, count)
                assert "extras" in reply.headers["x-bridge-lost"]
                assert backend.seen[-1].headers.get("anthropic-beta") == left


def told(*messages: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in messages]


LATE = told(("system", "A"), ("user", "q"), ("developer", [{"type": "text", "text": "B"}]))
TEMPLATES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "Jinja Exception: System message must be at the beginning.",
        {"messages": LATE},
        {"messages": told(("system", "A\n\nB"), ("user", "q"))},
    ),
    (
        "System message must be at the beginning.",
        {"instructions": "I", "input": LATE[1:]},
        {"instructions": "I\n\nB", "input": told(("user", "q"))},
    ),
    (
        "System role not supported",
        {"messages": LATE},
        {"messages": told(("user", "A\n\nB\n\nq"))},
    ),
    (
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        {"systemInstruction": {"parts": [{"text": "A"}]}, "contents": [{"role": "user", "parts": [{"text": "q"}]}]},
        {"contents": [{"role": "user", "parts": [{"text": "A"}, {"text": "q"}]}]},
    ),
    (
        "Conversation roles must alternate user/assistant/user/assistant/...",
        {"messages": told(("user", "a"), ("user", [{"type": "image_url"}]), ("assistant", "b"), ("assistant", "c"))},
        {"messages": told(("user", [{"type": "text", "text": "a"}, {"type": "image_url"}]), ("assistant", "b\n\nc"))},
    ),
]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.BACKEND_ERROR])
@pytest.mark.parametrize(("message", "body", "wanted"), TEMPLATES, ids=[message for message, *_ in TEMPLATES])
def test_what_a_chat_template_refuses(code: ErrorCode, message: str, body: Any, wanted: Any) -> None:
    """ggml-org/llama.cpp#20733, google/adk-python#1373, SWE-agent/mini-swe-agent#759 (status 500)."""
    if code is ErrorCode.BACKEND_ERROR:
        message = f"While executing CallExpression in source: raise_exception(...) {message}"
    rows = rows_for(Failure(code, message))
    written, changed = amended_body(json.dumps(body).encode(), rows, Losses())
    assert (json.loads(written), len(changed)) == (wanted, 1)
    assert amended_body(json.dumps(wanted).encode(), rows, Losses())[1] == []


@pytest.mark.parametrize(
    "message",
    [
        "messages: text content blocks must be non-empty",
        "messages.3: all messages must have non-empty content except for the optional final assistant message",
        "messages.29.content.0.text: cache_control cannot be set for empty text blocks",
        "Invalid request: the message at position 2 with role 'assistant' must not be empty",
    ],
)
def test_servers_that_take_no_empty_texts(message: str) -> None:
    """NousResearch/hermes-agent#11929: such a text is in the history, so that no later request would pass either."""
    text, empty, image = {"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "image_url"}
    calls = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    result = {"role": "tool", "tool_call_id": "1", "content": ""}
    before = [
        *told(("system", ""), ("user", [empty, image]), ("assistant", ""), ("assistant", [empty]), ("user", "")),
        {**calls, "content": ""}, result, *told(("assistant", [text, empty])), {"role": "assistant", "content": None},
    ]  # fmt: skip
    after = [
        *told(("user", [image]), ("user", "")), {**calls, "content": None}, result, *told(("assistant", [text])),
    ]  # fmt: skip
    rows = rows_for(refused(message))
    body, changed = amended_body(json.dumps({"messages": before}).encode(), rows, Losses())
    assert (json.loads(body)["messages"], len(changed)) == (after, 1)
    assert amended_body(body, rows, Losses())[1] == []
    items = [{"type": "message", "role": "assistant", "content": ""}, {"type": "function_call", "name": "f"}, "x"]
    assert json.loads(amended_body(json.dumps({"input": items}).encode(), rows, Losses())[0])["input"] == items[1:]


def test_calls_are_not_joined_with_what_follows_them() -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [{}]}
    messages = [*told(("user", "a")), called, *told(("assistant", "b"))]
    rows = rows_for(refused("Conversation roles must alternate user/assistant"))
    assert amended_body(json.dumps({"messages": messages}).encode(), rows, Losses())[1] == []


def test_many_messages_in_a_row_are_joined_once() -> None:
    many = json.dumps({"messages": told(*[("user", "a" * 1000)] * 20_000)}).encode()
    body, _ = amended_body(many, rows_for(refused("Conversation roles must alternate user/assistant")), Losses())
    (message,) = json.loads(body)["messages"]
    assert len(message["content"]) == 20_000 * 1002 - 2


def test_a_failure_of_a_server_that_is_none_of_a_template_changes_nothing() -> None:
    assert rows_for(Failure(ErrorCode.BACKEND_ERROR, "System message must be at the beginning.")) == []


def test_the_form_of_an_answer_beside_tools() -> None:
    body = {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {}, "seed": 1}}
    said = refused("Function calling with a response mime type: 'application/json' is unsupported")
    assert json.loads(amended_body(json.dumps(body).encode(), rows_for(said), Losses())[0]) == {
        "generationConfig": {"seed": 1}
    }


@pytest.mark.parametrize(
    "message",
    [
        "deepseek-reasoner does not support this tool_choice",
        "tool_choice 'required' is incompatible with thinking enabled",
        "The tool_choice parameter does not support being set to required or object in thinking mode",
        "Thinking may not be enabled when tool_choice forces tool use.",
        "Invalid tool_choice: only `auto` is supported",
    ],
)
def test_models_that_cannot_be_made_to_call_a_tool(message: str) -> None:
    named = {"type": "function", "function": {"name": "a"}}
    for choice, wanted in (
        ("required", "auto"),
        (named, "auto"),
        (
            {"type": "tool", "name": "a", "disable_parallel_tool_use": True},
            {"type": "auto", "disable_parallel_tool_use": True},
        ),
    ):
        lost = Losses()
        body, rows = amended_body(json.dumps({"tool_choice": choice}).encode(), rows_for(refused(message)), lost)
        assert (json.loads(body), lost.names, rows[0].lasts) == ({"tool_choice": wanted}, ["tool_choice"], False)
        assert amended_body(body, rows, Losses())[1] == []


@pytest.mark.parametrize(
    "message",
    [
        "Invalid schema for function 'f': 'additionalProperties' is required to be supplied and to be false.",
        "Invalid schema for function 'f': In context=('properties', 'a'), 'required' is required to be supplied and to "
        "be an array including every key in properties. Missing 'b'.",
        "Invalid schema for function 'f': In context=('properties', 'a'), 'minLength' is not permitted.",
        "tools.0.custom: For 'object' type, 'additionalProperties' must be explicitly set to false",
    ],
)
def test_strict_tools_whose_schema_is_not_strict_enough(message: str) -> None:
    tools = [
        {"type": "function", "function": {"strict": True, "name": "f"}},
        {"name": "g", "strict": True},
        {"name": "h"},
    ]
    lost = Losses()
    body, rows = amended_body(json.dumps({"tools": tools}).encode(), rows_for(refused(message)), lost)
    first, second, third = json.loads(body)["tools"]
    assert first == {"type": "function", "function": {"strict": False, "name": "f"}}
    assert (second, third, lost.names) == ({"name": "g", "strict": False}, {"name": "h"}, ["tools"])
    assert amended_body(body, rows, Losses())[1] == []


def test_a_strict_schema_of_the_answer() -> None:
    said = refused("Invalid schema for response_format 'x': 'required' is required to be supplied and to be an array")
    for body in ({"response_format": {"json_schema": {"strict": True}}}, {"text": {"format": {"strict": True}}}):
        lost = Losses()
        written, _ = amended_body(json.dumps({**body, "tools": [{"strict": True}]}).encode(), rows_for(said), lost)
        assert (written.count(b"false"), written.count(b"true"), lost.names) == (1, 1, ["response_format"])


async def test_a_server_that_knows_functions_alone() -> None:
    """ggml-org/llama.cpp#20156: Codex declares tools of other types, and refuses calls of another type than those."""
    patch = {
        "type": "custom",
        "name": "patch",
        "description": "Edits.",
        "format": {"type": "grammar", "definition": "g"},
    }
    spawn = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}
    held = {"type": "custom", "name": "exec"}
    body = {
        "model": "m",
        "stream": True,
        "tools": [patch, {"type": "namespace", "name": "a", "tools": [spawn]}, {"type": "web_search"}],
        "tool_choice": {"type": "custom", "name": "patch"},
        "input": [
            {"type": "additional_tools", "role": "developer", "tools": [held]},
            {"role": "user", "content": "q"},
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "patch", "input": "***"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
            {"type": "function_call", "call_id": "c2", "namespace": "a", "name": "spawn", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c2", "output": "done"},
        ],
    }

    async with fake_backend("openai-responses") as backend:
        calls = [
            {"type": "function_call", "id": f"fc_{name}", "call_id": name, "name": name, "arguments": '{"input":"x"}'}
            for name in ("patch", "a__spawn", "exec")
        ]
        whole = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": calls}

        async def script(exchange: Any) -> None:
            if all(tool["type"] == "function" for tool in exchange.seen.json["tools"]):
                await exchange.answer(200, json.dumps(whole).encode())
            else:
                await exchange.answer(400, json.dumps(error("'type' of tool must be 'function'")).encode())

        backend.plays(script)
        config = {
            "backends": {"it": {"dialect": "openai-responses", "url": backend.url, "model": "m"}},
            "routes": [{"dialect": "openai-responses", "path": "/v1", "backend": "it"}],
        }
        async with serving(config) as base:
            for count in (2, 3):
                reply = await post(f"{base}/v1/responses", {**body, "stream": False})
                assert (reply.status, len(backend.seen)) == (200, count)
            got = sent(backend)
            assert [tool["name"] for tool in got["tools"]] == ["patch", "a__spawn", "exec"]
            assert got["tools"][0]["description"] == "Edits.\n\nThe input has this grammar:\ng"
            assert got["tool_choice"] == {"type": "function", "name": "patch"}
            assert [(item.get("type"), item.get("name")) for item in got["input"]] == [
                ("message", None), ("function_call", "patch"), ("function_call_output", None),
                ("function_call", "a__spawn"), ("function_call_output", None),
            ]  # fmt: skip
            assert got["input"][1]["arguments"] == '{"input":"***"}'
            told = [(item["type"], item["name"], item.get("namespace")) for item in reply.json["output"]]
            assert told == [
                ("custom_tool_call", "patch", None),
                ("function_call", "spawn", "a"),
                ("custom_tool_call", "exec", None),
            ]
            assert "tools" in reply.headers["x-bridge-lost"]


def test_without_tools_of_other_types_nothing_is_changed() -> None:
    said = refused("'type' of tool must be 'function'")
    body = json.dumps({"tools": [{"type": "function", "name": "f"}], "input": "q"}).encode()
    assert amended_body(body, rows_for(said), Losses()) == (body, [])
    alone = json.dumps(
        {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}, "input": "q"}
    ).encode()
    assert amended_body(alone, rows_for(said), Losses())[0] == b'{"input":"q"}'


def test_ids_of_calls_for_mistral() -> None:
    said = refused("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.")
    ids = ["call_1", "abcDEF123", "toolu_2"]
    told = [{"role": "assistant", "tool_calls": [{"id": each} for each in ids]}]
    told += [{"role": "tool", "tool_call_id": each} for each in ids]
    body, rows = amended_body(json.dumps({"messages": told}).encode(), rows_for(said), Losses())
    called, *results = json.loads(body)["messages"]
    made = [call["id"] for call in called["tool_calls"]]
    assert made == [result["tool_call_id"] for result in results]
    assert made[1] == "abcDEF123"
    assert len(set(made)) == 3
    assert all(len(each) == 9 and each.isalnum() for each in made)
    assert amended_body(body, rows, Losses())[1] == []


def test_the_role_developer_in_the_input_of_responses() -> None:
    said = refused("Unexpected role developer")
    body, _ = amended_body(b'{"input":[{"role":"developer"},"x"]}', rows_for(said), Losses())
    assert json.loads(body) == {"input": [{"role": "system"}, "x"]}


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
        refused("max_tokens must be at least 16", "max_tokens"),
        Failure(
            ErrorCode.CONTEXT_LENGTH, "maximum context length is 4096 tokens: 4000 in the messages, max_tokens 200"
        ),
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


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (
            "Invalid schema for response_format 'x': In context=('properties', 'deprecated'), 'additionalProperties' "
            "is required to be supplied and to be false.",
            "response_format",
        ),
        ("Invalid value: 'unsupported'. Supported values are: 'low', 'medium', and 'high'.", "reasoning_effort"),
        ("Invalid 'metadata.deprecated': string too long. Expected a string with maximum length 512.", "metadata"),
    ],
)
def test_names_of_the_client_do_not_say_what_is_unsupported(message: str, param: str) -> None:
    assert [row.what for row in rows_for(refused(message, param)) if row.lasts] == []


def test_only_so_many_models_are_remembered() -> None:
    remembered, row = Remembered("it"), AMENDMENTS[0]
    for number in range(2000):
        remembered.add("ann", f"m{number}", row, refused("no"))
    assert remembered.rows("ann", "m1999") == (row,)
    assert remembered.rows("ann", "m0") == ()
    assert remembered.rows("bob", "m1999") == ()


def test_each_row_names_its_source() -> None:
    assert all(isinstance(row, Amendment) and row.source and row.what for row in AMENDMENTS)
