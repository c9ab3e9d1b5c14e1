"""A short run of the fuzzer that is the same every time; it begins with every input that once broke something.

`make fuzz TIME=3600` is the long run: it is led by coverage and finds other inputs each time.
"""

from __future__ import annotations

import random
import zlib

import pytest

from tests.fuzz.corpus import crashers, seeds
from tests.fuzz.mutate import mutate
from tests.fuzz.targets import Target, targets

ROUNDS = 300


@pytest.mark.parametrize("target", targets(), ids=str)
def test_no_neighbour_of_a_known_wire_breaks_a_promise(target: Target) -> None:
    rnd = random.Random(zlib.crc32(str(target).encode()))
    known = [*seeds(target.dialect), *crashers(target)]
    for data in known:
        target.run(data)
    for _ in range(ROUNDS):
        data = rnd.choice(known)
        for _ in range(rnd.randint(1, 4)):
            data = mutate(data, rnd)
        try:
            target.run(data)
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}, for {data!r}", pytrace=False)


def test_a_mutation_is_repeatable_and_mostly_still_json() -> None:
    data = b'data: {"a": [1, {"b": "c"}]}\n\ndata: [DONE]\n\n'
    first = [mutate(data, random.Random(n)) for n in range(100)]
    assert first == [mutate(data, random.Random(n)) for n in range(100)]
    assert len(set(first)) > 50
