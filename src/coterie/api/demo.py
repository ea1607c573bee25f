"""The demo: eight hospitals, one model. Data that scikit-learn ships, so nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie.api.result import Result
from coterie.data import Table
from coterie.problems.problem import Problem

STORY = (
    "[bold]Eight hospitals[/bold] each hold some of 569 tumour biopsies (30 measurements, "
    "malignant or benign). No hospital shows its patients to another. Together they fit one model "
    "that distinguishes malignant from benign (an l2-regularised logistic regression): in each "
    "round they send "
    "only sums to a server, which adds them up.\n"
)
STRENGTH = 1e-2


def demo_problem() -> tuple[str, Problem, list[Table], Callable[[Result], str]]:
    """Make the story, the problem, the data of eight parties, and a function that compares a result
    with the fit of the pooled data.
    """
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression

    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    owner = np.random.default_rng(0).integers(0, 8, len(y))
    columns = tuple(str(name) for name in load_breast_cancer().feature_names)
    parties = []
    for k in range(8):
        own = owner == k
        labels = y[own].astype(float)
        parties.append(Table(X[own], labels, columns=columns, name=f"hospital {k + 1}"))
    problem = Problem(loss="logistic", penalty="l2", strength=STRENGTH, intercept=True)

    def check(result: Result) -> str:
        pooled = LogisticRegression(C=1 / (STRENGTH * len(y)), tol=1e-10, max_iter=10_000)
        pooled.fit(X, y)
        apart = np.abs(pooled.coef_[0] - result.model.coef_).max()
        right = float(np.mean(result.model.predict(X) == y))
        return (
            "Had they pooled everything, scikit-learn's coefficients would differ by at most "
            f"{apart:.1e}; {right:.1%} of the biopsies are classified correctly."
        )

    return STORY, problem, parties, check
