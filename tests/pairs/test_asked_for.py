"""What the answer side can carry is asked for at the backend, in its own words: reasoning, opaque reasoning, log
probabilities.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.errors import RequestError
from bridge.translation.library import Translator

CHAT, RESPONSES, MESSAGES, GEMINI = "openai-chat", "openai-responses", "anthropic-messages", "gemini"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": "m", "input": "hi"},
    MESSAGES: {"model": "m", "max_tokens": 9000, "messages": [{"role": "user", "content": "hi"}]},
    GEMINI: {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
Options = dict[str, Any] | None


def sent(
    front: str, back: str, fields: dict[str, Any], front_options: Options = None, back_options: Options = None
) -> tuple[Any, Any]:
    """The body that the backend gets for a request with these fields, and what is named as lost."""
    translator = Translator(back, front, client_options=front_options, backend_options=back_options, model="m")
    body = translator.request(json.dumps({**BODIES[front], **fields}).encode(), client=front)
    return json.loads(body), translator.lost


def asked(back: str, body: dict[str, Any]) -> tuple[bool, bool]:
    """Whether a backend is asked for readable reasoning, and for the opaque form."""
    if back == RESPONSES:
        return bool(body.get("reasoning", {}).get("summary")), ENCRYPTED in body.get("include", ())
    if back == MESSAGES:
        return body.get("thinking", {}).get("display") == "summarized", False
    return body.get("generationConfig", {}).get("thinkingConfig", {}).get("includeThoughts") is True, False


ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"


def google(**config: Any) -> dict[str, Any]:
    return {"generationConfig": {"thinkingConfig": config}}


DETAILS = {"reasoning_field": "reasoning_details"}
WISHES: list[tuple[str, dict[str, Any], bool, bool, Options]] = [
    (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 8000}}, True, True, None),
    (MESSAGES, {"thinking": {"type": "adaptive"}}, True, True, None),
    (MESSAGES, {"thinking": {"type": "adaptive", "display": "summarized"}}, True, True, None),
    (MESSAGES, {"thinking": {"type": "adaptive", "display": "omitted"}}, False, True, None),
    (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 8000}}, True, True, {"thinking_effort": False}),
    (MESSAGES, {"thinking": {"type": "disabled"}}, False, False, None),
    (MESSAGES, {}, False, False, None),
    (GEMINI, google(includeThoughts=True), True, False, None),
    (GEMINI, google(includeThoughts=True, thinkingBudget=9000), True, False, None),
    (GEMINI, {"generation_config": {"thinking_config": {"include_thoughts": True}}}, True, False, None),
    (GEMINI, google(includeThoughts=False, thinkingBudget=9000), False, False, None),
    (GEMINI, google(includeThoughts=True, thinkingBudget=0), False, False, None),
    (RESPONSES, {"reasoning": {"summary": "auto"}}, True, False, None),
    (RESPONSES, {"reasoning": {"effort": "high", "summary": "detailed"}}, True, False, None),
    (RESPONSES, {"reasoning": {"generate_summary": "concise"}}, True, False, None),
    (RESPONSES, {"reasoning": {"summary": "auto"}, "include": [ENCRYPTED]}, True, True, None),
    (RESPONSES, {"include": [ENCRYPTED]}, False, True, None),
    (CHAT, {"include_reasoning": True}, True, False, None),
    (CHAT, {"reasoning": {"enabled": True}}, True, False, None),
    (CHAT, {"reasoning": {"effort": "high"}}, True, False, None),
    (CHAT, {"reasoning": {"effort": "high", "exclude": True}}, False, False, None),
    (CHAT, {"reasoning": {"max_tokens": 5000}}, True, True, DETAILS),
    (CHAT, {"thinking": {"type": "enabled"}}, True, False, None),
    (CHAT, {"enable_thinking": True}, True, False, None),
    (CHAT, {"chat_template_kwargs": {"enable_thinking": True}}, True, False, None),
    (CHAT, {"extra_body": {"google": {"thinking_config": {"include_thoughts": True}}}}, True, False, None),
    (CHAT, {}, False, False, DETAILS),
]


@pytest.mark.parametrize("back", [RESPONSES, MESSAGES, GEMINI])
@pytest.mark.parametrize(("front", "fields", "readable", "opaque", "options"), WISHES)
def test_reasoning_is_asked_for(
    front: str, fields: dict[str, Any], readable: bool, opaque: bool, options: Options, back: str
) -> None:
    if front == back:
        return
    body, lost = sent(front, back, fields, options)
    assert asked(back, body) == (readable, opaque and back == RESPONSES)
    assert "extras" not in lost


OFF: list[tuple[str, dict[str, Any]]] = [
    (MESSAGES, {"thinking": {"type": "disabled"}}),
    (GEMINI, google(thinkingBudget=0)),
    (RESPONSES, {"reasoning": {"effort": "none"}}),
    (CHAT, {"reasoning_effort": "none"}),
    (CHAT, {"reasoning": {"enabled": False}}),
    (CHAT, {"reasoning": {"effort": "none"}}),
    (CHAT, {"thinking": {"type": "disabled"}}),
    (CHAT, {"enable_thinking": False}),
    (CHAT, {"chat_template_kwargs": {"thinking": False}}),
    (CHAT, {"extra_body": {"google": {"thinking_config": {"thinking_budget": 0}}}}),
]
OFF_WORDS: dict[str, dict[str, Any]] = {
    CHAT: {"reasoning_effort": "none"},
    RESPONSES: {"reasoning": {"effort": "none"}},
    MESSAGES: {"thinking": {"type": "disabled"}},
    GEMINI: google(thinkingBudget=0),
}


@pytest.mark.parametrize("back", OFF_WORDS)
@pytest.mark.parametrize(("front", "fields"), OFF)
def test_thinking_turned_off_is_off_everywhere(front: str, fields: dict[str, Any], back: str) -> None:
    body, lost = sent(front, back, fields)
    wanted = fields if front == back else OFF_WORDS[back]
    if back == GEMINI:
        body["generationConfig"].pop("maxOutputTokens", None)
    assert {name: body.get(name) for name in wanted} == wanted
    assert "extras" not in lost


@pytest.mark.parametrize(("front", "fields"), [(w[0], w[1]) for w in WISHES if w[4] is not DETAILS] + OFF)
def test_a_backend_of_the_same_dialect_gets_the_words_of_the_client(front: str, fields: dict[str, Any]) -> None:
    body, lost = sent(front, front, fields)
    if "generate_summary" not in str(fields) and "generation_config" not in fields:
        assert {name: body.get(name) for name in fields} == fields
    assert lost == []
    if front == CHAT and "reasoning_effort" not in fields:
        assert "reasoning_effort" not in body


def test_what_only_one_server_knows_is_still_named_as_lost() -> None:
    for fields in ({"reasoning": {"effort": "low", "provider": 1}}, {"chat_template_kwargs": {"other": True}}):
        assert "extras" in sent(CHAT, MESSAGES, fields)[1], fields
        assert sent(CHAT, CHAT, fields)[0].items() >= fields.items()
    assert "extras" in sent(MESSAGES, CHAT, {"thinking": {"type": "adaptive", "later": 1}})[1]
    assert "extras" in sent(RESPONSES, CHAT, {"include": [ENCRYPTED, "code_interpreter_call.outputs"]})[1]


def test_readable_thinking_at_claude_keeps_the_rules_of_its_api() -> None:
    wish = {"reasoning": {"effort": "high", "summary": "auto"}, "temperature": 0.2}
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    body, lost = sent(RESPONSES, MESSAGES, wish)
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "high"}
    assert "temperature" not in body
    assert "sampling" in lost
    body, lost = sent(RESPONSES, MESSAGES, {**wish, "tools": [tool], "tool_choice": "required"})
    assert "thinking" not in body
    assert body["temperature"] == 0.2
    assert "reasoning_effort" in lost
    body, lost = sent(RESPONSES, MESSAGES, {"reasoning": {"summary": "auto"}}, None, {"effort": "thinking"})
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 4095}
    body, lost = sent(RESPONSES, MESSAGES, {"reasoning": {"summary": "auto"}}, None, {"effort": "drop"})
    assert "thinking" not in body
    assert "reasoning_effort" in lost


def test_options_of_a_gemini_backend_have_the_last_word() -> None:
    body, _ = sent(RESPONSES, GEMINI, {"reasoning": {"summary": "auto"}}, None, {"thoughts": "never"})
    assert "generationConfig" not in body
    body, _ = sent(CHAT, GEMINI, {"reasoning": {"effort": "low", "exclude": True}}, None, {"thoughts": "always"})
    assert body["generationConfig"]["thinkingConfig"]["includeThoughts"] is True


LOGPROB_WISHES: list[tuple[str, dict[str, Any], int]] = [
    (CHAT, {"logprobs": True}, 0),
    (CHAT, {"logprobs": True, "top_logprobs": 3}, 3),
    (RESPONSES, {"include": [LOGPROBS]}, 0),
    (RESPONSES, {"include": [LOGPROBS], "top_logprobs": 3}, 3),
    (GEMINI, {"generationConfig": {"responseLogprobs": True}}, 0),
    (GEMINI, {"generationConfig": {"responseLogprobs": True, "logprobs": 3}}, 3),
]


def logprobs_words(back: str, top: int) -> dict[str, Any]:
    alternatives = {"top_logprobs": top} if top else {}
    if back == CHAT:
        return {"logprobs": True, **alternatives}
    if back == RESPONSES:
        return {"include": [LOGPROBS], **alternatives}
    return {"generationConfig": {"responseLogprobs": True, **({"logprobs": top} if top else {})}}


@pytest.mark.parametrize("back", [CHAT, RESPONSES, GEMINI, MESSAGES, "ag-ui"])
@pytest.mark.parametrize(("front", "fields", "top"), LOGPROB_WISHES)
def test_log_probabilities_are_asked_for(front: str, fields: dict[str, Any], top: int, back: str) -> None:
    body, lost = sent(front, back, fields)
    if back in (MESSAGES, "ag-ui"):
        assert "sampling" in lost
        assert "logprobs" not in json.dumps(body)
        return
    assert {name: body.get(name) for name in logprobs_words(back, top)} == logprobs_words(back, top)
    assert lost == []


@pytest.mark.parametrize("back", [CHAT, RESPONSES, GEMINI])
def test_log_probabilities_that_nobody_wants_are_not_asked_for(back: str) -> None:
    for front, fields in ((CHAT, {"logprobs": False}), (GEMINI, {"generationConfig": {"responseLogprobs": False}})):
        if front != back:
            body, lost = sent(front, back, fields)
            assert "ogprobs" not in json.dumps(body)
            assert lost == []


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
FORMAT = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize("field", [{"output_format": FORMAT}, {"output_config": {"format": FORMAT}}])
def test_both_names_of_a_messages_clients_format_mean_the_same(field: dict[str, Any]) -> None:
    for back, found in (
        (CHAT, lambda body: body["response_format"]["json_schema"]["schema"]),
        (RESPONSES, lambda body: body["text"]["format"]["schema"]),
        (GEMINI, lambda body: body["generationConfig"]["responseJsonSchema"]),
    ):
        body, lost = sent(MESSAGES, back, field)
        assert found(body) == SCHEMA
        assert lost == []
    body, lost = sent(MESSAGES, MESSAGES, field)
    assert {name: body[name] for name in ("output_format", "output_config") if name in body} == field


@pytest.mark.parametrize(
    ("front", "fields", "place"),
    [
        (MESSAGES, {"thinking": "x"}, "thinking"),
        (MESSAGES, {"thinking": {"type": "adaptive", "display": 1}}, "thinking.display"),
        (MESSAGES, {"output_format": []}, "output_format"),
        (MESSAGES, {"output_config": 1}, "output_config"),
        (GEMINI, {"generationConfig": {"responseLogprobs": "x"}}, "generationConfig.responseLogprobs"),
        (GEMINI, google(includeThoughts=1), "generationConfig.thinkingConfig.includeThoughts"),
        (RESPONSES, {"include": 1}, "include"),
        (RESPONSES, {"reasoning": {"summary": 1}}, "reasoning.summary"),
        (CHAT, {"logprobs": 1}, "logprobs"),
    ],
)
def test_a_wrong_wish_is_an_error_that_names_its_place(front: str, fields: dict[str, Any], place: str) -> None:
    with pytest.raises(RequestError) as caught:
        sent(front, CHAT, fields)
    assert place in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": "x"},
        {"reasoning": {"max_tokens": "x"}},
        {"include_reasoning": 1},
        {"thinking": {"type": "enabled", "budget_tokens": "x"}},
        {"enable_thinking": "true"},
    ],
)
def test_forms_of_other_chat_servers_are_for_the_backend_to_judge(fields: dict[str, Any]) -> None:
    body, lost = sent(CHAT, CHAT, {**fields, "reasoning_effort": "low"})
    assert body.items() >= {**fields, "reasoning_effort": "low"}.items()
    assert lost == []
    body, lost = sent(CHAT, RESPONSES, {**fields, "reasoning_effort": "low"})
    assert body["reasoning"] == {"effort": "low"}
    assert "extras" in lost
