"""What users install with this project may be used in products, by the licences that the packages declare."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

EXTRAS = ("all",)
ALLOWED = {
    "apache", "bsd", "isc", "mit", "mpl", "psf", "python", "0bsd", "unlicense", "cnri", "zlib",
}  # fmt: skip
"""The first words of licences that ask for nothing but their notice; MPL 2.0 does for the package's own files alone."""
_FORBIDDEN = re.compile(
    r"\b(A?GPL|GNU (Affero )?General|SSPL|BUSL|Commons Clause|Proprietary|Non-?Commercial)", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z0-9]+")


def installed(project: str = "dialect-bridge", extras: tuple[str, ...] = EXTRAS) -> dict[str, Distribution]:
    """The project's requirements and those of its extras, and all that they require themselves."""
    out: dict[str, Distribution] = {}
    queue = [(project, frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while queue:
        name, extras = queue.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        out[name] = found
        for line in found.requires or ():
            needed = Requirement(line)
            if any(needed.marker is None or needed.marker.evaluate({"extra": e}) for e in (*extras, "")):
                queue.append((re.sub(r"[-_.]+", "-", needed.name).lower(), frozenset(needed.extras)))
    out.pop(project)
    return out


def licences_of(found: Distribution) -> list[str]:
    """What the package says of its licence: as an SPDX expression, as classifiers, or in its own words."""
    told = found.metadata
    classifiers = [c.rpartition(" :: ")[2] for c in told.get_all("Classifier") or () if c.startswith("License ::")]
    return [s for s in (told.get("License-Expression"), *classifiers, (told.get("License") or "")[:80]) if s]


def test_runtime_dependencies_may_be_used_in_products() -> None:
    packages = installed()
    assert {
        "aiohttp",
        "orjson",
        "pydantic",
        "pyjwt",
        "pyyaml",
        "grpcio",
        "asyncpg",
        "obstore",
    } <= packages.keys()
    check(packages)


def test_what_releases_are_made_with_may_be_used_in_companies() -> None:
    packages = {"cyclonedx-python-lib": distribution("cyclonedx-python-lib"), **installed("cyclonedx-python-lib", ())}
    assert {"packageurl-python", "license-expression", "py-serializable", "defusedxml"} <= packages.keys()
    check(packages)


def check(packages: dict[str, Distribution]) -> None:
    """Fails for a package whose licence is unknown or asks for more than its notice."""
    for name, found in packages.items():
        told = licences_of(found)
        assert told, f"{name} says nothing of its licence"
        words = {word.lower() for text in told for word in _WORD.findall(text)}
        assert words & ALLOWED, (name, told)
        assert not any(_FORBIDDEN.search(text) for text in told), (name, told)
