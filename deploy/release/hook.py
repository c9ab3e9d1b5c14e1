"""Puts into the wheel what stands elsewhere in a checkout, and its bill of materials.

The documents of the dialects, which the page shows, are in the package of a wheel; an editable installation reads those
of the checkout. The bill of materials that `DIALECT_BRIDGE_SBOM` names is at `.dist-info/sboms/` (PEP 770). Without the
variable there is none: it could only describe an environment that is not there when a wheel is built.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelHook(BuildHookInterface[Any]):
    """What hatchling calls before it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"]["docs/dialects"] = "bridge/server/page/documents"
        if named := os.environ.get("DIALECT_BRIDGE_SBOM"):
            build_data["sbom_files"].append(os.path.abspath(named))
