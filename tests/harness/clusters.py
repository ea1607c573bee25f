"""What tests need to start a cluster: which engines are here, and how MPI is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.engines import ENGINES

ROOT = Path(__file__).parents[2]
MPIEXEC = shutil.which(
    "mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
)
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMP_NUM_THREADS": "1",
}


def needs(engine):
    """Skip a test where that engine is not installed."""
    reason = ENGINES[engine].missing() or (
        "there is no mpiexec" if engine == "mpi" and MPIEXEC is None else None
    )
    return pytest.mark.skipif(reason is not None, reason=str(reason))


def mpiexec(ranks, *command, flags=()):
    """Python with these arguments, in so many ranks."""
    return subprocess.Popen(
        [MPIEXEC, *flags, "-n", str(ranks), sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **MPI_ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
