"""Writes a software bill of materials: what is installed for the project at run time, as CycloneDX JSON.

    python deploy/release/sbom.py OUTPUT [--path SITE_PACKAGES] [--extras all]

The components are the distributions that the project and its extras require in this environment, or in that whose
site-packages are named, with all that these require. The same environment gives the same bytes: the time is that of
`SOURCE_DATE_EPOCH`, 1 January 2020 without it.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.bom_ref import BomRef
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "dialect-bridge"
_EPOCH = 1_577_836_800
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "pkg:pypi/dialect-bridge")


def required(installed: dict[str, Distribution], name: str, extras: Iterable[str]) -> dict[str, set[str]]:
    """Each distribution that is required, with those that it requires itself; by canonical names.

    What is not installed is left out: a marker or an extra of another platform has nothing to describe.
    """
    graph: dict[str, set[str]] = {}
    queue, seen = [(name, frozenset(extras))], set[tuple[str, frozenset[str]]]()
    while queue:
        each = queue.pop()
        if each in seen:
            continue
        seen.add(each)
        needs = graph.setdefault(each[0], set())
        for line in installed[each[0]].requires or ():
            needed = Requirement(line)
            found = canonicalize_name(needed.name)
            holds = needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in (*each[1], ""))
            if holds and found in installed:
                queue.append((found, frozenset(needed.extras)))
                if found != each[0]:
                    needs.add(found)
    return graph


def bom(installed: dict[str, Distribution], extras: Iterable[str], epoch: int) -> Bom:
    """The bill of materials of the project with these extras."""
    graph = required(installed, PROJECT, extras)
    components = {name: _component(name, installed[name]) for name in graph}
    made = Bom(components=[each for name, each in components.items() if name != PROJECT])
    made.metadata.component = components[PROJECT]
    made.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    made.serial_number = uuid.uuid5(_NAMESPACE, "\n".join(sorted(str(each.purl) for each in components.values())))
    for name, needs in graph.items():
        made.register_dependency(components[name], [components[other] for other in sorted(needs)])
    return made


def _component(name: str, found: Distribution) -> Component:
    purl = PackageURL("pypi", None, name, found.version)
    return Component(
        name=name,
        version=found.version,
        type=ComponentType.APPLICATION if name == PROJECT else ComponentType.LIBRARY,
        description=found.metadata.get("Summary"),
        purl=purl,
        bom_ref=BomRef(purl.to_string()),
        licenses=_licences(found),
    )


def _licences(found: Distribution) -> list[License]:
    """What the distribution declares: an SPDX expression, else classifiers, else the first line of its text."""
    make = LicenseFactory()
    if told := found.metadata.get("License-Expression"):
        return [make.make_from_string(told)]
    classifiers = [
        c.rpartition(" :: ")[2] for c in found.metadata.get_all("Classifier") or () if c.startswith("License ::")
    ]
    names = classifiers or [line for line in (found.metadata.get("License") or "").splitlines()[:1] if line]
    return [make.make_with_name(name) for name in names]


def main() -> None:
    """Writes the file that the command line names."""
    parser = argparse.ArgumentParser(prog="sbom.py")
    parser.add_argument("output", type=Path)
    parser.add_argument("--path", help="the site-packages of another environment")
    parser.add_argument("--extras", default="all", help="with commas between them")
    said = parser.parse_args()
    places = [said.path] if said.path else sys.path
    # The first of a name is the one that is imported.
    installed = {canonicalize_name(each.name): each for each in reversed(list(distributions(path=places)))}
    made = bom(installed, said.extras.split(","), int(os.environ.get("SOURCE_DATE_EPOCH", _EPOCH)))
    said.output.write_text(JsonV1Dot6(made).output_as_string(indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
