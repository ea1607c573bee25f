"""Many classes: certified softmax regression beside scikit-learn's, both to a checked relative gap
of 1e-6.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.linear_model import LogisticRegression

import coterie as co
from papers import datasets

AGENTS, ENOUGH = 8, 1e-6
TOLERANCES = (1e-4, 1e-5, 1e-6, 1e-7)


def letters() -> tuple[np.ndarray, np.ndarray]:
    """20,000 rows of 16 columns in 26 classes: two clouds a class, so that no model is perfect."""
    rng = np.random.default_rng(0)
    centres = 1.5 * rng.standard_normal((26, 2, 16))
    y, which = rng.integers(26, size=20_000), rng.integers(2, size=20_000)
    return centres[y, which] + rng.standard_normal((20_000, 16)), y


def digits() -> tuple[np.ndarray, np.ndarray]:
    """MNIST as it is: 60,000 rows of 784 pixels."""
    train = datasets.mnist().train
    return np.ascontiguousarray(train.X, dtype=float), train.y.astype(int)


PROBLEMS: dict[str, tuple[Callable[[], tuple[np.ndarray, np.ndarray]], float]] = {
    "26 classes, 20000 × 16": (letters, 1e-4),
    "MNIST, 10 classes, 60000 × 784": (digits, 1e-3),
}
"""The data and the strength of l2."""


def objective(X: np.ndarray, y: np.ndarray, W: np.ndarray, b: np.ndarray, strength: float) -> float:
    """The mean of log Σ e^{u_c} − u_y over the rows, and ½ λ ‖W‖²."""
    scores = X @ W.T + b
    top = scores.max(axis=1)
    losses = top + np.log(np.exp(scores - top[:, None]).sum(axis=1)) - scores[np.arange(len(y)), y]
    return float(losses.mean()) + 0.5 * strength * float((W * W).sum())


def measured(name: str, turns: int) -> Iterator[dict[str, float | str]]:
    """A row for us and one for scikit-learn, asked for more and more until it is as near to our
    lower bound.
    """
    make, strength = PROBLEMS[name]
    X, y = make()
    problem = co.Problem("multinomial", "l2", strength, intercept=True)
    ours, theirs = [], []
    for _ in range(turns):
        began = time.process_time()
        proof = co.solve(problem, (X, y), agents=AGENTS, tol=ENOUGH / 2, progress=False).certificate
        ours.append(time.process_time() - began)
    needed = TOLERANCES[0]
    for _ in range(turns):
        for tol in TOLERANCES[TOLERANCES.index(needed) :]:
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = LogisticRegression(C=1 / (strength * len(y)), tol=tol, max_iter=10_000).fit(
                    X, y
                )
            spent = time.process_time() - began
            value = objective(X, y, model.coef_, model.intercept_, strength)
            if value - proof.dual <= ENOUGH * proof.unit:
                break
        needed = tol
        theirs.append(spent)
    for who, seconds in (("Coterie", min(ours)), ("scikit-learn lbfgs", min(theirs))):
        yield {
            "table": "softmax",
            "problem": name,
            "solver": who,
            "seconds": seconds,
            "ratio": seconds / min(theirs),
        }
