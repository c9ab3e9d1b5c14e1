#!/usr/bin/env python3
"""How costs grow: `make growth`, or `python bench/growth.py codecs stores` for some of it; `tables` measures nothing.

Writes docs/growth.json, in which what was not measured now stays as it was, and the tables of docs/scale.md. The status
is 1 if a measured shape of an answer or a request costs more CPU time for each megabyte than the budget of
`growth_shapes.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import growth_codecs
import growth_owners
import growth_report
import growth_server
import growth_shapes
import growth_stores
import run_store
from targets import Mock

DOCS = Path(__file__).resolve().parent.parent / "docs"
FILE, PAGE = DOCS / "growth.json", DOCS / "scale.md"


def with_mock(measure: Callable[[Mock], Any]) -> Callable[[], Any]:
    def work() -> Any:
        with Mock() as mock:
            return measure(mock)

    return work


SECTIONS: dict[str, Callable[[], Any]] = {
    "start": growth_server.start,
    "codecs": growth_codecs.measure,
    "shapes": growth_shapes.measure,
    "recorded": growth_shapes.measure_recorded,
    "holds": growth_server.holds,
    "streams": with_mock(growth_server.streams),
    "durable": growth_server.durable,
    "routes": with_mock(growth_server.routes),
    "histories": with_mock(growth_server.histories),
    "stores": growth_stores.measure,
    "owners": growth_owners.measure,
    "run_store": run_store.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, "tables", []], help="default: all")
    asked = parser.parse_args().sections or list(SECTIONS)
    data: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    data["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
    for name in asked:
        if name in SECTIONS:
            print(name, flush=True)
            data[name] = SECTIONS[name]()
            FILE.write_text(json.dumps(data, indent=1) + "\n")
    PAGE.write_text(growth_report.filled(PAGE.read_text(), data))
    over = growth_shapes.over_budget({name: data[name] for name in asked if name in data})
    for line in over:
        print(f"over the budget: {line}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
