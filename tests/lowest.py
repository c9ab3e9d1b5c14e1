"""The oldest libraries that pyproject.toml allows, one a line: `make lowest` runs the tests with them.

Those that only tests need stay as they are, but for what two of them must agree on.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_BOUND = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[\w,-]+\])?>=(?P<version>[\d.]+)")
_OF_TESTS = frozenset({"dev", "docs", "fuzz", "all"})
_AGREE = frozenset({"grpcio-tools", "protobuf"})
"""What it generates runs with the same or a later protobuf of one major version."""


def lowest(pyproject: str) -> list[str]:
    """Of several bounds for one library the highest: all of them hold at once."""
    project = tomllib.loads(pyproject)["project"]
    groups: dict[str, list[str]] = {"": project["dependencies"], **project["optional-dependencies"]}
    bounds = [
        (group, found) for group, declared in groups.items() for each in declared if (found := _BOUND.match(each))
    ]
    ours = {found["name"] for group, found in bounds if group not in _OF_TESTS} | _AGREE
    most: dict[str, str] = {}
    for _, found in bounds:
        name = found["name"] + (found["extras"] or "")
        if found["name"] in ours:
            most[name] = max(most.get(name, "0"), found["version"], key=_number)
    return [f"{name}=={version}" for name, version in most.items()]


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    print("\n".join(lowest(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())))  # noqa: T201
