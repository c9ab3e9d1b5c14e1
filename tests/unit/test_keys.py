"""Which of many keys was sent is found without a look at the others."""

from __future__ import annotations

from bridge.server.auth.api_keys import Key, Keys


class Counted(bytes):
    """A digest that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return bytes.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = bytes.__hash__


def test_a_key_among_many() -> None:
    keys = Keys([Key(f"user{n}", Counted(Keys.digest(f"key{n}")), frozenset("*")) for n in range(5000)])
    Counted.compared = 0
    for n in (0, 17, 4999):
        found = keys.find(f"key{n}")
        assert found is not None
        assert found.name == f"user{n}"
    assert keys.find("key5000") is None
    assert Counted.compared < 20
