"""What a token and a request cost in calls and objects of our own. Counts, no times: a change that adds work shows."""

from __future__ import annotations

from calls import BEGINS, GOES_ON, NOT_KEPT, PLAIN, TOKEN, counted

MARGIN = 1.1
MOST = {TOKEN: 18, PLAIN: 306, NOT_KEPT: 508, BEGINS: 729, GOES_ON: 782}
OBJECTS = {TOKEN: 1, PLAIN: 50, NOT_KEPT: 68, BEGINS: 91, GOES_ON: 99}
"""As measured; lower them when the code gets better."""


async def test_calls_of_a_token_and_of_a_request_do_not_grow() -> None:
    counts = await counted()
    token, request = counts[TOKEN], counts[PLAIN]
    for what, most in MOST.items():
        assert counts[what].calls <= most * MARGIN, what
        assert 0 < counts[what].objects <= OBJECTS[what] * MARGIN, what
    assert token.depth <= 12
    assert request.depth <= 19
    assert request.files <= 72
    # It must be counted at all: a read, a write, a decoder and an encoder are calls of ours.
    assert token.calls >= 4
    assert request.files >= 10
