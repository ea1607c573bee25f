"""A software bill of materials: what an installed Coterie is made of, as CycloneDX 1.5 JSON on
standard output.

    python scripts/sbom.py [extra ...]

Lists Coterie, everything it depends on, and everything that those depend on, as installed here,
with versions, licences and who needs whom. Extras (`peers`, `spark`, ...) add what they need.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement


def name_of(name: str) -> str:
    """A name as package indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(found: Distribution, extras: set[str]) -> dict[str, set[str]]:
    """What a distribution needs here, by name, with the extras it asks for."""
    wanted: dict[str, set[str]] = {}
    for line in found.requires or ():
        one = Requirement(line)
        if one.marker is None or any(
            one.marker.evaluate({"extra": extra}) for extra in extras | {""}
        ):
            wanted.setdefault(name_of(one.name), set()).update(one.extras)
    return wanted


def closure(root: str, extras: set[str]) -> tuple[dict[str, Distribution], dict[str, set[str]]]:
    """Everything that is needed and installed, and who needs whom."""
    found: dict[str, Distribution] = {}
    needs: dict[str, set[str]] = {}
    asked: dict[str, set[str]] = {}
    waiting = [(root, extras)]
    while waiting:
        name, more = waiting.pop()
        if name in asked and more <= asked[name]:
            continue
        asked.setdefault(name, set()).update(more)
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # An optional part that is not here.
        wanted = needed(found[name], asked[name])
        needs.setdefault(name, set()).update(set(wanted) - {name})
        waiting += wanted.items()
    return found, {
        name: {other for other in others if other in found} for name, others in needs.items()
    }


def component(name: str, found: Distribution) -> dict[str, object]:
    """One entry of the list."""
    licence = found.metadata.get("License-Expression") or found.metadata.get("License") or "unknown"
    purl = f"pkg:pypi/{name}@{found.version}"
    kind = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": found.version,
        "purl": purl,
    }
    return {**kind, "licenses": [{"license": {"name": licence.splitlines()[0][:100]}}]}


def main() -> None:
    """Print the bill."""
    found, needs = closure("coterie", set(sys.argv[1:]))
    parts = {name: component(name, one) for name, one in sorted(found.items())}
    known = {name: part["bom-ref"] for name, part in parts.items()}
    print(
        json.dumps(
            {
                "bomFormat": "CycloneDX",
                "specVersion": "1.5",
                "version": 1,
                "metadata": {"component": {**parts.pop("coterie"), "type": "application"}},
                "components": list(parts.values()),
                "dependencies": [
                    {"ref": known[name], "dependsOn": sorted(str(known[other]) for other in others)}
                    for name, others in sorted(needs.items())
                ],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
