"""Two sides joined by pipes: calls, handlers and their order, cancelling, limits, and the end of everything."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from bridge.jsonrpc import CarrierEnded, RpcConnection, RpcError, RpcNotification, RpcRequest, RpcResponse
from bridge.jsonrpc import connection as module
from bridge.jsonrpc.stdio import StdioCarrier

from .helpers import joined_carriers


@pytest.fixture
def carriers() -> Iterator[tuple[StdioCarrier, StdioCarrier]]:
    with joined_carriers() as both:
        yield both


@asynccontextmanager
async def joined(one: dict[str, Any], two: dict[str, Any]) -> AsyncIterator[tuple[RpcConnection, RpcConnection]]:
    with joined_carriers() as (a, b):
        async with asyncio.timeout(30), RpcConnection(a, **one) as first, RpcConnection(b, **two) as second:
            yield first, second


async def echo(request: RpcRequest) -> Any:
    return request.params


class Held:
    """A handler that waits until it is let go, and notes how it ended."""

    def __init__(self) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.ended: str | None = None

    async def __call__(self, request: RpcRequest) -> str:
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "done"
        return "done"


# ---------------------------------------------------------------------- calls


async def test_both_sides_call_each_other() -> None:
    async with joined({"requests": {"echo": echo}}, {"requests": {"echo": echo}}) as (one, two):
        calls = [side.call("echo", {"n": n}) for n in range(50) for side in (one, two)]
        assert await asyncio.gather(*calls) == [{"n": n} for n in range(50) for _ in range(2)]


async def test_a_handler_calls_back_while_it_is_called() -> None:
    """A permission is asked for in the middle of a prompt."""

    async def prompt(request: RpcRequest) -> Any:
        return {"allowed": await agent.call("permission", {"for": request.params["tool"]})}

    async def permission(request: RpcRequest) -> Any:
        return request.params["for"] == "read"

    async with joined({"requests": {"permission": permission}}, {"requests": {"prompt": prompt}}) as (editor, agent):
        assert await editor.call("prompt", {"tool": "read"}) == {"allowed": True}
        assert await editor.call("prompt", {"tool": "delete"}) == {"allowed": False}


async def test_errors_of_handlers(caplog: pytest.LogCaptureFixture) -> None:
    async def refuses(request: RpcRequest) -> Any:
        raise RpcError(-32002, "No such session.", {"sessionId": "s"})

    async def breaks(request: RpcRequest) -> Any:
        raise ValueError("sk-secret")

    async def answers_nonsense(request: RpcRequest) -> Any:
        return object()

    handlers = {"refuses": refuses, "breaks": breaks, "nonsense": answers_nonsense}
    async with joined({}, {"requests": handlers}) as (one, _):
        with pytest.raises(RpcError, match="No such session") as caught:
            await one.call("refuses")
        assert (caught.value.code, caught.value.data) == (-32002, {"sessionId": "s"})
        for method in ("breaks", "nonsense"):
            with pytest.raises(RpcError, match=r"^Internal error$") as caught:
                await one.call(method)
            assert (caught.value.code, caught.value.data) == (-32603, None)
        with pytest.raises(RpcError) as caught:
            await one.call("unknown")
        assert (caught.value.code, caught.value.data) == (-32601, {"method": "unknown"})
    assert "the handler of breaks failed: ValueError" in caplog.text
    assert "sk-secret" not in "".join(r.getMessage() for r in caplog.records)


# ---------------------------------------------------------------------- order


async def test_updates_are_handled_before_the_response_that_follows_them() -> None:
    seen: list[int] = []

    async def update(notification: RpcNotification) -> None:
        await asyncio.sleep(0)
        seen.append(notification.params["n"])

    async def prompt(request: RpcRequest) -> Any:
        for n in range(200):
            await agent.notify("update", {"n": n})
        return "end"

    async with joined({"notifications": {"update": update}}, {"requests": {"prompt": prompt}}) as (editor, agent):
        assert await editor.call("prompt") == "end"
        assert seen == list(range(200))


async def test_a_cancel_right_behind_a_request_finds_it() -> None:
    held = Held()

    async def cancel(notification: RpcNotification) -> None:
        assert held.began.is_set(), "the request's handler runs first"
        agent.cancel(notification.params["requestId"])

    settings = {"requests": {"prompt": held}, "notifications": {"$/cancel_request": cancel}}
    async with joined({}, settings) as (editor, agent):
        call = asyncio.create_task(editor.call("prompt"))
        await asyncio.sleep(0)
        await editor.notify("$/cancel_request", {"requestId": 0})
        with pytest.raises(RpcError, match="Request cancelled") as caught:
            await call
        assert caught.value.code == -32800


async def test_a_slow_handler_of_notifications_slows_the_sender_down() -> None:
    """What is sent beyond the pipes and the limit waits with its sender."""
    go, taken = asyncio.Event(), []

    async def slow(notification: RpcNotification) -> None:
        await go.wait()
        taken.append(notification.params[0])

    async with joined({}, {"notifications": {"update": slow}}) as (one, _):
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for n in range(400):
                await one.notify("update", [n, "x" * 10_000])
                sent = n + 1

        flooding = asyncio.create_task(flood())
        while sent < 10 or one.peer.unsent <= module._UNSENT:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert sent < 100
        assert one.peer.unsent < module._UNSENT + 20_000
        go.set()
        await flooding
        while len(taken) < 400:
            await asyncio.sleep(0)
        assert taken == list(range(400))


async def test_a_failing_handler_of_notifications_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(notification: RpcNotification) -> None:
        raise KeyError("sk-secret")

    async with joined({}, {"requests": {"echo": echo}, "notifications": {"update": breaks}}) as (one, _):
        await one.notify("update")
        await one.notify("unknown")
        assert await one.call("echo", [1]) == [1]
    assert "the handler of the notification update failed: KeyError" in caplog.text


async def test_a_handler_of_notifications_cannot_wait_for_a_response() -> None:
    refused: list[str] = []

    async def update(notification: RpcNotification) -> None:
        with pytest.raises(RuntimeError) as caught:
            await two.call("question")
        refused.append(str(caught.value))

    async with joined({"requests": {"question": echo}}, {"notifications": {"update": update}}) as (one, two):
        await one.notify("update")
        while not refused:
            await asyncio.sleep(0)
    assert refused == ["question: the handler of a notification cannot await a call; start a task for it"]


# ---------------------------------------------------------------------- cancelling


def cancel_notice(request_id: Any) -> tuple[str, dict[str, Any]]:
    return "$/cancel_request", {"requestId": request_id}


@asynccontextmanager
async def cancellable(held: Held, **settings: Any) -> AsyncIterator[tuple[RpcConnection, RpcConnection]]:
    async def cancel(notification: RpcNotification) -> None:
        assert second.cancel(notification.params["requestId"], **settings)

    handlers = {"requests": {"prompt": held, "echo": echo}, "notifications": {"$/cancel_request": cancel}}
    async with joined({"cancel_notice": cancel_notice}, handlers) as (first, second):
        yield first, second


@pytest.mark.parametrize("settings", [{}, {"answer": False}])
async def test_a_cancelled_call_tells_the_other_side(settings: dict[str, Any]) -> None:
    held = Held()
    async with cancellable(held, **settings) as (one, two):
        call = asyncio.create_task(one.call("prompt"))
        await held.began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not one.peer.pending
        assert await one.call("echo", ["still here"]) == ["still here"]
        assert held.ended == "cancelled"
        assert not two.peer.open
        assert one.faults == 0, "a late response is no fault"
        assert two.cancel(0) is False


async def test_a_call_that_takes_too_long_is_cancelled() -> None:
    held = Held()
    async with cancellable(held) as (one, _):
        with pytest.raises(TimeoutError, match=r"^prompt: no response within 0\.01 s$"):
            await one.call("prompt", timeout=0.01)
        await one.call("echo")
        assert held.ended == "cancelled"
        assert await one.call("echo", ["in time"], timeout=10) == ["in time"]


async def test_a_handler_may_answer_its_cancellation() -> None:
    async def prompt(request: RpcRequest) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"stopReason": "cancelled"}

    async with joined({}, {"requests": {"prompt": prompt, "echo": echo}}) as (one, two):
        call = asyncio.create_task(one.call("prompt"))
        await asyncio.sleep(0)
        await one.call("echo")
        assert two.cancel(0)
        assert await call == {"stopReason": "cancelled"}


async def test_an_id_stays_in_use_until_its_handler_has_ended(carriers: tuple[StdioCarrier, StdioCarrier]) -> None:
    """Else the answer of a cancelled handler would be that of another request."""
    raw, carrier = carriers
    saving, go = asyncio.Event(), asyncio.Event()

    async def slow_to_end(request: RpcRequest) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            saving.set()
            await go.wait()
        return "of the first"

    async with asyncio.timeout(30), RpcConnection(carrier, requests={"slow": slow_to_end, "echo": echo}) as connection:
        await raw.send([RpcRequest.of(1, "slow").encode(), RpcRequest.of(2, "echo").encode()])
        assert b'"id":2' in (await raw.receive())[0]
        assert connection.cancel(1, answer=False)
        await saving.wait()
        await raw.send([RpcRequest.of(1, "echo", ["second"]).encode()])
        assert b'"id":1,"error":{"code":-32600' in (await raw.receive())[0]
        go.set()
        while connection.peer.open:
            await asyncio.sleep(0)
        await raw.send([RpcRequest.of(1, "echo", ["third"]).encode()])
        assert await raw.receive() == [b'{"jsonrpc":"2.0","id":1,"result":["third"]}']


# ---------------------------------------------------------------------- the end


async def test_every_call_fails_when_the_other_side_ends(carriers: tuple[StdioCarrier, StdioCarrier]) -> None:
    raw, carrier = carriers
    async with asyncio.timeout(30), RpcConnection(carrier) as connection:
        calls = [asyncio.create_task(connection.call("prompt")) for _ in range(5)]
        asked: list[bytes] = []
        while len(asked) < 5:
            asked += await raw.receive()
        await raw.close()
        assert str(await connection.wait()) == "the input ended"
        assert [str(e) for e in await asyncio.gather(*calls, return_exceptions=True)] == ["the input ended"] * 5
        for late in (connection.call("prompt"), connection.notify("update")):
            with pytest.raises(CarrierEnded, match="the input ended"):
                await late


async def test_what_was_sent_is_read_though_the_other_side_reads_no_more(
    carriers: tuple[StdioCarrier, StdioCarrier],
) -> None:
    raw, carrier = carriers
    async with asyncio.timeout(30), RpcConnection(carrier) as connection:
        call = asyncio.create_task(connection.call("prompt"))
        assert b"prompt" in (await raw.receive())[0]
        os.close(raw._stdio.input)
        raw._stdio.input = os.dup(0)
        await connection.notify("more")
        for _ in range(50):
            await asyncio.sleep(0)
        await raw.send([RpcResponse.of(0, "read").encode()])
        assert await call == "read"
        await raw.close()
        assert str(await connection.wait()) == "the input ended"


async def test_closing_cancels_the_handlers_and_answers_for_them() -> None:
    held = Held()
    async with joined({}, {"requests": {"prompt": held}}) as (one, two):
        call = asyncio.create_task(one.call("prompt"))
        await held.began.wait()
        await two.close()
        with pytest.raises(RpcError, match="Request cancelled"):
            await call
        assert held.ended == "cancelled"
        await two.close()
        assert str(two.ended) == "the connection was closed"
        assert str(await one.wait()) == "the input ended"


async def test_a_handler_may_close_the_connection() -> None:
    async def shutdown(request: RpcRequest) -> Any:
        await two.close()

    async with joined({}, {"requests": {"shutdown": shutdown}}) as (one, two):
        with pytest.raises((RpcError, CarrierEnded)):
            await one.call("shutdown")
        assert str(await two.wait()) == "the connection was closed"


async def test_handlers_may_answer_after_the_end_of_the_input(carriers: tuple[StdioCarrier, StdioCarrier]) -> None:
    """A program whose input is a file, or comes from `printf`, still answers."""
    raw, carrier = carriers
    began = asyncio.Event()

    async def slow(request: RpcRequest) -> Any:
        began.set()
        while connection._input_ended is None:
            await asyncio.sleep(0)
        await connection.notify("progress")
        with pytest.raises(CarrierEnded):
            await connection.call("question")
        return "late"

    async with asyncio.timeout(30), RpcConnection(carrier, requests={"slow": slow}, linger=20) as connection:
        await raw.send([RpcRequest.of(1, "slow").encode()])
        await began.wait()
        os.close(raw._stdio.output)
        raw._stdio.output = os.dup(2)
        frames: list[bytes] = []
        with suppress(CarrierEnded):
            while True:
                frames += await raw.receive()
        assert frames == [b'{"jsonrpc":"2.0","method":"progress"}', b'{"jsonrpc":"2.0","id":1,"result":"late"}']


async def test_frames_beyond_the_limit_end_the_conversation() -> None:
    with joined_carriers(max_frame=1000) as (raw, carrier):
        async with asyncio.timeout(30), RpcConnection(carrier, requests={"echo": echo}) as connection:
            with suppress(CarrierEnded):
                await raw.send([RpcRequest.of(1, "echo", ["first"]).encode(), b"x" * 600_000])
            frames: list[bytes] = []
            with suppress(CarrierEnded):
                while True:
                    frames += await raw.receive()
            answer, error = frames
            assert answer == b'{"jsonrpc":"2.0","id":1,"result":["first"]}'
            assert b'"id":null,"error":{"code":-32600,"message":"Invalid request: a message is longer than' in error
            assert str(await connection.wait()) == "a message is longer than the limit of 1000 bytes"


async def test_a_connection_is_used_inside_async_with(carriers: tuple[StdioCarrier, StdioCarrier]) -> None:
    connection = RpcConnection(carriers[0])
    with pytest.raises(RuntimeError, match="async with"):
        await connection.wait()
    await connection.close()
    assert carriers[0]._stdio.input == -1


# ---------------------------------------------------------------------- what others do wrong


async def test_garbage_is_logged_once_and_counted(
    carriers: tuple[StdioCarrier, StdioCarrier], caplog: pytest.LogCaptureFixture
) -> None:
    raw, carrier = carriers
    garbage = [
        b"Loading plugins sk-secret",
        b"[]",
        b"7",
        b'{"id":1}',
        b"\xff\xfe",
        b'{"id":"x","result":1}',
        b"\x1b[2J",
    ]
    with caplog.at_level(logging.INFO, "bridge.jsonrpc"):
        async with asyncio.timeout(30), RpcConnection(carrier, requests={"echo": echo}, answers_invalid=False) as it:
            await raw.send([*garbage, RpcRequest.of("good", "echo", []).encode()])
            assert await raw.receive() == [b'{"jsonrpc":"2.0","id":"good","result":[]}']
            assert it.faults == len(garbage)
    [record] = caplog.records
    assert record.getMessage() == "ignored: what is not a message (-32700)"


async def test_who_floods_and_reads_nothing_is_left(
    carriers: tuple[StdioCarrier, StdioCarrier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    monkeypatch.setattr(module, "_FLUSH", 0.05)
    raw, carrier = carriers
    async with asyncio.timeout(30), RpcConnection(carrier, requests={}) as connection:

        async def flood() -> None:
            with suppress(CarrierEnded):
                while True:
                    await raw.send([RpcRequest.of(n, "x" * 100).encode() for n in range(1000)])

        flooding = asyncio.create_task(flood())
        assert str(await connection.wait()) == "the other side sends invalid messages and does not read the answers"
        await flooding
        assert connection.peer.unsent < 100_000


async def test_who_floods_and_reads_is_answered(carriers: tuple[StdioCarrier, StdioCarrier]) -> None:
    raw, carrier = carriers
    async with asyncio.timeout(60), RpcConnection(carrier):

        async def flood() -> None:
            for start in range(0, 5000, 1000):
                await raw.send([b"x%d" % n for n in range(start, start + 1000)])

        flooding = asyncio.create_task(flood())
        count = 0
        while count < 5000:
            count += len(await raw.receive())
        await flooding


async def test_a_batch_that_is_refused_at_once_is_answered(carriers: tuple[StdioCarrier, StdioCarrier]) -> None:
    raw, carrier = carriers
    async with asyncio.timeout(30), RpcConnection(carrier, batches=True):
        await raw.send([b"[1,2]"])
        [answers] = await raw.receive()
        assert answers.count(b"-32600") == 2


async def test_big_messages_both_ways_at_once() -> None:
    """More than the pipes hold in both directions: reading never waits for writing."""
    text = "x" * 1_000_000
    async with joined({"requests": {"echo": echo}}, {"requests": {"echo": echo}}) as (one, two):
        answers = await asyncio.gather(*(side.call("echo", [text]) for _ in range(3) for side in (one, two)))
        assert answers == [[text]] * 6
