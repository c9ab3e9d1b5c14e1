"""docs/errors.md and docs/errors/*.md, every error code and what clients see of it: `make pages` writes them anew.

What a code means is its docstring in `bridge/errors.py`, status and "may repeat" are `RULES` there; what clients see is
what each dialect's encoder writes for it. What to check is in the file that the web page reads, in both languages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bridge.contract import Dialect, registry
from bridge.contract.dialect import Framing
from bridge.errors import RULES, ErrorCode, Failure
from bridge.model import Event, RunFailed, RunStarted
from bridge.server.page import error_pages
from bridge.testing.wires import encode
from tests.docs.tables import ROOT, dialects

PAGE = ROOT / "docs" / "errors.md"
PAGES = {code: ROOT / "docs" / "errors" / f"{code}.md" for code in ErrorCode}

HEAD = """\
# Errors

Every failure has one of these codes. Logs and the library use the code itself; clients get the failure in the error
format of their dialect, shown below. `make pages` generates this page from `bridge/errors.py` and the encoders.

- Before the answer has begun, a failure is an HTTP response with the status in the table. After that it is the last
  event of the stream.
- *may be repeated*: the same request may succeed later. The response has `Retry-After` if the time is known. The bridge
  itself retries only as the backend's `retry` allows, and never after it has sent content.
- If clients act on a more precise status of the backend (422 instead of 400, say), the response has that status. The
  gRPC column applies to calls over gRPC.
- Every response has an `X-Request-Id`, which is also in the log line of the request. Messages never contain a key, a
  request body or a stack trace.
- `dialect-bridge explain CODE` prints the page of a code, and `dialect-bridge explain` lists all codes. A server with
  the web page has these pages at `/_page/errors/CODE`.
"""

_WORDS = "what happened"


def page() -> str:
    """The whole page."""
    every = [dialect for name in dialects() if (dialect := registry.get(name)).served]
    return "\n\n".join([HEAD + "\n" + _codes(), *(_section(dialect) for dialect in every)]) + "\n"


def page_of(code: ErrorCode) -> str:
    """The page of one code."""
    return f"{error_pages.page_of(code, links=True)}\n[Errors](../errors.md) shows this error in each dialect.\n"


def _codes() -> str:
    lines = [
        "| code | means | HTTP | gRPC | may be repeated |",
        "|---|---|---|---|---|",
    ]
    said = error_pages.meanings()
    for code, rule in RULES.items():
        again = "yes" if rule.retry else "no"
        lines.append(f"| [`{code}`](errors/{code}.md) | {said[code]} | {rule.http} | `{rule.grpc}` | {again} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class _Seen:
    """What a client sees of one code: `said` before the stream began, `ended` in it, as flat names and values."""

    status: str
    said: dict[str, str]
    ended: dict[str, str]


def _section(dialect: Dialect) -> str:
    seen = {code: _seen(dialect, code) for code in ErrorCode}
    said = _telling([one.said for one in seen.values()])
    ended = _telling([one.ended for one in seen.values()])
    status = "gRPC" if dialect.over_grpc else "HTTP"
    head = ["code", status, *(f"`{key}`" for key in said), *(f"in the stream: `{key}`" for key in ended)]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for code, one in seen.items():
        cells = [one.status, *(one.said.get(key, "") for key in said), *(one.ended.get(key, "") for key in ended)]
        rows.append(f"| `{code}` | {' | '.join(f'`{cell}`' if cell else '' for cell in cells)} |")
    return f"## {dialect.name}\n\n{_shape(dialect)}\n\n" + "\n".join(rows)


def _shape(dialect: Dialect) -> str:
    """One failure as its bytes. Messages of gRPC are no text: of them the words are shown."""
    failure = Failure(ErrorCode.RATE_LIMITED, _WORDS)
    if dialect.over_grpc:
        # A message's text is its last field; what stands before it are lengths.
        text = encode(dialect, _run(failure))[-len(f"Error: {_WORDS}") :].decode()
        return f"The message is in the details of the status. In a session it is the text of an answer: `{text}`."
    body, told = dialect.encode_error(failure).body.decode(), "\n\n".join(_frames(dialect, failure))
    return f"Before the stream:\n\n```json\n{body}\n```\n\nIn the stream:\n\n```text\n{told}\n```"


def _seen(dialect: Dialect, code: ErrorCode) -> _Seen:
    failure = Failure(code, _WORDS)
    reply = dialect.encode_error(failure)
    headers = {name: value for name, value in reply.headers.items() if name not in ("content-type", "grpc-status")}
    if dialect.over_grpc:
        return _Seen(reply.headers["grpc-status"], headers, {})
    told = _frames(dialect, failure)[-1].rpartition("data: ")[2]
    said = {**dict(_flat(json.loads(reply.body))), **headers}
    said.pop("status", None)  # A body that repeats the status tells nothing new.
    return _Seen(str(reply.status), said, dict(_flat(json.loads(told))))


def _frames(dialect: Dialect, failure: Failure) -> list[str]:
    """The frames of a stream that tell the failure; the last one is taken for the table."""
    between = "\n\n" if dialect.framing is not Framing.JSON_LINES else "\n"
    frames = encode(dialect, _run(failure)).decode().split(between)
    return [frame for frame in frames if _WORDS in frame]


def _run(failure: Failure) -> list[Event]:
    return [RunStarted("run1", "thread1", "m", 1_700_000_000.0), RunFailed(failure)]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each string or number of a JSON value, with the dotted path of its keys."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _flat(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for below in value:
            yield from _flat(below, f"{path}[]")
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and _WORDS not in str(value):
        yield path, str(value)


def _telling(every: list[dict[str, str]]) -> list[str]:
    """The fields by which codes differ."""
    keys = dict.fromkeys(key for one in every for key in one)
    return [key for key in keys if len({one.get(key) for one in every}) > 1]
