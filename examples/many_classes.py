"""Handwritten digits at six schools: one low-rank classifier of all ten classes, without moving a
picture.

python examples/many_classes.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import coterie as co


def main() -> None:
    """Fit multinomial logistic regression with a bound on the trace norm, by the paper's method and
    by ours.
    """
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16.0 - 0.3, y, test_size=0.3, random_state=0)
    schools = [(X[k::6], y[k::6]) for k in range(6)]
    problem = co.Problem(loss="multinomial", penalty="traceball", radius=60.0)
    print(
        f"{len(schools)} schools, {len(y)} pictures of {X.shape[1]} pixels, {len(np.unique(y))} "
        "classes."
    )

    print("method          rounds    MB    gap/P(0)   rank   right   among the best two")
    for name, rounds in (("dfw-trace", 60), ("dfw-subspace", 60)):
        result = co.solve(
            problem, schools, method=name, max_rounds=rounds, tol=1e-4, check_every=10
        )
        model = result.model
        right = np.mean(model.predict(X_test) == y_test)
        second = np.mean((model.top_k(X_test, 2) == y_test[:, None]).any(axis=1))
        print(
            f"{name:14s} {result.rounds:7d} {result.bill.bits / 8e6:5.1f} "
            f"{result.certificate.relative_gap:11.1e} "
            f"{model.rank_:6d} {right:7.1%} {second:13.1%}"
        )
    print(result.certificate.proves)


if __name__ == "__main__":
    main()
