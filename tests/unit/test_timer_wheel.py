"""`TimerWheel`: when deadlines are called, with time that a test moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bridge.run import timer_wheel
from bridge.run.timer_wheel import TimerWheel

LATE = 1 / 128
"""The part of its delay by which a deadline may be late."""
TICK = 0.0011
"""Seconds that a timer of the event loop adds."""


class Loop:
    """An event loop with a clock of its own, which has timers only."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[Timer] = []
        self.made = 0

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[[], None], *, context: object) -> Timer:
        self.made += 1
        timer = Timer(self, self.now + delay, call)
        self.timers.append(timer)
        return timer

    def run(self, until: float) -> None:
        """Let time pass, up to this one."""
        while due := [timer for timer in self.timers if timer.at <= until]:
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now = max(self.now, first.at)
            first.call()
        self.now = until


class Timer:
    def __init__(self, loop: Loop, at: float, call: Callable[[], None]) -> None:
        self.loop = loop
        self.at = at
        self.call = call

    def cancel(self) -> None:
        self.loop.timers.remove(self)


class Noted:
    """Notes when it was called, and then does something."""

    def __init__(self, loop: Loop, then: Callable[[], object] = lambda: None) -> None:
        self.loop = loop
        self.then = then
        self.at: list[float] = []

    def expire(self) -> None:
        self.at.append(self.loop.now)
        self.then()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    made: Any = Loop()
    monkeypatch.setattr(timer_wheel, "time", made)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    yield made
    monkeypatch.undo()


def test_each_deadline_is_called_once_and_never_early(loop: Loop) -> None:
    wheel = TimerWheel()
    delays = [0.02, 0.0213, 0.5, 3.75, 3.76, 15.0, 299.0, 300.0, 1800.0]
    noted = []
    for delay in delays:
        loop.run(loop.now + 0.013)
        noted.append((Noted(loop), loop.now, delay))
        wheel.add(noted[-1][0], delay)
    loop.run(10_000.0)
    for each, began, delay in noted:
        (at,) = each.at
        assert delay <= at - began <= delay * (1 + LATE) + TICK
    assert not loop.timers


def test_one_timer_serves_all(loop: Loop) -> None:
    wheel = TimerWheel()
    noted = [Noted(loop) for _ in range(500)]
    slots = {wheel.add(each, 300.0) for each in noted}
    assert (len(slots), loop.made, len(loop.timers)) == (1, 1, 1)
    loop.run(1400.0)
    assert [len(each.at) for each in noted] == [1] * 500


def test_requests_that_end_leave_no_slots_behind(loop: Loop) -> None:
    """A deadline of five minutes that is dropped after a moment, again and again: slots are few."""
    wheel = TimerWheel()
    slots = set()
    for _ in range(20_000):
        each = Noted(loop)
        slots.add(slot := wheel.add(each, 300.0))
        loop.run(loop.now + 0.01)
        wheel.remove(each, slot)
        assert not each.at
    assert len(slots) <= 201 / (300 / 256)
    assert loop.made <= 2
    loop.run(loop.now + 400.0)
    assert not loop.timers


def test_an_earlier_deadline_is_called_before_a_later_one(loop: Loop) -> None:
    wheel = TimerWheel()
    late, early = Noted(loop), Noted(loop)
    wheel.add(late, 60.0)
    wheel.add(early, 1.0)
    loop.run(1002.0)
    assert (len(early.at), len(late.at)) == (1, 0)
    loop.run(1061.0)
    assert len(late.at) == 1


def test_what_was_removed_is_not_called(loop: Loop) -> None:
    """Neither if another deadline of the same slot removes it."""
    wheel = TimerWheel()
    each, other = Noted(loop), Noted(loop)
    each.then = lambda: wheel.remove(other, slot)
    other.then = lambda: wheel.remove(each, slot)
    gone = Noted(loop)
    slot = wheel.add(each, 5.0)
    assert wheel.add(other, 5.0) == slot
    wheel.remove(gone, wheel.add(gone, 5.0))
    loop.run(1010.0)
    assert len(each.at) + len(other.at) == 1
    assert not gone.at
    wheel.remove(each, slot)  # it has passed


def test_a_deadline_may_be_set_again_when_it_is_called(loop: Loop) -> None:
    wheel = TimerWheel()
    each = Noted(loop)
    each.then = lambda: wheel.add(each, 2.0)
    wheel.add(each, 2.0)
    loop.run(1021.0)
    assert 9 <= len(each.at) <= 10


def test_one_that_breaks_does_not_hold_up_the_others(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    wheel = TimerWheel()

    def breaks() -> None:
        raise ValueError("secret")

    noted = [Noted(loop, breaks), Noted(loop), Noted(loop, breaks)]
    for each in noted:
        wheel.add(each, 5.0)
    with caplog.at_level(logging.ERROR):
        loop.run(1010.0)
    assert [len(each.at) for each in noted] == [1, 1, 1]
    assert len(caplog.records) == 2
    assert "secret" not in caplog.text


def test_a_closed_wheel_calls_nothing(loop: Loop) -> None:
    wheel = TimerWheel()
    each = Noted(loop)
    wheel.add(each, 5.0)
    wheel.close()
    assert not loop.timers
    loop.run(1010.0)
    assert not each.at
    wheel.add(each, 5.0)
    loop.run(1020.0)
    assert len(each.at) == 1
