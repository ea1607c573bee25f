"""Small fits that every engine must end alike: one per method, and a few more. MPI runs this file
as a script.

mpiexec -n 4 python -m tests.harness.cluster_cases RESULTS [NAME ...]
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import coterie as co
from coterie.errors import InvalidProblem
from coterie.methods import METHODS

RNG = np.random.default_rng(7)
X = RNG.standard_normal((48, 10))
NUMBERS = X @ RNG.standard_normal(10) + 0.3 * RNG.standard_normal(48)
SIGNS = np.where(NUMBERS > 0, 1.0, -1.0)
WEIGHTS = RNG.uniform(0.5, 2.0, 48)
PAIRS = np.column_stack([NUMBERS, X @ RNG.standard_normal(10)])
KINKED = co.Problem("hinge", "l2", 0.05, intercept=False)
LOW_RANK = co.Problem("squared", "traceball", radius=3.0)
LINEAR = co.Problem("squared", "l2", 0.05, intercept=False)
SEVERAL = co.Problem("multinomial", "l2", 0.05, intercept=True)
SURVIVAL = co.Problem("cox", "l1", 0.01, agent_strata=True)
TIMES = co.survival_labels(np.ceil(4 * np.exp(NUMBERS / 4)), SIGNS > 0, strata=np.arange(48) % 2)
PLACES = np.digitize(NUMBERS, [-1.0, 1.0])
RUN: dict[str, Any] = {"agents": 4, "max_rounds": 12, "tol": 1e-13}
FEATURES = {**RUN, "split": "features", "network": "ring"}

RAW = np.column_stack([X[:, :2].astype(object), np.array(list("abc") * 16, object)])
RAW[::5, 1] = None

LINK = (1e-3, 3e6)
STALLS = co.Problem("huber", "none", intercept=True)


def wide() -> tuple[Any, Any]:
    """More columns than rows. Without a penalty, rows without curvature are all that some
    directions have, and Newton's method stalls.
    """
    rng = np.random.default_rng(1)
    X = rng.standard_normal((20, 40))
    return X, X[:, :5] @ [2.0, -1.0, 1.0, 0.5, -0.5] + 0.3 * rng.standard_normal(20)


MORE = {
    "rescued on the way": (STALLS, wide(), {"agents": 3, "link": LINK, "secure_sums": True}),
    "prepared where it lies": (
        LINEAR,
        [
            functools.partial(tuple, [RAW[rows], NUMBERS[rows]])
            for rows in np.split(np.arange(48), [20, 20, 31])
        ],
        {
            "method": "gram",
            "prepare": ["impute, min-max", "one-hot(17)", "x0: spline(3)"],
            "secure_sums": True,
        },
    ),
    "intercept, weights, float32": (
        co.Problem("logistic", "l1", 0.01, intercept=True),
        (X.astype("f4"), SIGNS, WEIGHTS),
        {**RUN, "method": "proximal-2"},
    ),
    "sparse, on a ring": (
        LINEAR,
        (sp.random_array((48, 30), density=0.2, rng=1), NUMBERS),
        {**RUN, "network": "ring", "method": "proximal-2"},
    ),
    "rare columns beside l1": (
        co.Problem("logistic", "l1", 1e-4, intercept=True),
        (
            sp.random_array((400, 2000), density=0.01, rng=1),
            np.sign(np.random.default_rng(1).standard_normal(400)),
        ),
        {"agents": 4, "method": "newton", "tol": 1e-7},
    ),
    "an empty party": (
        LINEAR,
        [(X[:20], NUMBERS[:20]), (X[:0], NUMBERS[:0]), (X[20:], NUMBERS[20:])],
        {"max_rounds": 9, "method": "cocoa"},
    ),
    "budget of bits": (
        LINEAR,
        (X, NUMBERS),
        {**FEATURES, "network": "path", "max_bits": 1e6, "max_rounds": 10_000},
    ),
    "secure sums": (
        co.Problem("logistic", "l2", 0.01, intercept=True),
        (
            np.random.default_rng(2).standard_normal((60, 100)),
            np.sign(np.random.default_rng(3).standard_normal(60)),
        ),
        {"agents": 4, "method": "newton", "tol": 1e-7, "secure_sums": True},
    ),
    "secure sums on a ring, float32": (
        LINEAR,
        (X.astype("f4"), NUMBERS.astype("f4")),
        {**RUN, "network": "ring", "method": "proximal-2", "secure_sums": True},
    ),
    "standard errors": (
        co.Problem("squared", "none", intercept=True),
        [
            functools.partial(tuple, [X[rows], NUMBERS[rows]])
            for rows in np.array_split(np.arange(48), 3)
        ],
        {"method": "gram"},
    ),
    "an offset where it lies": (
        co.Problem("poisson", "l2", 0.01, intercept=True),
        [
            functools.partial(
                tuple, [X[rows], np.floor(np.exp(NUMBERS[rows] / 3)), None, SIGNS[rows]]
            )
            for rows in np.array_split(np.arange(48), 3)
        ],
        {"method": "newton"},
    ),
    "low rank with an intercept": (
        co.Problem("multinomial", "traceball", radius=3.0, intercept=True),
        (X, PLACES, WEIGHTS),
        {"agents": 3, "max_rounds": 2, "tol": 1e-13, "check_every": 2, "method": "dfw-subspace"},
    ),
    "a matrix completed in stages": (
        co.Problem("completion", "traceball", radius=6.0, intercept=True, shape=(8, 6), stages=3),
        (np.array([[k % 8, k % 6] for k in range(48)], float), NUMBERS),
        {"agents": 3, "max_rounds": 10, "tol": 1e-13, "check_every": 10, "method": "dfw-subspace"},
    ),
    "until it is optimal": (
        co.Problem("huber", "elasticnet", 0.05, threshold=1.0, intercept=False),
        (X, NUMBERS),
        {"agents": 4, "tol": 1e-7, "method": "proximal-1"},
    ),
}


@functools.cache
def case(name: str) -> tuple[co.Problem, Any, dict[str, Any]]:
    """Problem, data and settings of that method's case, or of one of `MORE`."""
    if name in MORE:
        return MORE[name]
    settings = {**(FEATURES if METHODS[name].split == "features" else RUN), "method": name}
    if METHODS[name].split == "users":
        users: co.Problem = co.Personal(count=12)
        if METHODS[name].family == "shared":
            users = co.Shared("logistic", "l1", 0.01, mu=0.02)
        return users, (X, SIGNS, np.arange(48) % 4), {**settings, "split": "users", "agents": None}
    pairs = (
        (LINEAR, NUMBERS),
        (KINKED, SIGNS),
        (LOW_RANK, PAIRS),
        (SEVERAL, PLACES),
        (SURVIVAL, TIMES),
    )
    for problem, labels in pairs:
        try:
            co.solve(problem, (X, labels), **{**settings, "max_rounds": 0})
        except InvalidProblem:
            continue
        return problem, (X, labels), settings
    raise AssertionError(f"{name} solves none of these problems: add one that it does.")


def fit(name: str, engine: Any) -> co.Result:
    """That case on that engine."""
    problem, data, settings = case(name)
    return co.solve(problem, data, engine=engine, progress=False, **settings)


def summary(result: co.Result) -> dict[str, Any]:
    """What has to be the same on every engine."""
    coefficients = result.model.coef_
    return {
        "status": str(result.status),
        "model": result.model.digest(),
        "coefficients": coefficients.toarray()
        if sp.issparse(coefficients)
        else np.asarray(coefficients),
        "bill": result.bill.state(),
        "gaps": result.history.gap,
        "changed": result.certificate.settings.get("changed"),
        "certificate": (result.certificate.primal, result.certificate.dual),
        "witness": [np.asarray(v) for v in result.certificate.witness],
        "covariance": covariance_of(result) if asks_again(result) else None,
    }


def covariance_of(result: co.Result) -> np.ndarray:
    """Of few clusters with rows at all agents, which is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return result.inference("clustered", np.arange(48) % 12).covariance


def asks_again(result: co.Result) -> bool:
    """Whether the agents are asked for standard errors, too."""
    problem = result.model.problem
    rows = sum(party.rows for party in result.certificate.participants)
    return problem.kind.name == "linear" and problem.penalty.is_zero and rows == len(X)


def names() -> list[str]:
    """All cases: every method, and a few more."""
    return [*METHODS, *MORE]


# -- data that is read where the agents live -------------------------------------------------------


@dataclass(frozen=True)
class Loader:
    """Called where its agent lives, it gives that agent's rows, or columns with the labels at the
    first agent.
    """

    part: int
    parts: int
    split: str = "samples"
    spoilt: bool = False

    def __call__(self) -> Any:
        """What this party has."""
        cuts = np.array_split(
            np.arange(len(X) if self.split == "samples" else X.shape[1]), self.parts
        )[self.part]
        if self.split == "features":
            return (X[:, cuts], TEXT) if self.part == 0 else X[:, cuts]
        own = X[cuts].copy()
        if self.spoilt:
            own[3, 2] = np.nan
        return own, TEXT[cuts]


TEXT = np.where(SIGNS > 0, "yes", "no")
LOADERS = {
    split: [Loader(part, 3, split) for part in range(3)] for split in ("samples", "features")
}
LOADED: dict[str, Any] = {"max_rounds": 8, "tol": 1e-13}
OF_TEXT = co.Problem("logistic", "l2", 0.05, intercept=False)


def loaded_fit(split: str, engine: Any) -> co.Result:
    """A fit to data that nobody hands over."""
    method = "proximal-2" if split == "samples" else "tree"
    return co.solve(
        OF_TEXT, LOADERS[split], split=split, engine=engine, method=method, progress=False, **LOADED
    )


LONG = {
    "split": "features",
    "network": "path",
    "agents": 4,
    "method": "graph-cp",
    "tol": 1e-15,
    "check_every": 20,
}
LONG |= {"acceleration": "none", "progress": False}


PROBLEM = co.Problem("absolute", "l1", 1e-4, intercept=False)


def long_fit(engine: Any, rounds: int = 400, **settings: Any) -> co.Result:
    """A run that takes all its rounds, with a certificate now and then."""
    data = X, NUMBERS
    return co.solve(PROBLEM, data, engine=engine, max_rounds=rounds, **LONG, **settings)


def kind_of(source):
    """How a source's numbers are held."""
    X = source().X
    return getattr(X, "format", type(X).__name__), str(X.dtype)


def seen(source):
    """Where a source's numbers are held."""
    return os.getpid(), source().X.ctypes.data


class Murder:
    """A callback that kills a process once, when a certificate of that round or a later one was
    computed.
    """

    def __init__(self, victim, round=60, how=signal.SIGKILL):
        self.victim, self.round, self.how, self.done = victim, round, how, False

    def __call__(self, name, value, round):
        if round >= self.round and not self.done:
            self.done = True
            os.kill(self.victim(), self.how)


if __name__ == "__main__":
    from coterie.engines.mpi import Mpi
    from tests.harness.worker_cases import CLUSTER, told

    results = {name: summary(fit(name, "mpi")) for name in sys.argv[2:]}
    results |= {split: summary(loaded_fit(split, "mpi")) for split in LOADERS}
    results |= {case.id: told(case, case.fit("mpi", secure_sums=False)) for case in CLUSTER}
    try:
        co.solve(
            OF_TEXT,
            [replace(LOADERS["samples"][0], spoilt=True), *LOADERS["samples"][1:]],
            engine="mpi",
        )
    except co.CoterieError as error:
        results["refusal"] = str(error)
    if Mpi().writes_output:
        Path(sys.argv[1]).write_bytes(pickle.dumps(results))
