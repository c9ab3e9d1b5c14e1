"""Keys that backends repeat in their error texts do not travel on."""

from __future__ import annotations

import pytest

from bridge.errors import ErrorCode, Failure
from bridge.toolkit.ratelimits import ANTHROPIC, OPENAI, passed_on
from bridge.toolkit.redact import Secrets, masked


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


@pytest.mark.parametrize(
    "secret", ["sk-" + "a" * 3000, "Bearer " + "q" * 3000, "eyJ" + "a" * 5000 + ".b.c", "AIza" + "x" * 900]
)
@pytest.mark.parametrize("before", [*range(1960, 2004), 4040, 4047, 4050])
def test_a_key_at_a_cut_is_not_shown(secret: str, before: int) -> None:
    shown = masked("w" * (before - 1) + " " + secret + "!" * 9000)
    assert secret.split()[-1][:5] not in shown
    assert len(shown) <= 2003


@pytest.mark.parametrize("before", range(1960, 2010))
def test_a_password_at_a_cut_is_not_shown(before: int) -> None:
    shown = masked("w" * before + " https://user:" + "secret" * 50 + "@host/" + "x" * 9000)
    assert "secret" not in shown


def test_what_is_left_of_many_addresses_shows_no_key_at_the_end_of_what_was_read() -> None:
    for size in range(900, 1100):
        shown = masked("a://" + "b" * 3000 + " " + "c" * size + " sk-abcdefgh" + "!" * 9000, addresses=True)
        assert "sk-" not in shown


def test_a_known_secret_that_was_cut_is_hidden() -> None:
    secrets = Secrets(["w0rdByW0rdSecret"])
    for size in range(6, 17):
        failure = Failure(ErrorCode.BACKEND_ERROR, "bad " + "w0rdByW0rdSecret"[:size] + "...")
        assert secrets.hide(failure).message == "bad ***..."


@pytest.mark.parametrize("secret", ["quite-a-word", "sk-proj-abcdefgh1234"])
def test_no_field_of_a_failure_holds_a_secret(secret: str) -> None:
    details = {"a": [secret, {"b": f"x {secret}"}], secret: 1, "status": 404, "deep": [[[[[[[[[[[secret]]]]]]]]]]]}
    headers = {"retry-after": "7", "x-ratelimit-key": secret}
    failure = Failure(ErrorCode.BACKEND_ERROR, f"a {secret}", f"p[{secret}]", None, secret, headers, details)
    Secrets(["quite-a-word"]).hide(failure)
    assert secret not in repr(failure)
    assert failure.headers == {"retry-after": "7"}
    assert failure.details["status"] == 404


def test_the_hint_how_a_key_is_sent_stays_readable() -> None:
    assert masked("send it as 'Authorization: Bearer <key>'.") == "send it as 'Authorization: Bearer <key>'."
    assert masked("Authorization: Bearer <keys are secret>") == "Authorization: Bearer *** are secret>"


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        ("7", True), ("0.5", True), ("1s", True), ("6m0s", True), ("12ms", True), ("1h2m3.5s", True),
        ("2026-01-31T10:00:00Z", True), ("2026-01-31T10:00:00.5+08:00", True), ("Wed, 21 Oct 2026 07:28:00 GMT", True),
        ("sk-abcdefgh", False), ("", False), ("7 sk-abcdefgh", False), ("1" * 41, False), ("abc", False),
        ("1\n2", False), ("0b4ckendk3y7f3c9a", False),
    ],
)  # fmt: skip
def test_headers_pass_by_name_and_value(value: str, passes: bool) -> None:
    sent = {
        "retry-after": value, "x-ratelimit-reset-tokens": value, "anthropic-ratelimit-requests-reset": value,
        "x-ratelimit-key": value, "anthropic-ratelimit-secret": value, "set-cookie": value, "server": value,
    }  # fmt: skip
    assert set(passed_on(sent)) == ({"retry-after"} if passes else set())
    assert set(passed_on(sent, OPENAI)) == ({"retry-after", "x-ratelimit-reset-tokens"} if passes else set())
    both = {"retry-after", "anthropic-ratelimit-requests-reset"}
    assert set(passed_on(sent, ANTHROPIC)) == (both if passes else set())


@pytest.mark.parametrize("name", ["retry-after", "retry-after-ms"])
@pytest.mark.parametrize("names", [OPENAI, ANTHROPIC])
def test_a_negative_time_to_wait_is_left_out(name: str, names: frozenset[str]) -> None:
    sent = {name: "-5", "x-ratelimit-remaining-tokens": "-5", "anthropic-ratelimit-tokens-remaining": "-5"}
    passed = passed_on(sent, names)
    assert name not in passed
    assert list(passed.values()) == ["-5"]  # so much is overdrawn


@pytest.mark.parametrize(
    ("address", "said", "shown"),
    [
        ("llm:8000", "POST http://llm:8000/v1?key=a failed", "POST (address) failed"),
        ("llm:8000", "no connection to llm:8000.", "no connection to (address)."),
        ("llm:8000", "llm:80001 and xllm:8000", "llm:80001 and xllm:8000"),
        (
            "llm",
            "no llm at 'http://llm/x', see https://llm.example/help",
            "no llm at '(address)', see https://llm.example/help",
        ),
        ("", "http://llm:8000", "http://llm:8000"),
    ],
)
def test_clients_do_not_see_the_address_of_a_backend(address: str, said: str, shown: str) -> None:
    assert Secrets([], address).hide(Failure(ErrorCode.BACKEND_ERROR, said)).message == shown
