"""Twenty phones learn what their owners like. Nobody knows who is alike; rows never leave a phone.

Every owner likes points on one of the two moons, turned to one of four angles. Ten rows a phone are too few to learn
alone, and one model for all fits nobody; phones that find others like theirs do better.

python examples/phones.py
"""

from __future__ import annotations

import numpy as np

from coterie.data import datasets
from coterie.estimators import PersonalizedClassifier


def main() -> None:
    """Learn alone, all together, and with those who are alike."""
    data = datasets.moons(extra="zeros", columns=6, seed=1)
    assert data.test is not None
    train, test = (np.isin(data.extras[f"user_{part}"], np.arange(0, 100, 5) + 1) for part in ("train", "test"))
    users, unseen = data.extras["user_train"][train], data.extras["user_test"][test]
    X, y, new_X, new_y = data.train.X[train], data.train.y[train], data.test.X[test], data.test.y[test]

    fitted = {}
    for method, words in (("local", "alone"), ("global", "one model for all"), ("dada", "with those alike")):
        model = PersonalizedClassifier(method=method, mu=3.0, sample=5, tol=0.05, max_rounds=300)
        fitted[method] = model.fit(X, y, users)
        bits = model.bill_.bits / len(model.users_)
        print(f"{words:18s} {model.score(new_X, new_y, unseen):.1%} right on unseen rows, {bits / 8e3:.0f} kB a phone")

    cluster, graph = data.extras["clusters"], fitted["dada"].graph_
    weight = {True: 0.0, False: 0.0}
    for one, other, w in graph.edges(data="weight"):
        weight[bool(cluster[int(one)] == cluster[int(other)])] += w
    print(f"{weight[True] / sum(weight.values()):.0%} of the learned weight joins phones of the same kind.")
    print(fitted["dada"].certificate_.proves)


if __name__ == "__main__":
    main()
