"""`make fuzz TIME=600`: looks for bytes that break a promise, led by coverage (atheris, libFuzzer), until one is found.

One process fuzzes all targets: the first byte of an input chooses which. What it found is written to build/fuzz, and,
as `tests/fuzz/crashers/<target>.<hash>`, becomes a test.
"""

from __future__ import annotations

import hashlib
import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["bridge"]):
    from tests.fuzz.corpus import CRASHERS, seeds
    from tests.fuzz.mutate import mutate
    from tests.fuzz.targets import targets

TARGETS = targets()
FOLDER = Path("build/fuzz")


def once(data: bytes) -> None:
    """One input: a byte that names the target, then what it is given."""
    if not data:
        return
    target, given = TARGETS[data[0] % len(TARGETS)], data[1:]
    try:
        target.run(given)
    except Exception as error:
        found = CRASHERS / f"{target}.{hashlib.sha256(given).hexdigest()[:12]}"
        found.write_bytes(given)
        error.add_note(f"{target} broke a promise; the input is kept as {found}")
        raise


def change(data: bytes, limit: int, seed: int) -> bytes:
    """Half of the changes know the wires, half are libFuzzer's own."""
    rnd = random.Random(seed)
    if len(data) < 2 or rnd.random() < 0.5:
        return bytes(atheris.Mutate(data, limit))
    return (data[:1] + mutate(data[1:], rnd))[:limit]


def main() -> None:
    """Arguments are libFuzzer's; the corpus that grows in build/fuzz begins with all that is known."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, target in enumerate(TARGETS):
        for data in seeds(target.dialect):
            name = hashlib.sha256(data).hexdigest()[:12]
            (FOLDER / f"{target}.{name}").write_bytes(bytes([number]) + data)
    own = ["-max_len=20000", "-timeout=20", f"-artifact_prefix={FOLDER.parent}/", str(FOLDER)]
    atheris.Setup([sys.argv[0], *sys.argv[1:], *own], once, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
