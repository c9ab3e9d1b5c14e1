"""Where fuzzing begins: the recorded wires of a dialect, and what it writes itself of every feature there is."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bridge.contract import registry
from bridge.errors import ErrorCode, Failure, Unsupported
from bridge.testing.wires import context, encode
from bridge.testing.witnesses import ANSWERS, REQUESTS, answer_of
from tests.recorded import CAPTURES, body

CRASHERS = Path(__file__).parent / "crashers"
_LONGEST = 16 * 1024


@cache
def seeds(dialect: str) -> list[bytes]:
    """Wires of this dialect, requests and answers alike, none of them long."""
    recorded = [body(path) for path in sorted((CAPTURES / dialect).glob("*.*")) if path.name != "index.json"]
    return [data for data in [*recorded, *_written(dialect)] if 0 < len(data) <= _LONGEST]


def crashers(target: object) -> list[bytes]:
    """Inputs that once broke a promise of this target."""
    return [path.read_bytes() for path in sorted(CRASHERS.glob(f"{target}.*"))]


def _written(name: str) -> list[bytes]:
    dialect = registry.get(name)
    out = [encode(dialect, answer_of(feature)) for feature in ANSWERS] if dialect.served else []
    for witness in REQUESTS.values():
        try:
            out.append(dialect.encode_request(witness.request, context(dialect.back_options(), witness.request)).body)
        except Unsupported:
            continue
    if not dialect.served:
        return out
    for feature in ANSWERS:
        try:
            out.append(dialect.assemble(answer_of(feature), context(dialect.front_options())).body)
        except Unsupported:
            break
    return [*out, dialect.encode_error(Failure(ErrorCode.RATE_LIMITED, "slow down")).body]
