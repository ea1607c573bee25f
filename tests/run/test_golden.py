"""Values that no refactoring may change: what a run is known by, what it sends, and what its
certificate says of it.

The numbers were recorded before the set-up of a run was shared by all ways to run; those of
personal runs changed when their settings stopped naming a loss and a penalty, and those of
"features-intercept" when diffusion began to bring columns to one unit, with one more sum, and when
the introduction began to count the rows of each class. Split by features, proofs send fewer numbers
since scores go to the agent with the labels only. Proofs of low-rank and personal models send
a few numbers more since they say what rounding can have taken away. Coefficients are not among
them: their last bits depend on the machine.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import coterie as co
from coterie.data.archives import read_archive
from coterie.numerics.arrays import digest
from coterie.report.sections.settings import problem_rows

rng = np.random.default_rng(0)
X = rng.integers(-4, 5, (24, 5)).astype(float)
Y = X @ np.arange(5.0) + rng.integers(-2, 3, 24)
SIGNS = np.where(Y > 0, "yes", "no")
USERS = np.repeat(["a", "b", "c", "d"], 6)
RING = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], float)

FEW = {"max_rounds": 3, "tol": 1e-12, "check_every": 1}
RUNS = {
    "samples": (
        co.Problem("squared", "l2", 0.1, intercept=False),
        (X, Y),
        {"agents": 3, "method": "proximal-1"},
    ),
    "samples-intercept": (
        co.Problem("logistic", "l1", 0.01, intercept=True),
        (X, SIGNS),
        {"agents": 3, "method": "proximal-1"},
    ),
    "samples-ring": (
        co.Problem("huber", "l2", 0.1, threshold=1.0, intercept=False),
        (X, Y),
        {"agents": 4, "network": "ring", "method": "consensus"},
    ),
    "features": (
        co.Problem("squared", "l1", 0.1, intercept=False),
        (X, Y),
        {"agents": 2, "split": "features", "method": "graph-cp"},
    ),
    "features-intercept": (
        co.Problem("logistic", "l2", 0.1, intercept=True),
        (X, SIGNS),
        {"agents": [[4, 0], [1, 2, 3]], "split": "features", "method": "diffusion"},
    ),
    "low-rank": (
        co.Problem("multinomial", "traceball", radius=3.0),
        (X, USERS),
        {"agents": 3, "method": "dfw-trace"},
    ),
    "personal-learned": (
        co.Personal(count=8, beta=2.0),
        (X, SIGNS, USERS),
        {"split": "users", "method": "dada"},
    ),
    "personal-l2": (
        co.Personal("linear", beta=2.0, norm="l2"),
        (X, SIGNS, USERS),
        {"split": "users", "method": "dada-linear"},
    ),
    "personal-given": (
        co.Personal("linear", beta=2.0, mu=0.5),
        (X, SIGNS, USERS),
        {"split": "users", "network": RING, "method": "dada"},
    ),
}
KNOWN = {
    "samples": ("3ad2333945332114", "17eda802388182f8", 60, 28800),
    "samples-intercept": ("45d187e698f1c9e5", "38456c27d1d48c35", 102, 39168),
    "samples-ring": ("05b3b47e0382a23c", "4840f17ca9342b29", 60, 28800),
    "features": ("d35dfc7cd749f1c4", "ac89ca4552c1e55b", 30, 29952),
    "features-intercept": ("0054bbdcd6cc0afe", "860bbd2fcea9a2af", 174, 43264),
    "low-rank": ("819243169a246006", "f2f8953885953986", 96, 50304),
    "personal-learned": ("f26e248ba632f4f9", "ab7a162f28327007", 48, 28672),
    "personal-l2": ("f619aaef5cbaf092", "4ef5993954fb38be", 48, 28672),
    "personal-given": ("30e8339479ac3e44", "b44ea523be58b954", 96, 33754),
}


def outcome(name, folder):
    problem, data, how = RUNS[name]
    result = co.solve(problem, data, checkpoint=folder, seed=3, progress=False, **FEW, **how)
    identity = read_archive(folder / "round-0000000003.npz", "snapshot")[0]["identity"]
    settings = digest(json.dumps(result.certificate.settings, sort_keys=True))
    return result, (
        identity[:16],
        settings[:16],
        result.bill.total.messages,
        result.bill.total.bits,
    )


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_is_known_by(name, tmp_path):
    assert outcome(name, tmp_path)[1] == KNOWN[name]


def test_a_personal_run_says_which_ball_it_is(tmp_path):
    result, _ = outcome("personal-l2", tmp_path)
    settings = result.certificate.settings["problem"]
    assert settings.keys() == {"intercept", "personal"}
    assert settings["personal"]["beta"] == 2.0
    assert settings["personal"]["norm"] == "l2"
    about = co.verify(result.certificate, result.model, RUNS["personal-l2"][1]).about
    written = " ".join([about, *(part for row in problem_rows(result) for part in row)])
    assert "l2 ball (radius 2.0)" in about
    assert "log-sum" in written
    assert "l1" not in written
    assert "logistic" not in written
    assert not hasattr(result.model.problem, "loss")
    assert not hasattr(result.model.problem, "penalty")
