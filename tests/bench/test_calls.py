"""What a token and a request cost in calls and objects of our own. Counts, no times: a change that adds work shows."""

from __future__ import annotations

from calls import BEGINS, GOES_ON, NOT_KEPT, PLAIN, TOKEN, counted

MARGIN = 1.1
MOST = {TOKEN: 19, PLAIN: 340, NOT_KEPT: 531, BEGINS: 753, GOES_ON: 805}
OBJECTS = {TOKEN: 1, PLAIN: 59, NOT_KEPT: 74, BEGINS: 97, GOES_ON: 105}
"""As measured; lower them when the code gets better."""


async def test_calls_of_a_token_and_of_a_request_do_not_grow() -> None:
    counts = await counted()
    token, request = counts[TOKEN], counts[PLAIN]
    for what, most in MOST.items():
        assert counts[what].calls <= most * MARGIN, what
        assert 0 < counts[what].objects <= OBJECTS[what] * MARGIN, what
    assert token.depth <= 12
    assert request.depth <= 21
    # It must be counted at all: a read, a write, a decoder and an encoder are calls of ours.
    assert token.calls >= 4
    assert request.files >= 10
