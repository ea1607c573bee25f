"""A support vector machine on sparse text that is spread over ten machines; nothing is ever made dense.

python examples/sparse_text.py
"""

from __future__ import annotations

import numpy as np

import coterie as co
from coterie.data import datasets


def main() -> None:
    """Fit the hinge loss on synthetic text, and watch the gap fall while the bill grows."""
    text = datasets.text_like(rows=6000, columns=3000, nonzeros=200_000, seed=0).train
    train, test = text.take_rows(np.arange(5000)), text.take_rows(np.arange(5000, 6000))
    share = train.X.nnz / (train.n * train.d)
    print(f"{train.n} documents, {train.d} words, {share:.1%} of the cells filled.")

    result = co.solve(co.Problem(loss="hinge", penalty="l2", strength=1e-3), train, agents=10, tol=1e-3)
    print(f"{result.status}: {result.status.advice}")
    print("round   sent (MB)   at most this far from the best objective")
    for row in result.history[:: max(1, len(result.history) // 8)]:
        print(f"{row.round:5d}   {row.bits / 8e6:9.2f}   {row.gap:.2e}")
    print(result.certificate.proves)
    right = np.mean(result.model.predict(test.X) == test.y)
    print(f"{right:.1%} of {test.n} unseen documents classified right.")


if __name__ == "__main__":
    main()
