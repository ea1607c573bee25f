"""Other people's solvers on our objective (1/n) Σ ℓ + g, without intercept: each a function (case,
tol) → w.

`tol` is a tolerance in the solver's own terms. A package that is not installed, or that
does not import, is left out with its reason.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.problems import Case

__all__ = ["PEERS", "Peer", "missing"]

MANY = 20_000


@dataclass(frozen=True)
class Peer:
    """A solver, the package it needs, and the (loss, penalty) pairs for which it is tried."""

    name: str
    package: str
    knows: frozenset[str]
    fit: Callable[[Case, float], np.ndarray]
    cluster: bool = False
    """Whether it brings its own cluster: started before the clock, and timed beside it."""
    dense: bool = False
    """Whether it makes a dense copy of sparse data."""


PEERS: list[Peer] = []


def missing(peer: Peer) -> str | None:
    """Why that peer cannot take part, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(peer.package)
    except Exception as error:  # a broken package is a reason like any other
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def peer(
    name: str, package: str, *knows: str, cluster: bool = False, dense: bool = False
) -> Callable[[Any], Any]:
    """Enter a function into the list."""

    def enter(fit: Callable[[Case, float], np.ndarray]) -> Callable[[Case, float], np.ndarray]:
        PEERS.append(Peer(name, package, frozenset(knows), fit, cluster, dense))
        return fit

    return enter


def _strength(case: Case) -> float:
    return float(case.problem.penalty.strength)


def _scikit_logistic(solver: str, l1_ratio: float) -> Callable[[Case, float], np.ndarray]:
    def fit(case: Case, tol: float) -> np.ndarray:
        from sklearn.linear_model import LogisticRegression

        C = 1 / (len(case.y) * _strength(case))
        model = LogisticRegression(
            C=C,
            l1_ratio=l1_ratio,
            solver=solver,
            fit_intercept=False,
            tol=tol,
            max_iter=MANY if tol < 1e-3 else 500,
        )
        return model.fit(case.X, case.y).coef_[0]

    return fit


for _solver in ("lbfgs", "newton-cholesky", "liblinear", "saga"):
    peer(f"scikit-learn {_solver}", "sklearn", "logistic l2")(_scikit_logistic(_solver, 0.0))
for _solver in ("liblinear", "saga"):
    peer(f"scikit-learn {_solver}", "sklearn", "logistic l1")(_scikit_logistic(_solver, 1.0))


@peer("scikit-learn liblinear", "sklearn", "hinge l2")
def _linear_svc(case: Case, tol: float) -> np.ndarray:
    from sklearn.svm import LinearSVC

    C = 1 / (len(case.y) * _strength(case))
    return (
        LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=tol, max_iter=MANY)
        .fit(case.X, case.y)
        .coef_[0]
    )


@peer("scikit-learn Ridge", "sklearn", "squared l2")
def _ridge(case: Case, tol: float) -> np.ndarray:
    from sklearn.linear_model import Ridge

    return (
        Ridge(alpha=len(case.y) * _strength(case), fit_intercept=False, tol=tol)
        .fit(case.X, case.y)
        .coef_
    )


@peer("scikit-learn Lasso", "sklearn", "squared l1")
def _lasso(case: Case, tol: float) -> np.ndarray:
    from sklearn.linear_model import Lasso

    return (
        Lasso(_strength(case), fit_intercept=False, tol=tol, max_iter=MANY)
        .fit(case.X, case.y)
        .coef_
    )


@peer("scikit-learn QuantileRegressor", "sklearn", "quantile l1")
def _highs(case: Case, tol: float) -> np.ndarray:
    from sklearn.linear_model import QuantileRegressor

    level = case.problem.loss.level
    return (
        QuantileRegressor(quantile=level, alpha=_strength(case), fit_intercept=False)
        .fit(case.X, case.y)
        .coef_
    )


@peer("celer", "celer", "squared l1", "logistic l1")
def _celer(case: Case, tol: float) -> np.ndarray:
    import celer

    X = sp.csc_matrix(case.X) if sp.issparse(case.X) else np.asfortranarray(case.X)
    if case.problem.loss.name == "squared":
        return (
            celer.Lasso(_strength(case), fit_intercept=False, tol=tol, max_iter=200)
            .fit(X, case.y)
            .coef_
        )
    C = 1 / (len(case.y) * _strength(case))
    return celer.LogisticRegression(C=C, tol=tol, max_iter=200).fit(X, case.y).coef_[0]


@peer("skglm", "skglm", "squared l1", "logistic l1", "hinge l2")
def _skglm(case: Case, tol: float) -> np.ndarray:
    import skglm

    X = sp.csc_matrix(case.X) if sp.issparse(case.X) else np.asfortranarray(case.X)
    lam = _strength(case)
    match case.problem.loss.name:
        case "squared":
            return skglm.Lasso(lam, fit_intercept=False, tol=tol).fit(X, case.y).coef_
        case "logistic":
            return (
                skglm.SparseLogisticRegression(lam, fit_intercept=False, tol=tol)
                .fit(X, case.y)
                .coef_[0]
            )
    return (
        skglm.LinearSVC(C=1 / (len(case.y) * lam), tol=tol, fit_intercept=False)
        .fit(X, case.y)
        .coef_[0]
    )


@peer("snapml", "snapml", "logistic l2", "logistic l1", "hinge l2")
def _snapml(case: Case, tol: float) -> np.ndarray:
    import snapml

    X = (
        sp.csr_matrix(case.X).astype(np.float32)
        if sp.issparse(case.X)
        else np.asarray(case.X, np.float32)
    )
    if case.problem.loss.name == "hinge":
        lam = len(case.y) * _strength(case)
        model = snapml.SupportVectorMachine(
            regularizer=lam, max_iter=MANY, tol=tol, fit_intercept=False
        )
    else:
        model = snapml.LogisticRegression(
            regularizer=len(case.y) * _strength(case),
            penalty=case.problem.penalty.name,
            dual=case.problem.penalty.name == "l2",
            max_iter=MANY,
            tol=tol,
            fit_intercept=False,
        )
    return np.ravel(model.fit(X, np.where(case.y > 0, 1.0, -1.0)).coef_)


@peer("rehline", "rehline", "hinge l2", "huber l2", dense=True)
def _rehline(case: Case, tol: float) -> np.ndarray:
    from rehline import ReHLine_solver

    n, lam, y = len(case.y), _strength(case), case.y
    X = np.ascontiguousarray(case.X.toarray() if sp.issparse(case.X) else case.X, float)
    none = np.empty((0, 0))
    if case.problem.loss.name == "hinge":
        # Σ C max(0, 1 − y x·w) + ½‖w‖²
        U, V, Tau, S, T = (
            (-y / (n * lam)).reshape(1, -1),
            np.full((1, n), 1 / (n * lam)),
            none,
            none,
            none,
        )
    else:
        C, h = np.sqrt(1 / (n * lam)), case.problem.loss.threshold
        U = V = none
        S, T = np.vstack([np.full(n, C), np.full(n, -C)]), np.vstack([-C * y, C * y])
        Tau = np.full((2, n), C * h)
    return np.asarray(
        ReHLine_solver(X=X, U=U, V=V, Tau=Tau, S=S, T=T, max_iter=MANY, tol=tol, verbose=0).beta
    )


@peer("cyanure", "cyanure", "squared l2", "squared l1", "logistic l2", "logistic l1")
def _cyanure(case: Case, tol: float) -> np.ndarray:
    from cyanure import estimators

    lam, penalty = _strength(case), case.problem.penalty.name
    options = {
        "penalty": penalty,
        "lambda_1": lam,
        "fit_intercept": False,
        "tol": tol,
        "max_iter": 2000,
    }
    if case.problem.loss.name == "squared":
        model = estimators.Regression(verbose=False, **options)
    else:
        model = estimators.Classifier(loss="logistic", verbose=False, **options)
    X = sp.csr_matrix(case.X) if sp.issparse(case.X) else np.asarray(case.X, float)
    return np.ravel(model.fit(X, case.y).get_weights())


@peer("copt", "copt", "logistic l2", "logistic l1")
def _copt(case: Case, tol: float) -> np.ndarray:
    import copt.loss
    import copt.penalty

    labels = (case.y > 0).astype(float)
    ridge = _strength(case) if case.problem.penalty.name == "l2" else 0.0
    loss = copt.loss.LogLoss(case.X, labels, ridge)
    prox = None if ridge else copt.penalty.L1Norm(_strength(case)).prox
    done = copt.minimize_proximal_gradient(
        loss.f_grad,
        np.zeros(case.X.shape[1]),
        prox,
        tol=tol,
        max_iter=MANY,
        accelerated=True,
        jac=True,
    )
    return done.x


@peer("dask-glm admm", "dask_glm", "logistic l2", "logistic l1", cluster=True, dense=True)
def _dask_admm(case: Case, tol: float) -> np.ndarray:
    return _dask(case, tol, "admm")


@peer("dask-glm proximal-grad", "dask_glm", "logistic l2", "logistic l1", cluster=True, dense=True)
def _dask_proximal(case: Case, tol: float) -> np.ndarray:
    return _dask(case, tol, "proximal_grad")


def _dask(case: Case, tol: float, solver: str) -> np.ndarray:
    import dask.array as da
    from dask_glm import algorithms

    X = case.X.toarray() if sp.issparse(case.X) else case.X
    rows = -(-len(case.y) // case.agents)
    labels = (case.y > 0).astype(float)
    blocks = da.from_array(X, chunks=(rows, X.shape[1])), da.from_array(labels, chunks=rows)
    options = {"abstol": tol, "reltol": tol} if solver == "admm" else {"tol": tol}
    options |= {"max_iter": 250 if tol > 1e-4 else 1000, "normalize": False}
    lam = len(case.y) * _strength(case)
    return np.asarray(
        getattr(algorithms, solver)(
            *blocks, regularizer=case.problem.penalty.name, lamduh=lam, **options
        )
    )


@peer("Spark MLlib", "pyspark", "logistic l2", "logistic l1", cluster=True)
def _mllib(case: Case, tol: float) -> np.ndarray:
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import SparkSession

    from coterie.engines.spark_session import prepare_environment

    prepare_environment()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", str(case.agents)).getOrCreate()
    key = (id(case.X), case.agents)
    if _FRAMES.get("key") != key:
        csr = sp.csr_matrix(case.X)
        rows = [
            (
                float(label > 0),
                Vectors.sparse(csr.shape[1], csr.indices[a:b].tolist(), csr.data[a:b].tolist()),
            )
            for label, a, b in zip(case.y, csr.indptr[:-1], csr.indptr[1:], strict=True)
        ]
        frame = spark.createDataFrame(rows, ["label", "features"]).repartition(case.agents).cache()
        frame.count()
        _FRAMES.update(key=key, frame=frame)
    model = LogisticRegression(
        regParam=_strength(case),
        elasticNetParam=float(case.problem.penalty.name == "l1"),
        fitIntercept=False,
        standardization=False,
        tol=tol,
        maxIter=1000,
    )
    return model.fit(_FRAMES["frame"]).coefficients.toArray()


_FRAMES: dict[str, Any] = {}
