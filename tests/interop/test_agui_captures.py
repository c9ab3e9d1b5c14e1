"""What real software of every protocol sent, translated for the official AG-UI client: it takes all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge import Translator
from tests.dialects.ag_ui.helpers import INDEX, asked, response_of
from tests.interop.client import VERSIONS, Driver, read

pytestmark = pytest.mark.interop

CAPTURES = Path(__file__).parents[1] / "captures"


def captures() -> Iterator[Any]:
    """Dialect and bytes of every recorded stream."""
    for name in INDEX:
        if not name.startswith(("http500", "pyd-bad-input")):
            yield pytest.param("ag-ui", response_of(name).body, id=f"ag-ui {name}")
    for dialect in ("ag-kit", "agentscope", "openai-chat"):
        for path in sorted((CAPTURES / dialect).glob("*.sse")):
            yield pytest.param(dialect, path.read_bytes(), id=f"{dialect} {path.stem}")


@pytest.mark.parametrize("version", VERSIONS, ids=[f"client {v}" for v in VERSIONS.values()])
@pytest.mark.parametrize(("dialect", "data"), list(captures()))
def test_a_recorded_stream(driver: Driver, version: str, dialect: str, data: bytes) -> None:
    translator = Translator(dialect, "ag-ui")
    question = {"id": "1", "role": "user", "content": "Hi"}
    translator.request(json.dumps(asked(question, version="1.0" if version == "1" else None)).encode(), client="ag-ui")
    view = read(driver, version, translator.feed(data) + translator.close(), [question])
    assert view.rejected is None, view.rejected
    assert view.unhandled == []
    assert view.last["type"] in ("RUN_FINISHED", "RUN_ERROR")
