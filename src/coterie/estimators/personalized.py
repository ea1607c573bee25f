"""Estimators with one model per user, with the interface of scikit-learn."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, ClassVar

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from coterie.api.choose import choose_for, chosen_fit
from coterie.api.result import Result
from coterie.api.solve import fit
from coterie.data import Table
from coterie.errors import InvalidInput
from coterie.estimators.checked import checked
from coterie.estimators.distributed import seed_of, warn_unless_optimal
from coterie.methods import METHODS, Method
from coterie.numerics.arrays import FloatArray, is_sparse, whole_number
from coterie.problems.personal.problem import LEARNED, Personal
from coterie.problems.shared.problem import Shared
from coterie.run.settings import Algorithm, Limits, Placement, Settings
from coterie.run.tables import gather
from coterie.stats.choosing import BOOSTED, FOLDS, LINEAR
from coterie.stats.folds import deal_folds

GRIDS: dict[str, tuple[float, ...]] = {
    "beta": (1.0, 10.0, 100.0),
    "mu": (0.3, 1.0, 3.0),
    "lam": (3.0, 10.0, 30.0),
}
"""Numbers that cross-validation compares if a parameter is a single number."""

DEFAULT, ALONE = "dada", "local"
"""The default among boosted methods, and the method for a single user."""
AUTO = Algorithm.method
UNNAMED = "\x00nobody"
"""The user of rows without `users=`. It has no fitted model."""
Parameters = dict[str, float]
"""Parameters that cross-validation compared, and their `score`."""


@dataclass(eq=False, repr=False, kw_only=True)
class _Personalized(BaseEstimator):
    """The parts that estimators of a model for every user share."""

    # scikit-learn's metadata routing passes `users` to each method that gets rows.
    __metadata_request__fit: ClassVar = {"users": True}
    __metadata_request__predict: ClassVar = {"users": True}
    __metadata_request__score: ClassVar = {"users": True}

    @property
    def _loss(self) -> str:
        """The name of the loss of a common model with deviations."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _fit_linear(
        self, tables: Sequence[Table], settings: Settings, wanted: tuple[str, ...]
    ) -> Result:
        """Choose one of these candidates, and fit it to all rows."""
        penalty = {"penalty": self.penalty}
        if self.l1_ratio is not None:
            penalty["l1_ratio"] = self.l1_ratio
        folds = FOLDS if self.cv is None else self.cv
        chosen, self.choice_cost_ = choose_for(
            list(tables),
            folds=folds,
            loss=self._loss,
            penalty=penalty,
            personal=self._boosted(),
            wanted=wanted,
            settings=settings,
        )
        self.choice_ = chosen.candidate.choice
        self.trials_ = chosen.trials
        return chosen_fit(chosen, list(tables), settings)

    def _boosted(self) -> Personal | None:
        """The problem of boosted models, if they are candidates."""
        return None

    def _keep(self, result: Result) -> None:
        self.result_ = result
        self.model_ = result.model
        self.certificate_ = result.certificate
        self.bill_ = result.bill
        self.history_ = result.history
        self.dual_gap_ = result.certificate.gap
        self.n_iter_ = result.rounds
        self.users_ = np.array(self.model_.users)

    def _scores(self, X: Any, users: Any) -> FloatArray:
        check_is_fitted(self, "model_")
        X = checked(self, X, dtype=np.float64, accept_sparse="csr", reset=False)
        if users is None and len(self.model_.users) > 1 and self.unknown == "common":
            warnings.warn(
                "users= is missing, so these rows get the common model. Give "
                "users=; in searches of scikit-learn call "
                "sklearn.set_config(enable_metadata_routing=True) before.",
                UserWarning,
                stacklevel=4,
            )
            users = np.full(X.shape[0], UNNAMED)
        scores: FloatArray = self.model_.decision_function(X, users, unknown=self.unknown)
        return scores

    def _per_user(
        self, good: npt.NDArray[Any], users: Any, weights: Any = None
    ) -> dict[str, float]:
        if users is None:
            users = np.zeros(len(good), int)
        labels = np.asarray(users).astype(str)
        shares = np.ones(len(good))
        if weights is not None:
            shares = np.asarray(weights, float)
        means = {}
        for user in np.unique(labels).tolist():
            own = labels == user
            if shares[own].sum() > 0:
                means[user] = float(np.average(good[own], weights=shares[own]))
        return means


@dataclass(eq=False, repr=False, kw_only=True)
class PersonalizedClassifier(ClassifierMixin, _Personalized):
    """One classifier per user, which also learns from the rows of other users.

    `fit(X, y, users=)` takes the user of every row. Without `users`, all rows are of one user. By
    default, cross-validation at the users (`cv`, 3 folds, class by class) chooses one of these
    candidates:

    - one linear model for all users;
    - one linear model with an intercept for each user;
    - a common linear model with deviations of each user;
    - separate linear models;
    - boosted models: one for all users, separate ones, or models near those of similar users
      (`dada`, and with linear models `dada-linear`).

    `choice_` names the chosen candidate, `trials_` has the score of each candidate, and
    `choice_cost_` is the communication cost of the trials. `method` names one method instead:
    "shared", or a method of boosted models.

    For boosted models, `network` is the collaboration graph (users in sorted order), or "learned".
    If `method` is one of boosted models, `cv=3` chooses β, μ and λ by cross-validation with 3
    folds. A list in place of a number gives the numbers to compare. `begin="global"` starts the
    models of `dada` near the model for all users (published: "zeros"). `constant` gives each user
    an intercept in addition to the stumps.

    After `fit`: `model_`, `graph_` (networkx, nodes named by user; boosted models), `users_`,
    `history_`, `result_`, `certificate_`, `bill_`, `dual_gap_`, `n_iter_`, `classes_`.

    `unknown` sets how `predict` treats a user without a fitted model: "common" uses the common
    model, "neighbours" uses the average of the neighbours (by default as "common"), and "error"
    raises an error.
    """

    predictors: Any = field(default="stumps", kw_only=False)
    count: int | None = None
    beta: Any = 10.0
    mu: Any = 1.0
    lam: Any = 10.0
    network: Any = LEARNED
    method: str = AUTO
    penalty: str = "l2"
    l1_ratio: float | None = None
    local_steps: int = 10
    sample: int = 10
    alternations: int = 3
    begin: str = "global"
    constant: bool = True
    engine: Any = Placement.engine
    tol: float = 1e-2
    max_rounds: int = 500
    cv: int | None = None
    unknown: str = "common"
    random_state: Any = None

    __metadata_request__decision_function: ClassVar = {"users": True}
    __metadata_request__predict_proba: ClassVar = {"users": True}

    @property
    def _loss(self) -> str:
        return "logistic"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any, users: Any = None) -> PersonalizedClassifier:
        """Fit one model per user. `users` has one label per row."""
        X, y = checked(self, X, y, dtype=np.float64, accept_sparse="csr")
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) > 2:
            raise InvalidInput(
                "Only binary classification is supported, but the labels have "
                f"{len(self.classes_)} classes. "
                "Merge classes, or fit one classifier per class. The type of the target is "
                "multiclass."
            )
        tables = gather((X, y, _users_of(y, users)), "users", None)
        network = self.network if len(tables) > 1 else LEARNED
        settings = self._settings().but(network=network)
        if self.method in (AUTO, "shared"):
            wanted: tuple[str, ...] = LINEAR
            if self.method == AUTO and not is_sparse(X):
                wanted = (*LINEAR, *BOOSTED)
            check_graph(self.method, self.network)
            if len(self.classes_) < 2:
                raise InvalidInput(
                    f"the labels have one class, {self.classes_.tolist()[0]!r}. A classifier "
                    "needs two classes: add rows of another one, of any user."
                )
            result = self._fit_linear(tables, settings, wanted)
        else:
            result = self._fit_boosted(tables, settings)
        warn_unless_optimal(result, stacklevel=3)
        self._keep(result)
        self.beta_, self.mu_, self.lam_ = (
            getattr(self.model_.problem, name, None) for name in GRIDS
        )
        return self

    def _boosted(self) -> Personal:
        beta, mu, lam = (_first(getattr(self, name), name, self.cv) for name in GRIDS)
        return Personal(
            self.predictors, count=self.count, beta=beta, mu=mu, lam=lam, constant=self.constant
        )

    def _fit_boosted(self, tables: Sequence[Table], settings: Settings) -> Result:
        problem = self._boosted()
        if len(tables) == 1 and self.method == DEFAULT:
            settings = settings.but(method=ALONE)
        if self.cv is not None:
            grids = {name: _several(getattr(self, name), name) for name in GRIDS}
            problem, self.trials_ = cross_validated(problem, tables, grids, self.cv, settings)
        result: Result = fit(problem, tables, settings)
        self.choice_ = self.method
        return result

    def _settings(self) -> Settings:
        entry = _entry(self.method)
        wanted = ["local_steps"]
        if entry.uses_network:
            wanted += ["alternations", "sample"]
        if entry.name == DEFAULT:
            wanted += ["begin"]
        names = [part.name for part in fields(entry) if part.name in wanted]
        options = {name: getattr(self, name) for name in names}
        entry(**options)  # raises an error for invalid values, also of parameters without effect
        return _settings_of(self, method=self.method, **options)

    @property
    def graph_(self) -> nx.Graph:
        """The collaboration graph, with each user's confidence and loss on its own rows."""
        check_is_fitted(self, "model_")
        if not hasattr(self.model_, "weights"):
            raise AttributeError(
                f"{self.choice_!r} has no graph of who is alike; fit with method='dada'."
            )
        model = self.model_
        graph = nx.from_scipy_sparse_array(model.weights)
        graph = nx.relabel_nodes(graph, dict(enumerate(model.users)))
        for name, values in (("confidence", model.confidence), ("loss", model.losses)):
            by_user = dict(zip(model.users, values.tolist(), strict=True))
            nx.set_node_attributes(graph, by_user, name)
        return graph

    def decision_function(self, X: Any, users: Any = None) -> FloatArray:
        """The score of every row, by the model of its user. It is positive for the second class."""
        return self._scores(X, users)

    def predict(self, X: Any, users: Any = None) -> npt.NDArray[Any]:
        """The class of every row, by the model of its user."""
        scores = self._scores(X, users)
        classes: npt.NDArray[Any] = self.classes_[(scores > 0).astype(int)]
        return classes

    def predict_proba(self, X: Any, users: Any = None) -> FloatArray:
        """The probabilities of the two classes. That of the second class is σ(score), and for a
        boosted model σ(2 score).
        """
        scores = self._scores(X, users)
        if self.model_.problem.kind.name != "shared":
            scores = 2.0 * scores
        second = expit(scores)
        return np.column_stack([1.0 - second, second])

    def score(self, X: Any, y: Any, users: Any = None, sample_weight: Any = None) -> float:
        """The accuracy of each user, averaged over users."""
        per_user = self._per_user(self.predict(X, users) == np.asarray(y), users, sample_weight)
        return float(np.mean(list(per_user.values())))

    def score_per_user(self, X: Any, y: Any, users: Any = None) -> dict[str, float]:
        """The accuracy of each user."""
        return self._per_user(self.predict(X, users) == np.asarray(y), users)


@dataclass(eq=False, repr=False, kw_only=True)
class PersonalizedRegressor(RegressorMixin, _Personalized):
    """One linear model per user, which also learns from the rows of other users: least squares or
    another loss.

    `fit(X, y, users=)` takes the user of every row. Cross-validation at the users (`cv`, 3 folds)
    chooses one of these candidates, and the strengths of the penalties on deviations:

    - one model for all users;
    - one model with an intercept for each user;
    - a common model with deviations of each user;
    - separate models.

    `choice_` names the chosen candidate, `trials_` has the score of each candidate, and
    `choice_cost_` is the communication cost of the trials.

    After `fit`: `model_` (`coef_`, `intercept_`, `deviations`, `offsets`), `users_`, `result_`,
    `certificate_`, `bill_`, `dual_gap_`, `history_`, `n_iter_`. `unknown` is as in
    `PersonalizedClassifier`.
    """

    loss: str = field(default="squared", kw_only=False)
    penalty: str = "l2"
    l1_ratio: float | None = None
    engine: Any = Placement.engine
    tol: float = Limits.tol
    max_rounds: int = 2000
    cv: int | None = None
    unknown: str = "common"
    random_state: Any = None

    @property
    def _loss(self) -> str:
        return self.loss

    def fit(self, X: Any, y: Any, users: Any = None) -> PersonalizedRegressor:
        """Fit one model per user. `users` has one label per row."""
        X, y = checked(self, X, y, dtype=np.float64, accept_sparse="csr", y_numeric=True)
        tables = gather((X, y.astype(float), _users_of(y, users)), "users", None)
        result = self._fit_linear(tables, _settings_of(self), LINEAR)
        warn_unless_optimal(result, stacklevel=3)
        self._keep(result)
        return self

    def predict(self, X: Any, users: Any = None) -> FloatArray:
        """Predict one number per row, by the model of its user."""
        scores = self._scores(X, users)
        numbers: FloatArray = self.model_.problem.loss.response(scores)
        return numbers

    def score(self, X: Any, y: Any, users: Any = None, sample_weight: Any = None) -> float:
        """R² over all rows."""
        return float(r2_score(y, self.predict(X, users), sample_weight=sample_weight))

    def score_per_user(self, X: Any, y: Any, users: Any = None) -> dict[str, float]:
        """Minus the mean squared error of each user."""
        return self._per_user(-np.square(self.predict(X, users) - np.asarray(y)), users)


def cross_validated(
    problem: Personal,
    tables: Sequence[Table],
    grids: Mapping[str, Sequence[float]],
    folds: int,
    settings: Settings,
) -> tuple[Personal, list[Parameters]]:
    """Choose the parameters with the best accuracy on held-out rows. Return the problem with these
    parameters, and all parameters that were compared.

    Every user deals its own rows into folds and counts its own correct predictions. Only the counts
    of rows and of correct predictions would leave the user. μ and, for a learned graph, λ are
    chosen first, then β. The β of personal linear models is not changed.
    """
    folds = whole_number("cv", folds, least=2)
    entry = _entry(settings.algorithm.method)
    trials: list[Parameters] = []
    changed: Any = entry().adapted(problem)[1]
    linear = changed.norm != problem.norm
    if not linear:
        problem = problem.on(tables)
    lams: Sequence[float] = (problem.lam,)
    if _is_learned(settings.network):
        lams = grids["lam"]
    stages: list[tuple[tuple[str, ...], list[tuple[float, ...]]]] = []
    if entry.uses_network:
        stages.append((("mu", "lam"), list(itertools.product(grids["mu"], lams))))
    if not linear:
        stages.append((("beta",), [(beta,) for beta in grids["beta"]]))
    for names, candidates in stages:
        found: list[Parameters] = []
        if len(candidates) > 1:
            for values in candidates:
                changed = problem.but(**dict(zip(names, values, strict=True)))
                score = _kept_back(changed, tables, folds, settings)
                found.append({**dict(zip(names, values, strict=True)), "score": score})
            winner = max(found, key=lambda trial: trial["score"])
        else:
            winner = dict(zip(names, candidates[0], strict=True))
        trials += found
        problem = problem.but(**{name: winner[name] for name in names})
    return problem, trials


def _kept_back(problem: Personal, tables: Sequence[Table], folds: int, settings: Settings) -> float:
    """The accuracy on held-out rows, over all users and folds."""
    right, rows = 0, 0
    classes = np.unique(np.concatenate([table.y for table in tables if table.y is not None]))
    fold_of = deal_folds(tables, "users", folds, settings.seed, classes)
    for fold in range(folds):
        parts = [
            t.take_rows(np.flatnonzero(own != fold)) for t, own in zip(tables, fold_of, strict=True)
        ]
        named = [replace(part, name=t.name) for part, t in zip(parts, tables, strict=True)]
        result: Result = fit(problem, named, settings)
        for table, own in zip(tables, fold_of, strict=True):
            kept = np.flatnonzero(own == fold)
            if kept.size and table.y is not None:
                held = table.take_rows(kept)
                right += int((result.model.predict(held.X, table.name) == held.y).sum())
                rows += kept.size
    return right / rows


def _users_of(y: npt.NDArray[Any], users: Any) -> npt.NDArray[Any]:
    """The user of every row. Without users, all rows are of one user."""
    if users is None:
        return np.zeros(len(y), int)
    labels: npt.NDArray[Any] = column_or_1d(np.asarray(users))
    return labels


def check_graph(method: str, network: Any) -> None:
    """Raise an error if a collaboration graph is given but no candidate uses one."""
    if method == "shared" and not _is_learned(network):
        Shared().kind.problems.check_network(network)


def _is_learned(network: Any) -> bool:
    """Whether the collaboration graph is learned, which is the default."""
    return network is None or (isinstance(network, str) and network == LEARNED)


def _settings_of(estimator: Any, **more: Any) -> Settings:
    """The settings that an estimator's parameters describe."""
    limits = {"tol": estimator.tol, "max_rounds": estimator.max_rounds}
    return Settings.of(
        split="users",
        engine=estimator.engine,
        seed=seed_of(estimator.random_state),
        **limits,
        **more,
    )


def _entry(method: str) -> type[Method[Any, Any]]:
    return METHODS[DEFAULT if method in (AUTO, "shared") else method]


def _first(value: Any, name: str, cv: int | None) -> float:
    if isinstance(value, Real):
        return float(value)
    if cv is None:
        raise InvalidInput(
            f"{name}={value!r} are several values to choose from: set cv=3, or give one number."
        )
    return _several(value, name)[0]


def _several(value: Any, name: str) -> tuple[float, ...]:
    if isinstance(value, Real):
        return GRIDS[name]
    try:
        values = tuple(map(float, value))
    except (TypeError, ValueError):
        values = ()
    if not values:
        raise InvalidInput(
            f"{name}={value!r} must be a number, or with cv a list of numbers to try."
        )
    return values
