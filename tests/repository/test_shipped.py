"""What is shipped beside the package: the versions it was tested with, and a bill of materials."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def pinned():
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    return {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in lines)
    }


def materials(*extras):
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "sbom.py"), *extras],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_every_dependency_has_a_tested_version():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        project["optional-dependencies"][name] for name in ("peers", "spark", "ray", "mpi", "dev")
    ]
    for line in (*project["dependencies"], *(one for extra in extras for one in extra)):
        wanted = Requirement(line)
        if wanted.name == "coterie" or (wanted.marker is not None and not wanted.marker.evaluate()):
            continue
        assert wanted.specifier.contains(pinned()[canonicalize_name(wanted.name)]), line


def test_the_bill_of_materials_lists_everything_that_is_needed():
    plain, more = materials(), materials("peers")
    names = {part["name"] for part in plain["components"]}
    assert {"numpy", "scipy", "msgspec", "contourpy"} <= names, "and what matplotlib needs"
    assert {part["name"] for part in more["components"]} >= names | {
        "grpcio",
        "cryptography",
        "cffi",
    }
    assert plain["metadata"]["component"]["name"] == "coterie"
    refs = {part["bom-ref"] for part in more["components"]} | {
        more["metadata"]["component"]["bom-ref"]
    }
    for entry in more["dependencies"]:
        assert {entry["ref"], *entry["dependsOn"]} <= refs
    versions = {part["name"]: part["version"] for part in more["components"]}
    assert versions["numpy"] == __import__("numpy").__version__


def test_make_installs_the_tested_versions_when_asked():
    def planned(*settings):
        done = subprocess.run(
            ["make", "--dry-run", "--always-make", "demo", *settings],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert "--constraint constraints.txt" in planned("TESTED=1")
    assert "constraint" not in planned()
