"""Long and hostile values of clients and backends: every dialect takes linear time for them and repeats little.

Each string field of the requests and errors below is replaced by one such value, by every front and every back.
CPU times are compared with each other only.
"""

from __future__ import annotations

import gc
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import pytest

from bridge.contract import Dialect, WireRequest, WireResponse, registry
from bridge.errors import BridgeError, ErrorCode, Failure, Unsupported
from bridge.model import Inline, Media, MediaKind, Message, Request, RunFailed, RunStarted, Text
from bridge.run.conversation.comparison import continues, digest
from bridge.testing.wires import context, decode, encode
from bridge.testing.witnesses import REQUESTS
from tests.recorded import CAPTURES, body

JSON = {"content-type": "application/json"}
LONGEST = 4096
"""The most characters of an error's message, and of any other field of it."""
LARGE = 1 << 16
"""Characters of a value of which an error must repeat little; many times as many as it may have."""
DIALECTS = {name: registry.get(name) for name in registry.called()}
FRONTS = {name: dialect for name, dialect in DIALECTS.items() if dialect.served}
SIZES = (4096, 32768)
MOST = 2.2 * SIZES[1] / SIZES[0]
PIECES = ("eyJ", "eyJ-", "a-", "a://a:", "bearer ", "sk-.", "ip:", "[", ".a")

Path = tuple[str | int, ...]

SHARES = 3


def shared(test: Any) -> Any:
    """A test that tells each thing to a share of the dialects, and the next thing to the next share."""
    for mark in (pytest.mark.parametrize("share", range(SHARES)), pytest.mark.turns(SHARES), pytest.mark.sampled(7)):
        test = mark(test)
    return test


def some_of(dialects: dict[str, Dialect], number: int) -> list[Dialect]:
    return list(dialects.values())[number % SHARES :: SHARES]


# ---------------------------------------------------------------------- requests


@cache
def requests(name: str) -> dict[str, tuple[Any, Path, str]]:
    """Every string in the bodies of requests of this dialect: the body, where in it, the field's name by which."""
    dialect = DIALECTS[name]
    bodies = [body(p) for p in sorted((CAPTURES / name).glob("*.request.*"))]
    for asked in (*(witness.request for witness in REQUESTS.values()), _SOUND):
        try:
            bodies.append(dialect.encode_request(asked, context(dialect.back_options(), asked)).body)
        except Unsupported:
            continue
    out: dict[str, tuple[Any, Path, str]] = {}
    for data in sorted(bodies, key=len):  # a field stands in the shortest body that has it
        try:
            value = json.loads(data)
        except ValueError:
            continue
        for path in _strings(value):
            field = ".".join(str(step) for step in path if isinstance(step, str)) or "body"
            out.setdefault(field, (value, path, name))
    return out


_SOUND = Request([Message("user", [Text("hear"), Media(MediaKind.AUDIO, Inline("UklGRg=="), "audio/wav")])], model="m")


def _strings(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _strings(each, (*path, name))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _strings(each, (*path, place))


def _with(value: Any, path: Path) -> Callable[[str], bytes]:
    """Return what makes the body with another string at this place."""
    at = value
    for step in path[:-1]:
        at = at[step]
    before, at[path[-1]] = at[path[-1]], _MARK
    whole = json.dumps(value)
    at[path[-1]] = before
    return lambda new: whole.replace(_MARK, json.dumps(new)[1:-1]).encode()


_MARK = "MARKED"


def ask(front: Dialect, data: bytes, backs: Iterable[Dialect] = DIALECTS.values()) -> list[Failure]:
    """What goes wrong with a request of `front` for these backs, told to its client."""
    failures: list[Failure] = []
    try:
        wire = WireRequest(headers=JSON, body=data)
        request = front.decode_request(wire, context(front.front_options()))
    except BridgeError as error:
        failures.append(error.failure)
    else:
        for back in backs:
            try:
                back.encode_request(request, context(back.back_options(), request))
            except BridgeError as error:
                failures.append(error.failure)
    for failure in failures:
        front.encode_error(failure)
        encode(front, [RunStarted("r"), RunFailed(failure)])
    return failures


def check_short(failure: Failure, front: Dialect) -> None:
    assert len(failure.message) <= LONGEST, f"{len(failure.message)} characters: {failure.message[:300]}"
    for word in (failure.param, failure.backend_code, *failure.headers.values()):
        assert len(word or "") <= LONGEST
    assert len(front.encode_error(failure).body) <= 2 * LONGEST
    assert len(encode(front, [RunStarted("r"), RunFailed(failure)])) <= 4 * LONGEST


@pytest.mark.parametrize("name", FRONTS)
def test_an_error_repeats_little_of_a_request(name: str) -> None:
    front = DIALECTS[name]
    seen = set()
    for value, path, _ in requests(name).values():
        if path[-1] not in seen:
            seen.add(path[-1])
            for failure in ask(front, _with(value, path)("x" * LARGE)):
                check_short(failure, front)


@shared
@pytest.mark.parametrize("name", FRONTS)
def test_a_request_takes_linear_time(name: str, share: int) -> None:
    front = DIALECTS[name]
    for number, (field, (value, path, _)) in enumerate(requests(name).items(), share):
        body_with, backs = _with(value, path), some_of(DIALECTS, number)
        for piece in PIECES:
            texts = [body_with(_long(piece, size, field)) for size in SIZES]
            check_linear(lambda data, backs=backs: ask(front, data, backs), texts, f"{field}: {piece}")  # type: ignore[misc]


def _long(piece: str, size: int, field: str) -> str:
    start = "audio/" if field.lower().endswith("mimetype") else ""
    return start + piece * (size // len(piece))


# ---------------------------------------------------------------------- errors of backends


def answers(text: str) -> Iterator[WireResponse]:
    shapes: list[Any] = [
        {"error": {"message": text, "code": text, "type": text, "param": text}},
        {"type": "error", "error": {"type": text, "message": text, "code": text}},
        {"error": text, "code": text},
        {"detail": text},
        {"detail": {"message": text, "code": text}},
        {"detail": [{"loc": ["body", text], "msg": text, "type": text}]},
        {"message": text, "code": text, "details": text},
        [{"error": {"message": text}}],
    ]
    for shape in shapes:
        for status in (400, 404, 429, 500):
            yield WireResponse(status, {**JSON, "retry-after": text, "x-ratelimit-limit-tokens": text}, dumped(shape))
    yield WireResponse(400, {"grpc-status": "NOT_FOUND"}, text.encode())
    yield WireResponse(400, {"grpc-status": text}, text.encode())
    yield WireResponse(500, {"content-type": "text/plain"}, text.encode())


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def refused(back: Dialect, text: str) -> list[Failure]:
    """What a backend's errors become."""
    return [back.decode_error(answer) for answer in answers(text)] + streamed(back, text)


def tell(front: Dialect, failures: list[Failure]) -> None:
    for failure in failures:
        front.encode_error(failure)
        encode(front, [RunStarted("r"), RunFailed(failure)])


def streamed(back: Dialect, text: str) -> list[Failure]:
    """Failures in a stream: the dialect's own words with the text in the place of a mark."""
    failure = Failure(ErrorCode.BACKEND_ERROR, _MARK, backend_code=_MARK)
    try:
        wire = encode(back, [RunStarted("r"), RunFailed(failure)])
    except Unsupported:
        return []
    quoted = json.dumps(text)[1:-1].encode()
    events = decode(back, [wire.replace(_MARK.encode(), quoted)])
    return [event.error for event in events if isinstance(event, RunFailed)]


@shared
@pytest.mark.parametrize("name", DIALECTS)
def test_an_error_repeats_little_of_a_backends(name: str, share: int) -> None:
    distinct = {repr(failure): failure for failure in refused(DIALECTS[name], "x" * LARGE)}
    for number, failure in enumerate(distinct.values(), share):
        for front in some_of(FRONTS, number):
            check_short(failure, front)


@pytest.mark.sampled(11)
@pytest.mark.turns(4)
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("name", DIALECTS)
def test_an_error_of_a_backend_takes_linear_time(name: str, piece: str) -> None:
    back = DIALECTS[name]
    check_linear(lambda text: refused(back, text), [piece * (size // len(piece)) for size in SIZES], piece)


@pytest.mark.sampled(11)
@pytest.mark.turns(4)
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("name", FRONTS)
def test_a_failure_is_told_in_linear_time(name: str, piece: str) -> None:
    """Every dialect's failures have the same few fields, so those of one backend stand for all."""
    check_linear(lambda each: tell(FRONTS[name], each), _failures(piece), piece)


@cache
def _failures(piece: str) -> list[list[Failure]]:
    return [refused(DIALECTS["openai-chat"], piece * (size // len(piece))) for size in SIZES]


KEYS = ("sk-proj-abcdefgh1234", "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln")


@shared
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", DIALECTS)
def test_no_field_of_a_backends_error_holds_a_key(name: str, key: str, share: int) -> None:
    back = DIALECTS[name]
    failures = [back.decode_error(answer) for answer in answers(f"wrong {key}")]
    failures += [back.decode_error(answer) for answer in answers(key)]
    failures += streamed(back, key)
    for number, failure in enumerate(failures, share):
        assert key not in repr(failure)
        for front in some_of(FRONTS, number):
            wire = front.encode_error(failure)
            assert key not in repr((wire, encode(front, [RunStarted("r"), RunFailed(failure)])))


# ---------------------------------------------------------------------- conversations


def test_many_messages_in_a_row_take_linear_time() -> None:
    """Of one user, without an answer between them; later as one message."""
    said = [[Message("user", [Text("x")]) for _ in range(size)] for size in SIZES]
    check_linear(digest, said, "the digest of a conversation")
    joined = Message("user", [Text("x") for _ in range(SIZES[1])])
    check_linear(lambda stored: continues(stored, [joined], ()), said, "a search for what is known")


def test_a_message_may_repeat_a_few_that_are_stored() -> None:
    said = [Message("user", [Text(word)]) for word in ("a", "b", "c")]
    joined = Message("user", [part for message in said for part in message.parts])
    assert continues(said, [joined], ()) == 1
    assert continues(said, [Message("user", [Text("a")])], ()) is None
    assert continues([*said, Message("assistant", [Text("d")])], [joined], ()) is None


# ---------------------------------------------------------------------- measuring


def check_linear(work: Callable[[Any], object], texts: list[Any], what: str) -> None:
    """Fails when the longer text takes more than its share of time, each time it is measured."""
    ratio = 0.0
    for times in (1, 3, 5):
        small, large = (_cost(work, text, times) for text in texts)
        ratio = large / small
        if ratio <= MOST:
            return
    pytest.fail(f"{what}: {ratio:.0f} times the time for {SIZES[1] // SIZES[0]} times the text")


def _cost(work: Callable[[Any], object], text: Any, times: int) -> float:
    least = float("inf")
    gc.disable()
    try:
        for _ in range(times):
            before = time.thread_time_ns()
            work(text)
            least = min(least, time.thread_time_ns() - before)
    finally:
        gc.enable()
    return max(least, 1000)


def test_slow_work_is_noticed() -> None:
    slow = re.compile(r"\beyJ[\w\-]{8,}\.[\w\-]+")
    with pytest.raises(pytest.fail.Exception, match="times the time"):
        check_linear(slow.search, ["eyJ-" * (size // 16) for size in SIZES], "slow")
