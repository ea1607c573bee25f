"""Twenty phones learn what their owners like. Nobody knows who is alike; rows never leave a phone.

Every owner likes points on one of the two moons, turned to one of four angles. Ten rows a phone are
too few to learn alone, and one model for all fits nobody; phones that find others like theirs do
better.

python examples/phones.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_moons

from coterie.estimators import PersonalizedClassifier

PHONES, ANGLES = 20, np.deg2rad([45, 135, 225, 315])


def rows_of_phones(
    rng: np.random.Generator, rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """So many rows a phone (two columns that matter, four that do not), what its owner likes, and
    whose row it is.
    """
    X, y = np.zeros((PHONES * rows, 6)), np.empty(PHONES * rows)
    for phone in range(PHONES):
        local = slice(phone * rows, (phone + 1) * rows)
        points, side = make_moons(rows, noise=0.1, random_state=int(rng.integers(2**31)))
        angle = ANGLES[phone % 4]
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        X[local, :2], y[local] = points @ turn.T, np.where(side == 1, 1.0, -1.0)
    return X, y, np.repeat(np.arange(PHONES), rows)


def main() -> None:
    """Learn alone, all together, and with those who are alike."""
    rng = np.random.default_rng(1)
    (X, y, users), (new_X, new_y, unseen) = rows_of_phones(rng, 10), rows_of_phones(rng, 100)

    fitted = {}
    for method, words in (
        ("local", "alone"),
        ("global", "one model for all"),
        ("dada", "with those alike"),
    ):
        model = PersonalizedClassifier(method=method, mu=3.0, sample=5, tol=0.05, max_rounds=300)
        fitted[method] = model.fit(X, y, users)
        bits = model.bill_.bits / len(model.users_)
        print(
            f"{words:18s} {model.score(new_X, new_y, unseen):.1%} right on unseen rows, "
            f"{bits / 8e3:.0f} kB a phone"
        )

    weight = {True: 0.0, False: 0.0}
    for one, other, w in fitted["dada"].graph_.edges(data="weight"):
        weight[int(one) % 4 == int(other) % 4] += w
    print(
        f"{weight[True] / sum(weight.values()):.0%} of the learned weight joins phones of the "
        "same kind."
    )
    print(fitted["dada"].certificate_.proves)


if __name__ == "__main__":
    main()
