"""Find out what is installed, and whether it works."""

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
    """The state of one part of the installation."""

    what: str
    works: bool
    detail: str
    needed: bool = True
    fix: str = ""
    """The command that installs it, if it is not installed."""


def diagnose(*, quick: bool = False) -> list[Finding]:
    """Look at the interpreter, the dependencies, the engines and the data folder.

    Parameters
    ----------
    quick : bool, default=False
        Do not start any engine but the local one.

    Returns
    -------
    list of Finding
    """
    version = f"{platform.python_version()} on {platform.platform()}"
    findings = [
        Finding("python", sys.version_info >= (3, 11), version),
        Finding("cores", True, f"{os.cpu_count()}"),
        _look_for("coterie", "coterie", own_package(), needed=True),
    ]
    for package in PACKAGES:
        if package != "coterie":
            findings.append(_look_for(package, package, package, needed=True))
    for name in ENGINES:
        findings.append(_try_engine(name, quick and name != "local"))
    for failure in EXTENSIONS.failures:
        findings.append(Finding("extension", False, failure, needed=False))
    for extra, package in EXTRAS.items():
        findings.append(_look_for(f"extra {extra}", package, own_package(extra), needed=False))
    findings.append(_data_folder())
    return findings


def _data_folder() -> Finding:
    folder = os.environ.get("COTERIE_DATA")
    if folder and Path(folder).is_dir():
        return Finding("datasets", True, folder, needed=False)
    detail = "COTERIE_DATA is not set to a folder; only the papers' datasets need it"
    return Finding("datasets", False, detail, needed=False)


def lines_to_type(findings: list[Finding]) -> dict[str, str]:
    """List the commands to type next, by their reason: repairs, optional parts, a first fit."""
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
    """Fit a tiny problem on an engine, or only look whether it is installed."""
    part = f"engine {name}"
    needed = name == "local"
    missing = ENGINES[name].missing()
    if missing is not None:
        return Finding(part, False, missing, needed=False)
    if quick:
        return Finding(part, True, "installed, not tried", needed=False)
    began = time.monotonic()
    try:
        if name == "mpi" and Mpi().ranks == 1:
            status = _two_ranks()
        else:
            status = _tiny_fit(name)
    except Exception as error:  # A cluster may raise any error; the finding reports it.
        first_line, _, _ = str(error).strip().partition("\n")
        return Finding(part, False, f"{type(error).__name__}: {first_line}", needed)
    detail = f"a tiny fit ended {status} in {time.monotonic() - began:.1f} s"
    return Finding(part, status == "optimal", detail, needed)


def _tiny_fit(engine: str) -> str:
    X = np.random.default_rng(0).standard_normal((20, 3))
    problem = Problem("squared", "l2", 0.1, intercept=False)
    data = (X, X.sum(axis=1))
    result = solve(problem, data, agents=2, engine=engine, tol=1e-4, progress=False)
    return result.status


def _two_ranks() -> str:
    """Fit the tiny problem on two ranks that mpiexec starts; the rank of this process says little
    about these.
    """
    folder = Path(sys.executable).parent
    places = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    launcher = shutil.which("mpiexec", path=places)
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
