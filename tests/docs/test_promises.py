"""Every promise of the threat model, the security page and the reliability page names tests that exist."""

from __future__ import annotations

import pytest

from tests.docs.helpers import ROOT
from tests.docs.promises import DOCUMENTS, PAGE, is_there, page, promises


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_promise_names_its_tests(document: str) -> None:
    found, unmarked = promises((ROOT / document).read_text(encoding="utf-8"))
    assert len(found) > 10
    assert unmarked == []
    assert [(promise.text, test) for promise in found for test in promise.tests if not is_there(test)] == []


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "`make pages` writes it anew"


SAMPLE = """# Title

What the page is.

## Facts

- It holds. <!-- shown by: server/test_x.py::test_a ::test_b -->
- It holds too, <!-- shown by: server/test_x.py::test_a --> and so does
  this.

| threat | protection |
|---|---|
| one | two |

## Advice

<!-- no promise: advice -->

Do it.

## Measured

<!-- shown by: server/test_x.py::test_c -->

| a | b |
|---|---|
| 1 | 2 |
"""


def test_a_statement_without_a_mark_is_found() -> None:
    found, unmarked = promises(SAMPLE)
    assert unmarked == ["and so does this.", "one | two"]
    assert [(p.section, p.text, p.tests) for p in found] == [
        ("Facts", "It holds.", ("server/test_x.py::test_a", "server/test_x.py::test_b")),
        ("Facts", "It holds too", ("server/test_x.py::test_a",)),
        ("Measured", "All of this section", ("server/test_x.py::test_c",)),
    ]


@pytest.mark.parametrize(
    ("test", "there"),
    [
        ("docs/test_promises.py::test_the_page_is_current", True),
        ("docs/test_promises.py::test_nothing_of_this_name", False),
        ("docs/test_nowhere.py::test_the_page_is_current", False),
        ("docs/promises.py::page", False),
    ],
)
def test_a_test_that_is_not_there_is_found(test: str, there: bool) -> None:
    assert is_there(test) is there
