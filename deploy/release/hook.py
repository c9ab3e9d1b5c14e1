"""Puts the bill of materials that `DIALECT_BRIDGE_SBOM` names into the wheel, at `.dist-info/sboms/` (PEP 770).

Without the variable the wheel has none: it could only describe an environment that is not there when a wheel is built.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SbomHook(BuildHookInterface[Any]):
    """What hatchling calls before it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if named := os.environ.get("DIALECT_BRIDGE_SBOM"):
            build_data["sbom_files"].append(os.path.abspath(named))
