"""Test Coterie on every Python that is installed here, and say which were not found.

    python scripts/pythons.py [--all] [3.12 3.13]

Each gets an environment of its own, .venv-3.12 and so on, with what Coterie needs and what the
tests compare it with, but without Ray, Spark and MPI, whose tests skip. By default the tests of the
mathematics and of the command line run; --all runs all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
NEEDED = [
    "pytest",
    "pytest-xdist",
    "pytest-timeout",
    "hypothesis",
    "cvxpy",
    "mpmath",
    "statsmodels",
    "pandas",
    "polars",
]
QUICK = [
    "tests/run/test_certificate.py",
    "tests/numerics/test_losses.py",
    "tests/api/test_solve.py",
]
QUICK += [
    "tests/estimators/test_estimators.py",
    "tests/commands/test_cli.py",
    "tests/package/test_start.py",
]


def found(version: str) -> str | None:
    """A Python of that version: on the path, or beside others that pyenv keeps."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [
        shutil.which(f"python{version}"),
        *map(str, sorted(kept.glob(f"{version}.*/bin/python"))),
    ]
    for place in filter(None, places):
        asked = subprocess.run(
            [place, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
        )
        if asked.stdout.strip() == version:
            return place
    return None


def tested(version: str, python: str, tests: list[str]) -> str:
    """What came of the tests on that Python, in a few words."""
    home = ROOT / f".venv-{version}"
    own = home / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", home], check=True)
    install = [
        own,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-e",
        ".[peers]",
        *NEEDED,
    ]
    if subprocess.run(install, cwd=ROOT).returncode:
        return "FAILED: its packages could not be installed"
    run = subprocess.Popen(
        [own, "-m", "pytest", "-n", "2", "-q", *tests],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert run.stdout is not None
    last = ""
    for line in run.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    return f"{'passed' if run.wait() == 0 else 'FAILED'}: {last.strip('= ')}"


def main(arguments: list[str]) -> int:
    wanted = [given for given in arguments if given in VERSIONS] or list(VERSIONS)
    results = {}
    for version in wanted:
        python = found(version)
        print(f"Python {version}: {python or 'not found'}", flush=True)
        tests = [] if "--all" in arguments else QUICK
        results[version] = (
            tested(version, python, tests) if python else "not run: not installed here"
        )
    print(*(f"Python {version}  {result}" for version, result in results.items()), sep="\n")
    return any(result.startswith("FAILED") for result in results.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
