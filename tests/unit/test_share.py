"""The limits of a server, shared out to its workers."""

from __future__ import annotations

import pytest

from bridge.engine.config import parse, share_of


@pytest.mark.parametrize(
    ("workers", "parts", "queues", "route"),
    [
        (1, [10], [3], [2]),
        (2, [5, 5], [2, 1], [1, 1]),
        (3, [4, 3, 3], [1, 1, 1], [1, 1, 1]),
        (4, [3, 3, 2, 2], [1, 1, 1, 0], [1, 1, 1, 1]),
    ],
)
def test_the_parts_are_the_whole_and_nobody_has_none(
    workers: int, parts: list[int], queues: list[int], route: list[int]
) -> None:
    config = parse(
        {
            "server": {"workers": workers, "limits": {"concurrent": 10, "queue": 3}},
            "backends": {"it": {"dialect": "demo"}},
            "routes": [
                {"dialect": "openai-chat", "path": "/v1", "backend": "it", "limits": {"concurrent": 2}},
                {"dialect": "ag-ui", "path": "/ui", "backend": "it"},
            ],
        }
    )
    shares = [share_of(config, number) for number in range(1, workers + 1)]
    assert [share.server.limits.concurrent for share in shares] == parts
    assert [share.server.limits.queue for share in shares] == queues
    assert [places.concurrent for share in shares if (places := share.routes[0].limits)] == route
    assert all(share.routes[1].limits is None for share in shares)
