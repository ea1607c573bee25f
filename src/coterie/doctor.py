"""What is installed, and does it work?"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.engines import ENGINES
from coterie.engines.mpi import Mpi
from coterie.problem import Problem
from coterie.solve import solve

__all__ = ["Finding", "diagnose"]

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


def diagnose(*, quick: bool = False) -> list[Finding]:
    """Look at the interpreter, the dependencies, the engines (`quick`: without starting any) and the data folder."""
    findings = [
        Finding("python", sys.version_info >= (3, 11), f"{platform.python_version()} on {platform.platform()}"),
        Finding("cores", True, f"{os.cpu_count()}"),
    ]
    for package in ("coterie", "numpy", "scipy", "numba", "scikit-learn", "networkx", "narwhals", "pyarrow", "msgspec"):
        findings.append(Finding(package, True, importlib.metadata.version(package)))
    findings += [_try_engine(name, quick and name != "local") for name in ENGINES]
    for extra, package in EXTRAS.items():
        try:
            found = importlib.metadata.version(package)
            findings.append(Finding(f"extra {extra}", True, f"{package} {found}", needed=False))
        except importlib.metadata.PackageNotFoundError:
            advice = f"not installed: pip install 'coterie[{extra}]'"
            findings.append(Finding(f"extra {extra}", False, advice, needed=False))
    folder = os.environ.get("COTERIE_DATA")
    there = bool(folder) and Path(str(folder)).is_dir()
    detail = str(folder) if there else "COTERIE_DATA is not set to a folder; only the papers' datasets need it"
    findings.append(Finding("datasets", there, detail, needed=False))
    return findings


def _try_engine(name: str, quick: bool) -> Finding:
    """Fit a tiny problem on it, or only look whether it is there."""
    if (missing := ENGINES[name].missing()) is not None:
        return Finding(f"engine {name}", False, missing, needed=False)
    if quick:
        return Finding(f"engine {name}", True, "installed, not tried", needed=False)
    X = np.random.default_rng(0).standard_normal((20, 3))
    began = time.monotonic()
    try:
        result = solve(
            Problem("squared", "l2", 0.1), (X, X.sum(axis=1)), agents=2, engine=name, tol=1e-4, progress=False
        )
    except Exception as error:  # Whatever a cluster may raise: this is where it is found out.
        first_line = str(error).partition("\n")[0]
        return Finding(f"engine {name}", False, f"{type(error).__name__}: {first_line}", needed=name == "local")
    works, told = result.status == "optimal", f"a tiny fit ended {result.status} in {time.monotonic() - began:.1f} s"
    if name == "mpi" and (ranks := Mpi().ranks) == 1:
        # Without mpiexec there is one rank, in this process: that says little of the ranks that it would start.
        beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        launcher = shutil.which("mpiexec", path=beside)
        works = works and launcher is not None
        told += f", in {ranks} rank; " + (f"more with {launcher} -n" if launcher else "there is no mpiexec for more")
    return Finding(f"engine {name}", works, told, needed=name == "local")
