"""Fits of every kind, split and loss, with and without intercept, offset, weights and preparation,
to tables that are here or at workers: both must come to the same model.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

import coterie as co
from coterie.numerics.losses import LOSSES
from tests.harness.labels import labels_for

RNG = np.random.default_rng(11)
N = 48
X = RNG.normal(3.0, 1.0, (N, 5)) * [1.0, 2.0, 0.5, 1.0, 3.0] + [0.0, 5.0, 0.0, -4.0, 1.0]
SCORES = (X - X.mean(axis=0)) @ [1.0, -0.5, 1.0, 0.3, 0.1] + 0.3 * RNG.standard_normal(N)
NUMBERS = SCORES + 5.0
WEIGHTS = RNG.uniform(0.5, 2.0, N)
OFFSETS = RNG.uniform(-0.5, 0.5, N)
PLACES = np.digitize(SCORES, [-0.7, 0.7])
NOISE = RNG.integers(0, 3, N)
TIMES = co.survival_labels(
    np.ceil(4 * np.exp(SCORES / 4)), RNG.random(N) < 0.7, strata=np.arange(N) % 2
)
NAMES = ("age", "dose", "height", "pulse", "pressure")
RECIPES = ["impute, standardise", "dose: spline(3)"]
COLUMNS = [[0, 3], [4, 1], [2]]
"""Which columns each party has: not one after the other."""


@dataclass(frozen=True)
class Case:
    """One fit."""

    kind: str
    loss: str
    split: str = "samples"
    intercept: bool = True
    offset: bool = False
    weights: bool = False
    prepare: bool = False
    noisy: bool = False
    """Whether classes are drawn at random, so that no columns separate them."""

    @property
    def id(self) -> str:
        """What a test calls it."""
        parts = [
            part for part in ("intercept", "offset", "weights", "prepare") if getattr(self, part)
        ]
        return " ".join([self.kind, self.loss, self.split, *parts])

    @property
    def problem(self) -> Any:
        """What is minimised."""
        if self.kind == "linear":
            return co.Problem(self.loss, "l2", 0.01, intercept=self.intercept)
        if self.kind == "multiclass":
            return co.Problem("multinomial", "l2", 0.01, intercept=self.intercept)
        if self.kind == "survival":
            return co.Problem("cox", "l2", 0.01, intercept=False)
        if self.kind == "low-rank":
            more: dict[str, Any] = {"shape": (8, 6)} if self.loss == "completion" else {}
            return co.Problem(self.loss, "traceball", radius=4.0, intercept=self.intercept, **more)
        if self.kind == "shared":
            return co.Shared(self.loss, "l2", 0.01, mu=0.05, intercept=self.intercept)
        return co.Personal(self.loss, mu=0.5)

    @property
    def settings(self) -> dict[str, Any]:
        """What `solve` is told."""
        settings: dict[str, Any] = {"split": self.split, "progress": False, "max_rounds": 60}
        if self.kind == "personal":
            settings |= {"max_rounds": 4, "network": "ring" if self.loss == "linear" else None}
        if self.kind == "low-rank":
            settings["max_rounds"] = 6
        if self.prepare:
            settings["prepare"] = RECIPES
        return settings

    @property
    def labels(self) -> Any:
        """One a row, or several."""
        if self.kind == "multiclass" or (self.kind, self.loss) == ("low-rank", "multinomial"):
            return NOISE if self.noisy else PLACES
        if self.kind == "survival":
            return TIMES
        if self.kind == "personal":
            return np.where(SCORES > 0, "yes", "no")
        if self.kind == "low-rank":
            return NUMBERS if self.loss == "completion" else np.column_stack([NUMBERS, 2 - SCORES])
        signs = np.where(SCORES > 0, 1, 0)
        return labels_for(self.loss, NUMBERS, signs)

    @property
    def rows(self) -> Any:
        """X of all parties together."""
        if self.loss == "completion":
            return np.array([[k % 8, k % 6] for k in range(N)], float)
        rows = X.copy()
        if self.prepare:
            rows[::7, 2] = np.nan
        return rows

    def whole(self) -> co.Table:
        """All that the parties have together."""
        return co.Table(
            self.rows,
            self.labels,
            weights=WEIGHTS if self.weights else None,
            offset=OFFSETS if self.offset else None,
            columns=None if self.loss == "completion" else NAMES,
        )

    @functools.cache  # noqa: B019
    def tables(self) -> list[co.Table]:
        """One for each party."""
        if self.split == "features":
            return co.data.split(self.whole(), "features", COLUMNS)
        if self.split == "users":
            return co.data.split(
                self.whole(), "users", np.array(["ann", "bob", "cleo"])[np.arange(N) % 3]
            )
        return co.data.split(self.whole(), "samples", 3)

    def sources(self) -> list[Any]:
        """The same, to be read where each agent lives."""
        return [functools.partial(same, table) for table in self.tables()]

    def fit(self, engine: Any, **more: Any) -> co.Result:
        """The fit on that engine: to tables that are here on "local", else to those at workers."""
        data = self.tables() if engine == "local" else self.sources()
        return co.solve(self.problem, data, engine=engine, **{**self.settings, **more})

    def predictions(self, model: Any) -> list[Any]:
        """What a model says of all rows."""
        if self.split == "users":
            users = np.array(["ann", "bob", "cleo"])[np.arange(N) % 3]
            return [model.predict(X, users), model.decision_function(X, users)]
        rows = co.Table(self.rows, columns=NAMES) if self.prepare else self.rows
        if self.loss == "completion":
            return [model.predict(rows)]
        more = {"offset": OFFSETS} if self.offset else {}
        return [part(rows, **more) for part in (model.predict, model.decision_function)]


def same(thing: Any) -> Any:
    """The thing: a source that holds what it gives."""
    return thing


def _every(kind: str, losses: Any, splits: Any, **parts: Any) -> list[Case]:
    names = ("intercept", "offset", "weights", "prepare")
    choices = [parts.get(name, (False, True)) for name in names]
    return [
        Case(kind, loss, split, **dict(zip(names, chosen, strict=True)))
        for loss, split, chosen in itertools.product(losses, splits, itertools.product(*choices))
    ]


NO = (False,)
GRID = [
    *_every("linear", LOSSES, ("samples", "features")),
    *_every("multiclass", ["multinomial"], ["samples"], offset=NO),
    *_every("survival", ["cox"], ["samples"], intercept=NO),
    *_every(
        "low-rank", ["squared", "multinomial", "completion"], ["samples"], offset=NO, prepare=NO
    ),
    *_every("shared", ["squared", "logistic", "poisson"], ["users"], offset=NO, prepare=NO),
    *_every(
        "personal", ["stumps", "linear"], ["users"], intercept=NO, offset=NO, weights=NO, prepare=NO
    ),
]
"""All of them."""
FEW = [case for place, case in enumerate(GRID) if place % 9 == 5 or case.kind == "personal"]
"""Some of every kind, split and loss, with other parts for each."""
CLUSTER = [
    Case("linear", "squared", "features", weights=True, offset=True),
    Case("linear", "logistic", "features", prepare=True),
    Case("multiclass", "multinomial", weights=True, prepare=True),
    Case("low-rank", "completion"),
    Case("shared", "logistic", "users"),
    Case("personal", "stumps", "users", intercept=False),
]
"""For engines on which a run takes a second."""


def told(case: Case, result: co.Result) -> tuple[Any, list[Any]]:
    """What a test compares of a result: settings, names and counts; and what the model says of all
    rows.
    """
    return plain(result), case.predictions(result.model)


def plain(result: co.Result) -> Any:
    """All of a result that must be the same on every engine, without the numbers of the model."""
    model, certificate = result.model, result.certificate
    return {
        "status": str(result.status),
        "classes": None
        if model.classes_ is None
        else (model.classes_.dtype.kind, model.classes_.tolist()),
        "columns": model.columns,
        "preparation": None
        if getattr(model, "preparation", None) is None
        else model.preparation.state(),
        "settings": {**certificate.settings, "secure_sums": None},
        "participants": [
            (participant.name, participant.rows, participant.columns)
            for participant in certificate.participants
        ],
        "data": certificate.data_digest,
        "rounds": result.rounds,
        "network": result.network.digest,
    }
