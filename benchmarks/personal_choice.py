"""The default `PersonalizedClassifier` beside pooled logistic regressions and one per user:
accuracy, seconds, bits.

    python benchmarks/personal_choice.py [--seeds 3] [--only har,levels] [--method shared] [-o
    rows.jsonl]

The others are scikit-learn's `LogisticRegression` with its default strength, on standardised
columns: of everybody's rows, of these with a column per user, and of each user's own. Accuracy is
that of test rows, averaged over users; test rows are 30 % of every user's, and for Moons those of
the paper. Seconds are processor time, the choice included, and so are bits.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).parents[1]))  # for papers/

import coterie as co
from benchmarks.personal_data import MADE, Rows, halves
from papers import datasets
from papers.datasets import Dataset


def _both(data: Dataset) -> Rows:
    """All rows of a data set that comes in two parts."""
    assert data.test is not None
    return (
        np.vstack([data.train.X, data.test.X]),
        np.concatenate([data.train.y, data.test.y]),
        np.concatenate([data.extras["user_train"], data.extras["user_test"]]),
    )


def _moons(seed: int) -> tuple[Rows, Rows]:
    data = datasets.moons(seed=seed)
    assert data.test is not None
    return (data.train.X, data.train.y, data.extras["user_train"]), (
        data.test.X,
        data.test.y,
        data.extras["user_test"],
    )


def parts(name: str, seed: int) -> tuple[Rows, Rows]:
    """Training rows and test rows of one data set, in units in which the training columns have
    variance 1.
    """
    if name == "moons":
        train, test = _moons(seed)
    elif name in MADE:
        train, test = halves(MADE[name](seed), seed)
    else:
        made = {
            "har": datasets.har_stairs,
            "school": lambda: datasets.school(0, 20.0),
            "computers": lambda: datasets.computer_buyers(5.0),
        }
        train, test = halves(_both(made[name]()), seed)
    mean, spread = train[0].mean(axis=0), train[0].std(axis=0)
    spread[spread == 0] = 1.0
    scaled = [((X - mean) / spread, y, users) for X, y, users in (train, test)]
    return scaled[0], scaled[1]


NAMES = ("har", "school", "computers", "moons", *MADE)


def per_user(found: npt.NDArray[Any], test: Rows) -> float:
    """The share of right answers, averaged over users."""
    _, y, users = test
    return float(
        np.mean([np.mean(found[users == user] == y[users == user]) for user in np.unique(users)])
    )


def others(train: Rows, test: Rows) -> dict[str, float]:
    """What logistic regressions get right."""
    (X, y, users), (Xt, _, ut) = train, test
    everybody = np.unique(users)
    columns, theirs = (np.asarray(one[:, None] == everybody, float) for one in (users, ut))
    pooled = LogisticRegression(max_iter=2000).fit(X, y).predict(Xt)
    wide = (
        LogisticRegression(max_iter=2000)
        .fit(np.hstack([X, columns]), y)
        .predict(np.hstack([Xt, theirs]))
    )
    own = np.zeros(len(ut))
    for user in np.unique(ut):
        mine, local = users == user, ut == user
        one = len(np.unique(y[mine])) < 2
        own[local] = (
            y[mine][0]
            if one
            else LogisticRegression(max_iter=2000).fit(X[mine], y[mine]).predict(Xt[local])
        )
    found = {"pooled": pooled, "pooled + column per user": wide, "per user": own}
    return {name: per_user(one, test) for name, one in found.items()}


def measured(
    names: list[str], seeds: Iterable[int], method: str = "auto"
) -> Iterator[dict[str, Any]]:
    """One row for every data set and seed."""
    for seed in seeds:
        for name in names:
            train, test = parts(name, seed)
            began = time.process_time()
            model = co.PersonalizedClassifier(method=method, random_state=seed).fit(*train)
            seconds = time.process_time() - began
            bits = model.bill_.total.bits + sum(trial["bits"] for trial in model.trials_)
            ours = per_user(model.predict(test[0], test[2]), test)
            sizes = {
                "users": len(np.unique(train[2])),
                "rows": len(train[1]),
                "columns": train[0].shape[1],
            }
            row = {
                "data": name,
                "seed": seed,
                **sizes,
                "choice": model.choice_,
                "default": ours,
                **others(train, test),
            }
            yield {**row, "seconds": seconds, "bits": bits, "status": str(model.result_.status)}


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument(
        "--first", type=int, default=0, help="the first seed, to go on where a run ended"
    )
    options.add_argument("--method", default="auto", help="shared: choose among linear models only")
    options.add_argument("--only", default=",".join(NAMES))
    options.add_argument("-o", type=Path)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    for row in measured(given.only.split(","), range(given.first, given.seeds), given.method):
        line = json.dumps(row)
        print(line, flush=True)
        if given.o is not None:
            with given.o.open("a") as file:
                file.write(line + "\n")
