"""Keys that backends repeat in their error texts do not travel on."""

from __future__ import annotations

import pytest

from bridge.codec.redact import Secrets, masked
from bridge.errors import ErrorCode, Failure


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdef1234",
        "sk-up****1234",
        "gsk_abcdefgh",
        "hf_abcdefgh",
        "AIzaSyA12345678901",
        "LTAI5tAbcDef123456",
        "AKIAABCDEFGH123456",
        "ghp_abcdefghijklmnop1234",
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln",
    ],
)
def test_keys_are_taken_out(secret: str) -> None:
    assert masked(f"Incorrect API key provided: {secret}, try again") == "Incorrect API key provided: ***, try again"


@pytest.mark.parametrize("text", ["Bearer abc.def-1", "bearer  x", "api_key=12345", "api-key: 12345", "apikey:12345"])
def test_values_of_key_fields_are_taken_out(text: str) -> None:
    shown = masked(f"wrong {text} given")
    assert "***" in shown
    assert "12345" not in shown
    assert "abc.def" not in shown


def test_names_and_passwords_in_addresses_are_taken_out() -> None:
    assert masked("see https://user:p4ss@host.example/x?a=b@c") == "see https://***@host.example/x?a=b@c"
    assert masked("see http://host.example:8080/a:b@c") == "see http://host.example:8080/a:b@c"


@pytest.mark.parametrize("text", ["a task-force of 5", "the disk-cache", "ask-me", "maximum context length is 10"])
def test_plain_words_stay(text: str) -> None:
    assert masked(text) == text


def test_long_texts_are_cut() -> None:
    assert masked("x" * 3000) == "x" * 2000 + "..."
    assert masked("x" * 30, 10) == "x" * 10 + "..."


def test_secrets_that_look_like_nothing_are_hidden_word_for_word() -> None:
    secrets = Secrets(["Bearer quite-a-word", "quite-a-word-more", "x", ""])
    failure = Failure(ErrorCode.BACKEND_ERROR, "quite-a-word-more, quite-a-word and x", backend_code="quite-a-word")
    assert secrets.hide(failure) is failure
    assert (failure.message, failure.backend_code) == ("***, *** and x", "***")
    assert Secrets([]).hide(Failure(ErrorCode.INTERNAL, "a b")).message == "a b"
