"""Data of many users, made by rules that are written down here: what personal models are compared
on beside real data.

Each rule is a function of a seed that gives rows, labels −1 and +1, and the user of each row. They
were written and committed before the methods that are measured on them were tuned, and are not to
be changed after a measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Rows: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.intp]]
Generator: TypeAlias = Callable[[int], Rows]


def _users(rng: np.random.Generator, users: int, least: int, most: int) -> npt.NDArray[np.intp]:
    return np.repeat(np.arange(users), rng.integers(least, most, users, endpoint=True))


def _labelled(rng: np.random.Generator, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """+1 with the probability of a logistic model."""
    return np.where(rng.random(len(scores)) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)


def alike(seed: int) -> Rows:
    """All users follow one linear rule."""
    rng = np.random.default_rng([1, seed])
    users = _users(rng, 30, 20, 40)
    X = rng.standard_normal((len(users), 10))
    return X, _labelled(rng, 2 * X @ rng.standard_normal(10) / 2), users


def levels(seed: int) -> Rows:
    """One linear rule, and a level of its own for every user."""
    rng = np.random.default_rng([2, seed])
    users = _users(rng, 40, 20, 40)
    X = rng.standard_normal((len(users), 8))
    return X, _labelled(rng, X @ rng.standard_normal(8) + 2 * rng.standard_normal(40)[users]), users


def deviations(seed: int) -> Rows:
    """A common linear rule, from which every user deviates a little in every column."""
    rng = np.random.default_rng([3, seed])
    users = _users(rng, 30, 30, 60)
    X = rng.standard_normal((len(users), 10))
    own = rng.standard_normal(10) + 0.6 * rng.standard_normal((30, 10))
    return X, _labelled(rng, 1.5 * (X * own[users]).sum(axis=1)), users


def camps(seed: int) -> Rows:
    """Four camps of users with a linear rule each."""
    rng = np.random.default_rng([4, seed])
    users = _users(rng, 40, 15, 30)
    X = rng.standard_normal((len(users), 6))
    own = 3 * rng.standard_normal((4, 6))[np.arange(40) % 4]
    return X, _labelled(rng, (X * own[users]).sum(axis=1)), users


def strangers(seed: int) -> Rows:
    """Every user follows a linear rule of its own."""
    rng = np.random.default_rng([5, seed])
    users = _users(rng, 20, 60, 120)
    X = rng.standard_normal((len(users), 5))
    own = 2 * rng.standard_normal((20, 5))
    return X, _labelled(rng, (X * own[users]).sum(axis=1)), users


def one_column(seed: int) -> Rows:
    """A common linear rule; in one column, users disagree about the sign."""
    rng = np.random.default_rng([6, seed])
    users = _users(rng, 30, 20, 50)
    X = rng.standard_normal((len(users), 12))
    own = np.tile(rng.standard_normal(12), (30, 1))
    own[:, 0] = 2 * rng.choice([-1.0, 1.0], 30)
    return X, _labelled(rng, (X * own[users]).sum(axis=1)), users


def wide(seed: int) -> Rows:
    """More columns than rows of a user: 60, of which six count, the same for all; and levels."""
    rng = np.random.default_rng([7, seed])
    users = _users(rng, 30, 10, 25)
    X = rng.standard_normal((len(users), 60))
    common = np.zeros(60)
    common[:6] = 1.5 * rng.choice([-1.0, 1.0], 6)
    return X, _labelled(rng, X @ common + rng.standard_normal(30)[users]), users


def uneven(seed: int) -> Rows:
    """Users with four to three hundred rows, who deviate from a common linear rule."""
    rng = np.random.default_rng([8, seed])
    sizes = np.geomspace(4, 300, 30).astype(int)
    users = np.repeat(np.arange(30), sizes)
    X = rng.standard_normal((len(users), 8))
    own = rng.standard_normal(8) + 0.8 * rng.standard_normal((30, 8))
    return X, _labelled(rng, 1.5 * (X * own[users]).sum(axis=1)), users


def opposed(seed: int) -> Rows:
    """Two camps of users with opposite signs of one linear rule."""
    rng = np.random.default_rng([9, seed])
    users = _users(rng, 30, 15, 30)
    X = rng.standard_normal((len(users), 6))
    sign = np.where(np.arange(30) % 2 == 0, 1.0, -1.0)
    return X, _labelled(rng, 2 * sign[users] * (X @ rng.standard_normal(6))), users


def rare(seed: int) -> Rows:
    """About a tenth of the labels is +1, more at some users and less at others."""
    rng = np.random.default_rng([10, seed])
    users = _users(rng, 30, 30, 60)
    X = rng.standard_normal((len(users), 8))
    return (
        X,
        _labelled(rng, X @ rng.standard_normal(8) - 3.5 + 1.5 * rng.standard_normal(30)[users]),
        users,
    )


def boxes(seed: int) -> Rows:
    """One rule for all that no linear model knows: inside a box or outside of it."""
    rng = np.random.default_rng([11, seed])
    users = _users(rng, 30, 20, 40)
    X = rng.uniform(-1, 1, (len(users), 6))
    y = np.where((np.abs(X[:, :2]) < 0.7).all(axis=1), 1.0, -1.0)
    y[rng.random(len(y)) < 0.05] *= -1
    return X, y, users


MADE: dict[str, Generator] = {
    rule.__name__: rule
    for rule in (
        alike,
        levels,
        deviations,
        camps,
        strangers,
        one_column,
        wide,
        uneven,
        opposed,
        rare,
        boxes,
    )
}


def halves(rows: Rows, seed: int, share: float = 0.3) -> tuple[Rows, Rows]:
    """Training rows and test rows, of every user that share; users with one row learn from it."""
    X, y, users = rows
    rng = np.random.default_rng([20, seed])
    test = np.zeros(len(y), bool)
    for user in np.unique(users):
        local = np.flatnonzero(users == user)
        test[rng.permutation(local)[: int(share * len(local))]] = True

    def part(kept: Any) -> Rows:
        return X[kept], y[kept], users[kept]

    return part(~test), part(test)
