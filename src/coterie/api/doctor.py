"""What is installed, and does it work?"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.api.solve import solve
from coterie.catalogue import EXTENSIONS
from coterie.engines import ENGINES
from coterie.engines.mpi import Mpi
from coterie.installation import extra_command, install_command, own_package, pip_install
from coterie.problems.problem import Problem

PACKAGES = (
    "coterie",
    "numpy",
    "scipy",
    "numba",
    "scikit-learn",
    "networkx",
    "narwhals",
    "pyarrow",
    "msgspec",
)
EXTRAS = {
    "ray": "ray",
    "spark": "pyspark",
    "mpi": "mpi4py",
    "peers": "grpcio",
    "gpu": "torch",
    "tracking": "tensorboardX",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    works: bool
    detail: str
    needed: bool = True
    fix: str = ""
    """The line that installs it, where that is what is missing."""


def diagnose(*, quick: bool = False) -> list[Finding]:
    """Look at the interpreter, the dependencies, the engines (`quick`: without starting any) and
    the data folder.
    """
    findings = [
        Finding(
            "python",
            sys.version_info >= (3, 11),
            f"{platform.python_version()} on {platform.platform()}",
        ),
        Finding("cores", True, f"{os.cpu_count()}"),
    ]
    findings.append(_look_for("coterie", "coterie", own_package(), needed=True))
    findings += [
        _look_for(package, package, package, needed=True)
        for package in PACKAGES
        if package != "coterie"
    ]
    findings += [_try_engine(name, quick and name != "local") for name in ENGINES]
    findings += [
        Finding("extension", False, failure, needed=False) for failure in EXTENSIONS.failures
    ]
    for extra, package in EXTRAS.items():
        findings.append(_look_for(f"extra {extra}", package, own_package(extra), needed=False))
    folder = os.environ.get("COTERIE_DATA")
    there = bool(folder) and Path(str(folder)).is_dir()
    detail = (
        str(folder)
        if there
        else "COTERIE_DATA is not set to a folder; only the papers' datasets need it"
    )
    findings.append(Finding("datasets", there, detail, needed=False))
    return findings


def lines_to_type(findings: list[Finding]) -> dict[str, str]:
    """What to type next, and why: what is needed, then what is optional, or a first try."""
    lines = {}
    for needed, why in ((True, "To mend it"), (False, "For what is optional")):
        missing = [finding for finding in findings if finding.fix and finding.needed is needed]
        if missing:
            packages = [finding.fix.removeprefix(pip_install()).strip() for finding in missing]
            lines[why] = " ".join([pip_install(), *packages])
    if all(finding.works for finding in findings if finding.needed):
        lines["For a first fit"] = "coterie demo"
    return lines


def _look_for(what: str, package: str, to_install: str, needed: bool) -> Finding:
    try:
        return Finding(what, True, f"{package} {importlib.metadata.version(package)}", needed)
    except importlib.metadata.PackageNotFoundError:
        line = install_command(to_install)
        return Finding(what, False, f"not installed: {line}", needed, line)


def _try_engine(name: str, quick: bool) -> Finding:
    """Fit a tiny problem on it, or only look whether it is there."""
    if (missing := ENGINES[name].missing()) is not None:
        return Finding(f"engine {name}", False, missing, needed=False)
    if quick:
        return Finding(f"engine {name}", True, "installed, not tried", needed=False)
    began = time.monotonic()
    try:
        status = _two_ranks() if name == "mpi" and Mpi().ranks == 1 else _tiny_fit(name)
    except Exception as error:  # Whatever a cluster may raise: this is where it is found out.
        first_line = str(error).strip().partition("\n")[0]
        return Finding(
            f"engine {name}", False, f"{type(error).__name__}: {first_line}", needed=name == "local"
        )
    told = f"a tiny fit ended {status} in {time.monotonic() - began:.1f} s"
    return Finding(f"engine {name}", status == "optimal", told, needed=name == "local")


def _tiny_fit(engine: str) -> str:
    X = np.random.default_rng(0).standard_normal((20, 3))
    problem = Problem("squared", "l2", 0.1, intercept=False)
    return solve(
        problem, (X, X.sum(axis=1)), agents=2, engine=engine, tol=1e-4, progress=False
    ).status


def _two_ranks() -> str:
    """The same in two ranks of their own: the one that this process is says little of those that
    mpiexec starts.
    """
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    launcher = shutil.which("mpiexec", path=beside)
    if launcher is None:
        raise FileNotFoundError(
            f"there is no mpiexec, which starts the ranks: {extra_command('mpi')}"
        )
    script = "from coterie.api.doctor import _tiny_fit; print(_tiny_fit('mpi'))"
    found = subprocess.run(
        [launcher, "-n", "2", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if found.returncode:
        raise RuntimeError(f"{launcher}: {found.stderr}")
    return found.stdout.split()[0]
