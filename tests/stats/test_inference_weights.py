"""Weights in standard errors: Stata's [fw], [pw] and [aw], from its formulas; and losses that are
no likelihood.
"""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.duration.hazard_regression import PHReg

import coterie as co
from coterie.errors import InvalidData, InvalidProblem, UnknownName

RNG = np.random.default_rng(11)
N = 80
X = RNG.standard_normal((N, 2)) * [1.0, 5.0] + [3.0, -10.0]
Z = np.column_stack([X, np.ones(N)])
SCORES = (X - [3.0, -10.0]) @ [0.5, -0.1] + 0.2
LABELS = {
    "squared": SCORES + RNG.standard_normal(N),
    "logistic": (RNG.random(N) < 1 / (1 + np.exp(-SCORES))).astype(float),
    "poisson": RNG.poisson(np.exp(SCORES)).astype(float),
    "gamma": RNG.gamma(2.0, np.exp(SCORES) / 2.0),
}
WEIGHTS = RNG.uniform(0.2, 4.0, N)
COUNTS = RNG.integers(1, 5, N).astype(float)
CLUSTERS = np.arange(N) % 35
MEANS = {
    "squared": lambda u: u,
    "logistic": lambda u: 1 / (1 + np.exp(-u)),
    "poisson": np.exp,
    "gamma": np.exp,
}


def solved(loss, weights, y=None, **settings):
    labels = LABELS[loss] if y is None else y
    return co.solve(
        co.Problem(loss, "none", intercept=True),
        (X, labels, weights),
        **{"agents": 3, "tol": 1e-12, **settings},
    )


@pytest.fixture(scope="module")
def fits():
    return {loss: solved(loss, WEIGHTS) for loss in LABELS}


def parts(loss, estimates):
    """Curvature and gradient of every row's loss in its score."""
    means, y = MEANS[loss](Z @ estimates), LABELS[loss]
    if loss == "gamma":
        return y / means, 1 - y / means
    curvature = {"squared": np.ones(N), "logistic": means * (1 - means), "poisson": means}[loss]
    return curvature, means - y


def stata_pw(loss, estimates, clusters=None):
    """Covariance and degrees of freedom of `[pw = WEIGHTS]`, with vce(cluster) or not; None: z."""
    curvature, slope = parts(loss, estimates)
    bread = np.linalg.inv((Z * (WEIGHTS * curvature)[:, None]).T @ Z)
    scores = Z * (WEIGHTS * slope)[:, None]
    least_squares, k = loss == "squared", 3
    if clusters is None:
        factor = N / (N - k) if least_squares else N / (N - 1)
        degrees = N - k if least_squares else None
    else:
        scores = np.stack([scores[clusters == c].sum(axis=0) for c in np.unique(clusters)])
        C = len(scores)
        factor = C / (C - 1) * ((N - 1) / (N - k) if least_squares else 1)
        degrees = C - 1
    return factor * bread @ (scores.T @ scores) @ bread, degrees


@pytest.mark.parametrize("loss", LABELS)
def test_sampling_weights_are_those_of_stata(fits, loss):
    found = fits[loss].inference("robust", weights="sampling")
    covariance, degrees = stata_pw(loss, found.estimates)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6)
    law = stats.norm() if degrees is None else stats.t(degrees)
    statistics = found.estimates / np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(found.p_values, 2 * law.sf(np.abs(statistics)), rtol=1e-5)
    assert found.rows == N
    assert "weights: sampling" in str(found)


@pytest.mark.parametrize("loss", LABELS)
def test_sampling_weights_with_clusters_are_those_of_stata(fits, loss):
    found = fits[loss].inference("clustered", CLUSTERS, weights="sampling")
    covariance, degrees = stata_pw(loss, found.estimates, CLUSTERS)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6)
    statistics = found.estimates / np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(
        found.p_values, 2 * stats.t(degrees).sf(np.abs(statistics)), rtol=1e-5
    )


def test_a_cluster_for_each_row_is_the_same_as_robust(fits):
    for loss in LABELS:
        robust = fits[loss].inference("robust", weights="sampling")
        clustered = fits[loss].inference("clustered", np.arange(N), weights="sampling")
        np.testing.assert_allclose(clustered.covariance, robust.covariance, rtol=1e-9)


def test_model_errors_of_sampling_weights_are_robust_and_say_so(fits):
    found = fits["logistic"].inference(weights="sampling")
    assert found.kind == "robust"
    assert "robust standard errors" in found.about
    np.testing.assert_array_equal(
        found.covariance, fits["logistic"].inference("robust", weights="sampling").covariance
    )


def test_precision_weights_are_those_of_weighted_least_squares(fits):
    known = sm.WLS(LABELS["squared"], Z, weights=WEIGHTS).fit()
    found = fits["squared"].inference(weights="precision")
    np.testing.assert_allclose(found.covariance, known.cov_params(), rtol=1e-6)
    np.testing.assert_allclose(found.p_values, known.pvalues, rtol=1e-6)
    np.testing.assert_allclose(found.intervals, known.conf_int(), rtol=1e-6)
    scaled = WEIGHTS * N / WEIGHTS.sum()
    residuals = LABELS["squared"] - Z @ known.params
    assert found.dispersion == pytest.approx(float(scaled @ residuals**2) / (N - 3), rel=1e-6)
    robust = fits["squared"].inference("robust", weights="precision", correction="HC1")
    covariance, _ = stata_pw("squared", found.estimates)
    np.testing.assert_allclose(robust.covariance, covariance, rtol=1e-6)


def test_precision_weights_of_likelihoods_are_scaled_to_the_number_of_rows(fits):
    for loss in ("logistic", "poisson"):
        found = fits[loss].inference(weights="precision")
        curvature, _ = parts(loss, found.estimates)
        scaled = WEIGHTS * N / WEIGHTS.sum()
        covariance = np.linalg.inv((Z * (scaled * curvature)[:, None]).T @ Z)
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6)


@pytest.mark.parametrize("kind", ["model", "robust", "clustered"])
@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_the_scale_of_sampling_and_precision_weights_does_not_matter(loss, kind):
    clusters = CLUSTERS if kind == "clustered" else None
    for weights in ("sampling", "precision"):
        errors = [
            solved(loss, WEIGHTS * scale).inference(kind, clusters, weights=weights).standard_errors
            for scale in (1.0, 1e6, 1 / WEIGHTS.sum())
        ]
        np.testing.assert_allclose(errors[1], errors[0], rtol=1e-6)
        np.testing.assert_allclose(errors[2], errors[0], rtol=1e-6)


@pytest.mark.parametrize("correction", ["HC0", "HC1"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "gamma"])
def test_frequency_weights_are_repeated_rows(loss, correction):
    again = np.repeat(np.arange(N), COUNTS.astype(int))
    whole = co.solve(
        co.Problem(loss, "none", intercept=True),
        (X[again], LABELS[loss][again]),
        agents=3,
        tol=1e-12,
    )
    counted = solved(loss, COUNTS)
    for kind, settings in (("model", {}), ("robust", {"correction": correction})):
        found, known = (
            counted.inference(kind, weights="frequency", **settings),
            whole.inference(kind, **settings),
        )
        np.testing.assert_allclose(found.covariance, known.covariance, rtol=1e-6)
        np.testing.assert_allclose(found.p_values, known.p_values, rtol=1e-5, atol=1e-12)
        assert found.rows == known.rows == COUNTS.sum()
    clustered = counted.inference("clustered", CLUSTERS, weights="frequency", correction="CR1")
    known = whole.inference("clustered", CLUSTERS[again], correction="CR1")
    np.testing.assert_allclose(clustered.covariance, known.covariance, rtol=1e-6)


def test_frequency_weights_are_those_of_statsmodels():
    families = {"logistic": sm.families.Binomial(), "poisson": sm.families.Poisson()}
    for loss, family in families.items():
        known = sm.GLM(LABELS[loss], Z, family=family, freq_weights=COUNTS).fit(tol=1e-14)
        found = solved(loss, COUNTS).inference(weights="frequency")
        np.testing.assert_allclose(found.standard_errors, known.bse, rtol=1e-6)


def test_hc1_is_that_of_statsmodels():
    plain = co.solve(
        co.Problem("squared", "none", intercept=True), (X, LABELS["squared"]), agents=3, tol=1e-12
    )
    known = sm.OLS(LABELS["squared"], Z).fit(cov_type="HC1", use_t=True)
    found = plain.inference("robust", correction="HC1")
    np.testing.assert_allclose(found.standard_errors, known.bse, rtol=1e-6)
    np.testing.assert_allclose(found.p_values, known.pvalues, rtol=1e-6)
    assert "(HC1)" in found.about
    logistic = co.solve(
        co.Problem("logistic", "none", intercept=True), (X, LABELS["logistic"]), tol=1e-12
    )
    plain_errors = logistic.inference("robust").standard_errors
    found = logistic.inference("robust", correction="HC1")
    np.testing.assert_allclose(
        found.standard_errors, np.sqrt(N / (N - 3)) * plain_errors, rtol=1e-12
    )


def test_weights_of_survival():
    time, event = RNG.exponential(np.exp(-SCORES)), RNG.random(N) < 0.7
    labels, problem = co.survival_labels(time, event), co.Problem("cox")
    fits = [
        co.solve(problem, (X, labels, WEIGHTS * scale), agents=1, tol=1e-12) for scale in (1.0, 1e4)
    ]
    for kind, weights in (("model", "precision"), ("robust", "precision"), ("robust", "sampling")):
        one, other = (fit.inference(kind, weights=weights) for fit in fits)
        np.testing.assert_allclose(one.standard_errors, other.standard_errors, rtol=1e-6)
        assert f"events: {event.sum()} of {N}" in str(one)
    plain = co.solve(problem, (X, labels), agents=1, tol=1e-12)
    known = PHReg(time, X, event, ties="breslow").fit(disp=0, groups=np.arange(N)).bse
    np.testing.assert_allclose(
        plain.inference("robust", weights="sampling").standard_errors,
        known * np.sqrt(N / (N - 1)),
        rtol=1e-6,
    )


def test_multinomial_sampling_weights_do_not_depend_on_scale():
    y = np.digitize(SCORES + RNG.standard_normal(N), [-0.5, 0.7])
    errors = [
        solved("multinomial", WEIGHTS * scale, y=y)
        .inference("robust", weights="sampling")
        .standard_errors
        for scale in (1.0, 1e3)
    ]
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-6)


# -- what is said, and what is refused -------------------------------------------------------------


def test_whole_weights_are_counts_unless_said_otherwise_and_fractions_need_a_word(fits):
    found = solved("squared", COUNTS).inference()
    assert found.weights == "frequency"
    assert "weights: frequency, because all are whole numbers" in str(found)
    with pytest.raises(
        InvalidData, match=r"weights='sampling'.*weights='precision'.*weights='frequency'"
    ):
        fits["squared"].inference()
    with pytest.warns(UserWarning, match="80 of the frequency weights are not whole numbers"):
        found = fits["squared"].inference(weights="frequency")
    assert "not whole numbers" in str(found)
    assert found.rows == pytest.approx(WEIGHTS.sum())
    unweighted = solved("squared", np.ones(N)).inference()
    assert unweighted.weights == ""
    assert "weights" not in str(unweighted)


def test_settings_that_do_not_exist_are_refused(fits):
    ask = fits["squared"].inference
    with pytest.raises(UnknownName, match="'sampling'"):
        ask(weights="sampel")
    with pytest.raises(UnknownName, match="'HC1'"):
        ask("robust", correction="HC11", weights="sampling")
    with pytest.raises(
        InvalidProblem, match="correction='CR1' is not for kind='robust': use correction='HC0' or"
    ):
        ask("robust", correction="CR1", weights="sampling")
    with pytest.raises(InvalidProblem, match="leave the correction out"):
        ask("model", correction="HC1", weights="precision")


# -- losses that are no likelihood -----------------------------------------------------------------


def test_huber_has_the_sandwich_of_an_m_estimator():
    y = LABELS["squared"] + np.where(np.arange(N) % 9 == 0, 20.0, 0.0)
    problem = co.Problem("huber", "none", intercept=True, threshold=1.0)
    fit = co.solve(problem, (X, y, COUNTS), agents=3, tol=1e-12)
    found = fit.inference("robust", weights="sampling", correction="HC0")
    residuals = Z @ found.estimates - y
    bread = np.linalg.inv((Z * (COUNTS * (np.abs(residuals) <= 1))[:, None]).T @ Z)
    scores = Z * (COUNTS * np.clip(residuals, -1, 1))[:, None]
    np.testing.assert_allclose(found.covariance, bread @ scores.T @ scores @ bread, rtol=1e-6)
    assert "threshold: 1 (in units of the label)" in str(found)
    clustered = fit.inference("clustered", CLUSTERS, correction="CR1")
    sums = np.stack([scores[c == CLUSTERS].sum(axis=0) for c in range(35)])
    np.testing.assert_allclose(
        clustered.covariance, 35 / 34 * bread @ sums.T @ sums @ bread, rtol=1e-6
    )


def test_squared_hinge_has_a_sandwich():
    y = LABELS["logistic"]
    found = co.solve(
        co.Problem("squared_hinge", "none", intercept=True), (X, y), tol=1e-12
    ).inference("robust")
    signs = 2 * y - 1
    margins = 1 - signs * (Z @ found.estimates)
    bread = np.linalg.inv((Z * (2.0 * (margins > 0))[:, None]).T @ Z)
    scores = Z * (-2 * signs * np.maximum(margins, 0))[:, None]
    np.testing.assert_allclose(found.covariance, bread @ scores.T @ scores @ bread, rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "kind", "reason"),
    [
        ("huber", "model", "Use kind='robust', or kind='clustered'"),
        ("squared_hinge", "model", "Use kind='robust'"),
        ("absolute", "robust", "loss='huber'"),
        ("quantile", "model", "Bootstrap"),
        ("hinge", "robust", "loss='logistic'"),
    ],
)
def test_what_has_no_standard_errors_names_what_has(loss, kind, reason):
    y = LABELS["logistic" if "hinge" in loss else "squared"]
    fit = co.solve(co.Problem(loss, "none", intercept=True), (X, y), max_rounds=2)
    with pytest.raises(InvalidProblem, match=reason):
        fit.inference(kind)


def test_huber_without_rows_within_the_threshold_says_so():
    groups = np.repeat([0.0, 1.0], 20)
    y = np.tile([1e6, -1e6], 20)
    fit = co.solve(co.Problem("huber", "none", intercept=True), (groups[:, None], y), agents=2)
    with pytest.raises(InvalidData, match="too few rows are within the threshold"):
        fit.inference("robust")
