"""Many cases in one test: every case runs, and the test fails with all failures, each with the name of its case.

A test item costs about as much as translating a recorded answer, so thousands of small cases share a few items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

Case = Callable[[object], AbstractContextManager[None]]


@contextmanager
def all_cases() -> Iterator[Case]:
    """Yield `case`: what fails in `with case(name):` is kept, and raised with the other failures at the end.

    Raises a `BaseExceptionGroup` of all failures. A test in which no case ran fails as well.
    """
    failures: dict[str, BaseException] = {}
    ran = 0

    @contextmanager
    def case(name: object) -> Iterator[None]:
        nonlocal ran
        ran += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"case: {name}")
            failures[str(name)] = error

    yield case
    if failures:
        message = f"{len(failures)} of {ran} cases failed: {', '.join(failures)}"
        raise BaseExceptionGroup(message, list(failures.values()))
    assert ran, "no case ran"
