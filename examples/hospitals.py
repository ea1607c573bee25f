"""Three hospitals that see different patients fit one model together, and see what each would have
had alone.

The village surgery sees the small tumours, the clinic the large ones, so neither knows what the
other knows.

python examples/hospitals.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

import coterie as co

NAMES = ("village surgery", "town hospital", "cancer clinic")


def main() -> None:
    """Fit alone, fit together, compare on patients that nobody has seen."""
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    unseen, known = np.split(np.random.default_rng(0).permutation(len(y)), [169])
    by_size = known[np.argsort(X[known, 0])]
    hospitals = [
        co.Table(X[rows], y[rows], name=name)
        for name, rows in zip(NAMES, np.array_split(by_size, 3), strict=True)
    ]
    problem = co.Problem(loss="logistic", penalty="l2", strength=1e-2)

    def right(result: co.Result) -> str:
        return (
            f"{np.mean(result.model.predict(X[unseen]) == y[unseen]):.1%} of {len(unseen)} unseen "
            "patients right"
        )

    for hospital in hospitals:
        alone = co.solve(problem, [hospital])
        print(f"{hospital.name:15s}  alone, {hospital.n} patients: {right(alone)}")

    together = co.solve(problem, hospitals)
    print(f"together: {right(together)}")
    print(together.certificate.proves)
    numbers = together.bill.scalars // (2 * len(hospitals) * together.rounds)
    print(
        f"{together.rounds} rounds; in each, a hospital sent {numbers} numbers to the server and "
        "got as many back."
    )

    checked = co.verify(together.certificate, together.model, hospitals)
    print(
        "Computed again from the data, the certificate "
        f"{'holds' if checked.holds else 'does not hold'}."
    )


if __name__ == "__main__":
    main()
