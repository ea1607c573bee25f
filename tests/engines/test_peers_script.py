"""A script that starts processes, and has no guard for the processes that import it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("grpc")

SCRIPT = """
import numpy as np

import coterie as co

X = np.random.default_rng(0).standard_normal((40, 3))
problem = co.Problem("squared", "l2", 0.1)
co.solve(problem, (X, X[:, 0]), agents=2, engine="peers", progress=False)
"""


def test_a_script_without_a_guard_is_told_to_write_one(tmp_path):
    file = tmp_path / "fit.py"
    file.write_text(SCRIPT)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "if __name__ == '__main__':" in done.stderr
