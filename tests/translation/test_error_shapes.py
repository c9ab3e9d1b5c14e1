"""Errors of a translator: in the shape that the client's request asked for, as those of a server are."""

from __future__ import annotations

import json

from bridge.errors import ErrorCode, Failure
from bridge.model.jsontext import dumps
from bridge.translation.library import Translator

MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
FAILURE = Failure(ErrorCode.NOT_FOUND, "No.", backend_code="model_not_found")


def test_an_error_answers_the_call_of_its_request() -> None:
    translator = Translator("openai-chat", "a2a")
    body = {"jsonrpc": "2.0", "id": "seven", "method": "SendMessage", "params": {"message": MESSAGE}}
    translator.request(dumps(body), client="a2a", headers={"a2a-version": "1.0"})
    answer = json.loads(translator.encode_error(FAILURE).body)
    assert (answer["id"], answer["error"]["message"]) == ("seven", "No.")


def test_an_error_has_the_binding_of_its_request() -> None:
    translator = Translator("openai-chat", "a2a")
    headers = {"a2a-version": "1.0"}
    translator.request(dumps({"message": MESSAGE}), client="a2a", headers=headers, path="/message:send")
    answer = translator.encode_error(FAILURE)
    body = json.loads(answer.body)
    assert "jsonrpc" not in body
    assert body["error"]["code"] == answer.status


def test_an_error_names_the_model_of_its_request() -> None:
    translator = Translator("openai-chat", "ollama")
    translator.request(dumps({"model": "qwen", "messages": [{"role": "user", "content": "Hi"}]}), client="ollama")
    assert json.loads(translator.encode_error(FAILURE).body)["error"].startswith("model 'qwen' not found")


def test_an_error_is_in_the_dialect_that_read_the_request() -> None:
    translator = Translator("openai-chat", "a2a")
    translator.request(dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}))
    answer = translator.encode_error(FAILURE)
    assert json.loads(answer.body)["error"]["code"] == "model_not_found"
    assert FAILURE.details == {}
