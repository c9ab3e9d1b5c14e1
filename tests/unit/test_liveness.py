"""A process judges others only after its own renewals have gone well for a whole lease."""

from __future__ import annotations

import pytest

from bridge.stores.liveness import LONGEST_OUTAGE, NEVER, Liveness


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def life(clock: Clock) -> Liveness:
    return Liveness(9.0, clock)


def renew_for(life: Liveness, clock: Clock, seconds: float) -> None:
    """Renew every three seconds, the first time at once."""
    life.renewed()
    for _ in range(int(seconds / 3)):
        clock.now += 3
        life.renewed()


def test_a_new_process_judges_only_what_is_long_dead(life: Liveness, clock: Clock) -> None:
    assert life.grace() == LONGEST_OUTAGE
    renew_for(life, clock, 6)
    assert life.grace() == LONGEST_OUTAGE
    clock.now += 3
    assert life.grace() == 0


def test_after_a_failure_nobody_is_judged_for_a_lease(life: Liveness, clock: Clock) -> None:
    renew_for(life, clock, 30)
    assert life.grace() == 0
    life.failed()
    assert life.grace() == NEVER
    renew_for(life, clock, 6)
    assert life.grace() == NEVER
    clock.now += 3
    life.renewed()
    assert life.grace() == 0


@pytest.mark.parametrize("jump", [5.0, 86400.0, -86400.0])
def test_after_the_clock_of_the_store_was_set_nobody_is_judged_for_a_lease(
    life: Liveness, clock: Clock, jump: float
) -> None:
    """It says that the lease of this process has expired, or is valid for a day."""
    renew_for(life, clock, 30)
    clock.now += 2
    assert life.grace(7.0) == 0
    assert life.grace(7.0 - jump) == NEVER
    renew_for(life, clock, 6)
    assert life.grace(9.0) == NEVER
    clock.now += 3
    life.renewed()
    assert life.grace(9.0) == 0


def test_a_renewal_that_is_not_told_yet_is_no_clock_that_was_set(life: Liveness, clock: Clock) -> None:
    renew_for(life, clock, 30)
    clock.now += 5
    assert life.grace(9.0) == 0


def test_after_a_pause_of_this_process_nobody_is_judged_for_a_lease(life: Liveness, clock: Clock) -> None:
    renew_for(life, clock, 30)
    clock.now += 6.1
    assert life.grace() == NEVER
    renew_for(life, clock, 6)
    assert life.grace() == NEVER
    clock.now += 3
    assert life.grace() == 0


def test_a_pause_that_nobody_asked_about_counts_too(life: Liveness, clock: Clock) -> None:
    renew_for(life, clock, 30)
    clock.now += 6.1
    life.renewed()
    assert life.grace() == NEVER


def test_renewals_are_due_after_a_third_of_the_lease(life: Liveness, clock: Clock) -> None:
    assert life.due
    life.renewed()
    assert not life.due
    assert life.due_in == pytest.approx(3)
    clock.now += 3
    assert life.due


def test_a_renewal_that_failed_is_due_at_once(life: Liveness) -> None:
    life.renewed()
    life.failed()
    assert life.due
    assert life.due_in == 0


def test_a_process_that_leased_nothing_begins_anew(life: Liveness, clock: Clock) -> None:
    life.renewed()
    life.failed()
    clock.now += 3600
    life.restart()
    assert life.grace() == LONGEST_OUTAGE
