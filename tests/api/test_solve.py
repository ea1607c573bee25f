"""Whatever reasonable problem is given to `solve`: no exception, no divergence, and a bound that
holds.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import scale

import coterie as co
from coterie.numerics.losses import LOSSES
from coterie.run.tables import gather, prepare_tables, split_and_prepare
from tests.harness.labels import labels_for

PENALTIES = {
    "none": {},
    "l2": {"strength": 0.05},
    "l1": {"strength": 0.05},
    "elasticnet": {"strength": 0.05, "l1_ratio": 0.5},
    "nonnegative": {},
    "box": {"lower": 0.5, "upper": 2.0},
    "l1ball": {"radius": 1.0},
}


@given(
    loss=st.sampled_from(sorted(LOSSES)),
    penalty=st.sampled_from(sorted(PENALTIES)),
    intercept=st.booleans(),
    centred=st.booleans(),
    constant_column=st.booleans(),
    zero_column=st.booleans(),
    sparse=st.booleans(),
    single=st.booleans(),
    agents=st.integers(1, 5),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=120)
def test_no_exception_no_divergence(
    loss, penalty, intercept, centred, constant_column, zero_column, sparse, single, agents, seed
):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 4))
    y = X @ rng.standard_normal(4) + rng.standard_normal(30)
    X = X - X.mean(axis=0) if centred else X
    X[:, 0] = 3.0 if constant_column else X[:, 0]
    X[:, 1] = 0.0 if zero_column else X[:, 1]
    y = labels_for(loss, y)
    if LOSSES[loss].kind == "classification":
        y[:2] = 1.0, -1.0
    X = X.astype("f4") if single else X
    data = (sp.csr_array(X) if sparse else X, y)
    problem = co.Problem(loss, penalty, intercept=intercept, **PENALTIES[penalty])
    result = co.solve(problem, data, agents=agents, tol=1e-3, max_rounds=300)
    assert result.status.success or result.status == "iteration_limit"
    assert np.isfinite(result.model.coef_).all()
    saturated = -problem.loss.conjugate(np.zeros(30), y) / 30
    assert result.certificate.gap <= result.certificate.primal - saturated + 1e-9, (
        "v = 0 proves that much for nothing"
    )
    assert co.verify(result.certificate, result.model, data).holds


@pytest.mark.parametrize("loss", ["huber", "absolute", "quantile"])
def test_centred_columns_and_an_intercept(loss):
    """∇P(0) vanishes by symmetry here, so it tells no length."""
    X, y = load_diabetes(return_X_y=True)
    result = co.solve(
        co.Problem(loss, "l2", 0.01, intercept=True), (scale(X), y), tol=1e-4, max_rounds=2000
    )
    assert result.status == "optimal"


@pytest.mark.parametrize("y", [[1.0, 1.0, 3.0, 3.0], [2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
def test_nothing_to_learn_from_the_columns(y):
    X = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    result = co.solve(co.Problem("squared", "l2", 0.1, intercept=True), (X, np.array(y)), agents=2)
    assert result.status == "optimal"
    assert result.model.intercept_ == pytest.approx(np.mean(y), abs=1e-2)


def test_raw_columns_are_never_worse_than_proving_nothing():
    X, y = load_breast_cancer(return_X_y=True)
    result = co.solve(co.Problem("logistic", "l2", 0.01, intercept=False), (X, y), max_rounds=50)
    assert result.certificate.gap <= result.certificate.primal


def test_frames_with_numbered_columns_and_frames_at_predict_time():
    import pandas as pd

    X, y = load_diabetes(return_X_y=True)
    model = co.solve(
        co.Problem("squared", "l2", 0.01, intercept=False), (pd.DataFrame(X), y), agents=2
    ).model
    assert len(model.coef_) == X.shape[1]
    frame = load_diabetes(as_frame=True)
    named = co.solve(
        co.Problem("squared", "l2", 0.01, intercept=False), (frame.data, frame.target), agents=2
    ).model
    np.testing.assert_allclose(
        named.predict(frame.data[frame.data.columns[::-1]]), named.predict(X)
    )
    spoiled = X.copy()
    spoiled[0, 0] = np.nan
    with pytest.raises(co.CoterieError, match="not finite"):
        named.predict(spoiled)


@pytest.mark.parametrize(
    "agents", [3, [10, 0, 14], [[3, 4], [*range(3), *range(5, 24)]]], ids=["count", "sizes", "rows"]
)
@pytest.mark.parametrize("storage", [np.asfortranarray, sp.csc_matrix, np.float32, np.int64])
@pytest.mark.parametrize("split", ["samples", "features", "users"])
def test_data_in_one_piece_is_checked_in_one_piece_and_comes_to_the_same(split, storage, agents):
    rng = np.random.default_rng(0)
    X, y = storage(rng.integers(-2, 3, (24, 24))), rng.choice(["ham", "spam"], 24)
    data = (X, y, rng.choice(["ann", "bob"], 24)) if split == "users" else (X, y)
    problem = co.Problem("hinge", "l2", 0.1, intercept=False)
    apart, classes = prepare_tables(gather(data, split, agents), problem, split)
    together, same_classes = split_and_prepare(data, problem, split, agents)
    assert [(t.name, t.digest(), t.X.dtype) for t in together] == [
        (t.name, t.digest(), t.X.dtype) for t in apart
    ]
    assert list(same_classes) == list(classes) == ["ham", "spam"]
    for table in together:
        assert (
            sp.issparse(table.X)
            or table.X.flags["F_CONTIGUOUS" if split == "features" else "C_CONTIGUOUS"]
        )


def test_bad_data_in_one_piece_is_named_by_its_own_row():
    X = np.ones((24, 2))
    X[17, 1] = np.nan
    with pytest.raises(
        co.CoterieError, match="column 1 has 1 value that is not finite \\(first at row 17\\)"
    ):
        co.solve(co.Problem("squared", "l2", 0.1, intercept=False), (X, np.ones(24)), agents=3)


@pytest.mark.parametrize(("split", "order"), [("samples", "C"), ("features", "F")])
def test_parts_lie_in_memory_as_methods_walk_over_them(split, order):
    frame = load_diabetes(as_frame=True)
    problem = co.Problem("squared", "l2", 0.01, intercept=False)
    tables, _ = prepare_tables(gather((frame.data, frame.target), split, 3), problem, split)
    assert all(np.asarray(table.X).flags[f"{order}_CONTIGUOUS"] for table in tables)
    parties = [(frame.data[:200], frame.target[:200]), (frame.data[200:], frame.target[200:])]
    if split == "samples":
        assert all(
            table.X.flags.c_contiguous
            for table in prepare_tables(gather(parties, split, None), problem, split)[0]
        )
