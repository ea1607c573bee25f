"""Draw docs/run.svg, the picture of the README: the problem of its first example, solved by four
methods.

python scripts/run_picture.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

import coterie as co

METHODS = ("newton", "lbfgs-rows", "consensus", "proximal-2")


def main() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    problem = co.Problem(loss="logistic", penalty="l2", strength=1e-2, intercept=True)
    runs = {
        name: co.solve(problem, (scale(X), y), agents=8, method=name, check_every=1)
        for name in METHODS
    }
    with TemporaryDirectory() as folder:
        co.report.save_comparison_figures(runs, folder, "svg")
        (Path(__file__).parents[1] / "docs" / "run.svg").write_bytes(
            (Path(folder) / "compare-rounds.svg").read_bytes()
        )


if __name__ == "__main__":
    main()
