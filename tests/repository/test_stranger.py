"""What somebody new does first, on an empty machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "strangers_path.py"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_readme_from_top_to_bottom_on_an_empty_machine(tmp_path):
    if not (SCRIPT.parents[1] / ".git").exists():
        pytest.skip("needs a checkout to clone")
    walked = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "empty"], capture_output=True, text=True
    )
    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert walked.stdout.count("as told") >= 4
