"""A party with valid keys that sends wrong numbers while predicting: it is named, and nothing is
written.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from coterie.run.statuses import Status
from tests.harness.parties import NAMES, data, together, write_data, write_study

pytestmark = pytest.mark.chaos

LIAR = """
import sys
import numpy as np
from coterie.cli import main
from coterie.study import prediction as party
from coterie.transport.driver import Driver

honest = party.raw_scores
lies = {
    "nan": lambda scores: np.where(np.arange(len(scores)) == 3, np.nan, scores),
    "inf": lambda scores: scores + np.inf,
    "one number": lambda scores: scores[:1],
    "too short": lambda scores: scores[:-1],
    "bytes": lambda scores: np.zeros(len(scores), np.uint8),
}
# The party checks its own numbers, too; this one does not.
Driver._check = lambda *about: None
lie = lies[sys.argv.pop()]
party._partial_scores = lambda model, site: lie(honest(model, site.data))
main()
"""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = write_study(tmp_path_factory.mktemp("fitted"), network="path", deadline=20.0)
    write_data(folder, data())
    assert all(result.status.success for result in together(folder))
    return folder


LONG = [
    pytest.param(lie, marks=pytest.mark.slow) for lie in ("one number", "inf", "too short", "bytes")
]


@pytest.mark.parametrize("lie", ["nan", *LONG])
def test_wrong_scores_are_refused_by_name_and_nothing_is_written(fitted, tmp_path, lie):
    liar = "cyd"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    running = {}
    for name in NAMES:
        command = ["-c", LIAR] if name == liar else ["-m", "coterie"]
        command += [
            "predict",
            fitted / name / "party.toml",
            fitted / name / "data.csv",
            "-o",
            tmp_path / f"{name}.csv",
            "--yes",
        ]
        command += [lie] if name == liar else []
        running[name] = subprocess.Popen(
            [sys.executable, *map(str, command)], stderr=subprocess.PIPE, text=True, env=environment
        )
    said = {name: process.communicate(timeout=280)[1] for name, process in running.items()}
    assert {running[name].returncode for name in NAMES} == {Status.PROTOCOL_ERROR.exit_code}, said
    # Scores travel from cyd by way of bea to ada: bea finds out, and ada hears of it.
    for honest in ("ada", "bea"):
        assert "cyd" in said[honest]
        assert "finite" in said[honest] or "expected" in said[honest]
    assert not list(tmp_path.glob("*.csv"))
