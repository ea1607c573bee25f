"""A support vector machine on sparse text that is spread over ten machines; nothing is ever made
dense.

python examples/sparse_text.py
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

import coterie as co


def documents(rows: int, words: int, each: int, seed: int = 0) -> co.Table:
    """Documents of two kinds that use common words alike and have words of their own, as rows of
    length 1.
    """
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(rows) < 0.3, 1.0, -1.0)
    taste, common = 0.5 * rng.standard_normal(words), 1.0 / (np.arange(words) + 10.0)
    cells = []
    for kind in (-1.0, 1.0):
        local, chances = np.flatnonzero(y == kind), np.exp(kind * taste) * common
        spoken = rng.choice(words, (len(local), each), p=chances / chances.sum())
        cells.append(np.stack([np.repeat(local, each), spoken.ravel()]))
    counts = sp.csr_array((np.ones(rows * each), np.hstack(cells)), shape=(rows, words))
    lengths = np.sqrt(counts.multiply(counts).sum(axis=1))
    return co.Table(sp.csr_array(sp.diags_array(1.0 / lengths) @ counts), y, name="text")


def main() -> None:
    """Fit the hinge loss on synthetic text, and watch the gap fall while the bill grows."""
    text = documents(rows=6000, words=3000, each=40)
    train, test = text.take_rows(np.arange(5000)), text.take_rows(np.arange(5000, 6000))
    share = train.X.nnz / (train.n * train.d)
    print(f"{train.n} documents, {train.d} words, {share:.1%} of the cells filled.")

    result = co.solve(
        co.Problem(loss="hinge", penalty="l2", strength=1e-3, intercept=False),
        train,
        agents=10,
        tol=1e-3,
    )
    print(f"{result.status}: {result.status.advice}")
    print("round   sent (MB)   at most this far from the best objective")
    for row in result.history[:: max(1, len(result.history) // 8)]:
        print(f"{row.round:5d}   {row.bits / 8e6:9.2f}   {row.gap:.2e}")
    print(result.certificate.proves)
    right = np.mean(result.model.predict(test.X) == test.y)
    print(f"{right:.1%} of {test.n} unseen documents classified right.")


if __name__ == "__main__":
    main()
