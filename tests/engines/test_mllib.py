"""The table of docs/from-spark.md: the coefficients of Spark's MLlib on the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

import coterie as co

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def frame_of():
    sql = pytest.importorskip("pyspark.sql", reason="needs Spark: pip install 'coterie[spark]'")
    from pyspark.ml.linalg import Vectors

    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    session = sql.SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()

    def frame(X, y):
        rows = [(Vectors.dense(row), float(label)) for row, label in zip(X, y, strict=True)]
        return session.createDataFrame(rows, ["features", "label"]).coalesce(1)

    yield frame
    session.stop()


TIGHT = {"maxIter": 1000, "tol": 1e-12}


def solved(X, y, *problem, **settings):
    return co.solve(
        co.Problem(*problem, intercept=True, **settings), (X, y), agents=3, tol=1e-11
    ).model.coef_


def test_classification_is_that_of_mllib(frame_of):
    from pyspark.ml.classification import LogisticRegression

    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, [0, 1, 4, 6, 8]] * [1, 1, 10, 10, 10]
    frame, deviation = frame_of(X, y), X.std(axis=0, ddof=1)
    for penalty, mixture, more in (
        ("l2", 0.0, {}),
        ("l1", 1.0, {}),
        ("elasticnet", 0.4, {"l1_ratio": 0.4}),
    ):
        theirs = LogisticRegression(
            regParam=0.05, elasticNetParam=mixture, standardization=False, **TIGHT
        ).fit(frame)
        ours = solved(X, y, "logistic", penalty, 0.05, **more)
        np.testing.assert_allclose(ours, theirs.coefficients.toArray(), atol=1e-5)
    theirs = LogisticRegression(regParam=0.05, **TIGHT).fit(frame).coefficients.toArray()
    np.testing.assert_allclose(
        solved(X / deviation, y, "logistic", "l2", 0.05) / deviation, theirs, rtol=1e-4
    )


def test_regression_is_that_of_mllib(frame_of):
    from pyspark.ml.regression import LinearRegression

    X, y = load_diabetes(return_X_y=True)
    X, sigma = 20 * X, y.std()
    frame = frame_of(X, y)
    for penalty, strength, mixture in (("l1", 2.0, 1.0), ("l2", 2.0 / sigma, 0.0)):
        theirs = LinearRegression(
            regParam=2.0, elasticNetParam=mixture, standardization=False, **TIGHT
        ).fit(frame)
        ours = solved(X, y, "squared", penalty, strength)
        np.testing.assert_allclose(ours, theirs.coefficients.toArray(), rtol=2e-3, atol=2e-3)
