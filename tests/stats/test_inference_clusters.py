"""Few clusters: CR2 with Satterthwaite's degrees of freedom, from matrices of all rows, and CR1 as
Stata has it.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

import coterie as co
from coterie.errors import InvalidData, InvalidProblem

RNG = np.random.default_rng(5)
SIZES = [5, 20, 33, 40, 12, 8]
CLUSTERS = np.repeat(np.arange(6), SIZES)
N = len(CLUSTERS)
X = np.column_stack([RNG.standard_normal(N) + 10, np.array([0.0, 1, 0, 1, 1, 0])[CLUSTERS]])
SCORES = X @ [0.5, 0.3] - 5 + 0.5 * RNG.standard_normal(6)[CLUSTERS]
LABELS = {
    "squared": SCORES + RNG.standard_normal(N),
    "logistic": (RNG.random(N) < 1 / (1 + np.exp(-SCORES))).astype(float),
    "poisson": RNG.poisson(np.exp(SCORES)).astype(float),
    "multinomial": np.digitize(SCORES + RNG.standard_normal(N), [-0.6, 0.8]),
}
Z = np.column_stack([X, np.ones(N)])
LOCAL = [
    np.flatnonzero(CLUSTERS < 2),
    np.flatnonzero((CLUSTERS >= 2) & (CLUSTERS < 4)),
    np.flatnonzero(CLUSTERS >= 4),
]


def solved(loss, data=None, **settings):
    given = (X, LABELS[loss]) if data is None else data
    return co.solve(co.Problem(loss, "none", intercept=True), given, **{"tol": 1e-12, **settings})


def inferred(result, clusters=CLUSTERS, **settings):
    """Standard errors, of which a warning is expected."""
    with pytest.warns(UserWarning, match="there are only"):
        return result.inference("clustered", clusters, **settings)


def whitened(loss, found):
    """Rows and residuals of the working model, with a covariance of 1; several rows for each row of
    several classes.
    """
    y = LABELS[loss]
    if loss == "multinomial":
        W = np.vstack([np.zeros(3), found.estimates.reshape(2, 3)])
        P = np.exp(Z @ W.T)
        P /= P.sum(axis=1, keepdims=True)
        rows, residuals = [], []
        for z, p, label in zip(Z, P[:, 1:], y, strict=True):
            values, vectors = np.linalg.eigh(np.diag(p) - np.outer(p, p))
            rows.append(np.kron((vectors * np.sqrt(values)) @ vectors.T, z))
            residuals.append(
                (vectors / np.sqrt(values)) @ vectors.T @ ((label == np.array([1, 2])) - p)
            )
        return np.vstack(rows), np.concatenate(residuals), np.repeat(CLUSTERS, 2)
    scores = Z @ found.estimates
    means = {"squared": scores, "logistic": 1 / (1 + np.exp(-scores)), "poisson": np.exp(scores)}[
        loss
    ]
    weights = {"squared": np.ones(N), "logistic": means * (1 - means), "poisson": means}[loss]
    return Z * np.sqrt(weights)[:, None], (y - means) / np.sqrt(weights), CLUSTERS


def bell_mccaffrey(rows, residuals, clusters):
    """CR2 and its degrees of freedom as Pustejovsky and Tipton (2018) write them, with matrices of
    all rows.
    """
    M = np.linalg.inv(rows.T @ rows)
    left = np.eye(len(rows)) - rows @ M @ rows.T
    middle, adjusted = 0.0, []
    for cluster in np.unique(clusters):
        own = clusters == cluster
        values, vectors = np.linalg.eigh(left[np.ix_(own, own)])
        A = (vectors * np.where(values > 1e-9, np.maximum(values, 1e-9) ** -0.5, 0.0)) @ vectors.T
        score = rows[own].T @ A @ residuals[own]
        middle = middle + np.outer(score, score)
        adjusted.append(left[:, own] @ A @ rows[own] @ M)
    degrees = []
    for j in range(len(M)):
        G = np.column_stack([one[:, j] for one in adjusted])
        degrees.append(np.trace(G.T @ G) ** 2 / np.square(G.T @ G).sum())
    return M @ middle @ M, np.array(degrees)


@pytest.mark.parametrize("where", ["pooled", "one agent", "within parties"])
@pytest.mark.parametrize("loss", LABELS)
def test_few_clusters_have_cr2(loss, where):
    if where == "within parties":
        fit = solved(loss, [(X[rows], LABELS[loss][rows]) for rows in LOCAL])
    else:
        fit = solved(loss, agents=3 if where == "pooled" else 1)
    found = inferred(fit)
    covariance, degrees = bell_mccaffrey(*whitened(loss, found))
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.degrees, degrees, rtol=1e-6)
    law = stats.t(degrees)
    statistics = found.estimates / np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(found.p_values, 2 * law.sf(np.abs(statistics)), rtol=1e-5)
    assert (found.correction, found.statistic) == ("CR2", "t")
    assert "(CR2) by 6 clusters" in found.about
    assert "df" in found.table()[0]
    assert "warning: there are only 6 clusters" in str(found)


def test_a_cluster_that_alone_determines_a_coefficient_has_a_pseudo_inverse():
    columns = np.column_stack([X[:, 0], CLUSTERS == 3])
    found = inferred(solved("squared", (columns, LABELS["squared"])))
    rows = np.column_stack([columns, np.ones(N)])
    covariance, degrees = bell_mccaffrey(rows, LABELS["squared"] - rows @ found.estimates, CLUSTERS)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.degrees[[0, 2]], degrees[[0, 2]], rtol=1e-6)


def test_clusters_at_several_parties_have_cr1_with_a_word_about_it():
    y = LABELS["squared"]
    apart = solved("squared", [(X[:50], y[:50]), (X[50:], y[50:])])
    found = inferred(apart)
    assert found.correction == "CR1"
    assert "CR2 is more reliable" in str(found)
    # One process has all rows, so that CR2 can be asked for by name.
    np.testing.assert_allclose(
        inferred(apart, correction="CR2").covariance,
        inferred(solved("squared")).covariance,
        rtol=1e-6,
    )


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_cr1_is_that_of_stata(loss):
    found = inferred(solved(loss, agents=2), correction="CR1")
    scores = Z @ found.estimates
    means = {"squared": scores, "logistic": 1 / (1 + np.exp(-scores)), "poisson": np.exp(scores)}[
        loss
    ]
    weights = {"squared": np.ones(N), "logistic": means * (1 - means), "poisson": means}[loss]
    bread = np.linalg.inv((Z * weights[:, None]).T @ Z)
    residuals = LABELS[loss] - means
    sums = np.stack([Z[c == CLUSTERS].T @ residuals[c == CLUSTERS] for c in range(6)])
    factor = 6 / 5 * ((N - 1) / (N - 3) if loss == "squared" else 1.0)
    covariance = factor * bread @ sums.T @ sums @ bread
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6)
    reach = stats.t(5).ppf(0.975) * np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(found.intervals[:, 1], found.estimates + reach, rtol=1e-6)
    assert found.statistic == "t"


def test_grunfeld_is_that_of_stata():
    data = sm.datasets.grunfeld.load_pandas().data
    data = data[data.firm != "American Steel"]
    table = (data[["value", "capital"]].to_numpy(float), data.invest.to_numpy(float))
    found = inferred(solved("squared", table), data.firm.to_numpy(str), correction="CR1")
    assert found.p_values[2] == pytest.approx(0.066, abs=5e-4)
    assert found.standard_errors[2] == pytest.approx(20.4252, abs=1e-4)
    known = sm.OLS(table[1], sm.add_constant(table[0], prepend=False)).fit(
        cov_type="cluster", cov_kwds={"groups": data.firm.astype("category").cat.codes}, use_t=True
    )
    np.testing.assert_allclose(found.p_values, known.pvalues, rtol=1e-6)


def test_thirty_clusters_are_not_few():
    groups = np.arange(N) % 30
    fit = solved("poisson", agents=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        usual = fit.inference("clustered", groups)
    assert (usual.correction, usual.statistic, usual.warnings) == ("CR1S", "z", ())
    with pytest.warns(UserWarning, match="only 29 clusters"):
        assert fit.inference("clustered", np.arange(N) % 29).correction == "CR2"


def test_corrections_by_name():
    fit = solved("poisson", agents=2)
    errors = {
        name: inferred(fit, correction=name).standard_errors for name in ("CR0", "CR1", "CR1S")
    }
    np.testing.assert_allclose(errors["CR1"], errors["CR0"] * np.sqrt(6 / 5), rtol=1e-12)
    np.testing.assert_allclose(
        errors["CR1S"], errors["CR1"] * np.sqrt((N - 1) / (N - 3)), rtol=1e-12
    )


def test_few_clusters_of_survival_have_cr1():
    labels = co.survival_labels(RNG.exponential(np.exp(-SCORES)), RNG.random(N) < 0.7)
    fit = co.solve(co.Problem("cox"), (X, labels), agents=1, tol=1e-12)
    found, plain = inferred(fit), inferred(fit, correction="CR0")
    np.testing.assert_allclose(
        found.standard_errors, plain.standard_errors * np.sqrt(6 / 5), rtol=1e-12
    )
    np.testing.assert_array_equal(found.degrees, [5.0, 5.0])
    with pytest.raises(InvalidProblem, match="Use correction='CR1'"):
        fit.inference("clustered", CLUSTERS, correction="CR2")


def test_fewer_clusters_than_coefficients_and_a_single_one_are_refused():
    with pytest.raises(InvalidData, match="2 clusters and 3 coefficients"):
        solved("squared").inference("clustered", CLUSTERS % 2)
    alone = co.solve(co.Problem("squared", "none", intercept=False), (X[:, :1], LABELS["squared"]))
    with pytest.raises(InvalidData, match="1 clusters and 1 coefficients"):
        alone.inference("clustered", np.zeros(N))


@pytest.mark.parametrize(("loss", "tol"), [("squared", 1e-12), ("poisson", 1e-6)])
@pytest.mark.parametrize("correction", ["CR1", "CR2"])
def test_coefficients_that_fit_every_cluster_exactly_are_refused(loss, tol, correction):
    columns = np.column_stack([c == CLUSTERS for c in range(5)]).astype(float)
    y = LABELS[loss] + 1 if loss == "poisson" else LABELS[loss]
    fit = solved(loss, (columns, y), tol=tol, agents=2)
    with pytest.raises(
        InvalidData, match=r"clusters do not determine how uncertain the coefficients of x0, .* are"
    ):
        fit.inference("clustered", CLUSTERS, correction=correction)


@pytest.mark.parametrize(
    ("count", "draws", "least"),
    [
        # Of 150 draws, the share is uncertain by 0.02.
        pytest.param(6, 150, 0.9, marks=pytest.mark.rotates),
        pytest.param(10, 150, 0.9, marks=pytest.mark.rotates),
        pytest.param(6, 2000, 0.92, marks=pytest.mark.slow),
        pytest.param(10, 2000, 0.93, marks=pytest.mark.slow),
    ],
)
def test_intervals_cover_what_they_promise(count, draws, least):
    rng, truth = np.random.default_rng(count), np.array([0.5, -0.3, 1.0])
    covered = np.zeros(3)
    for _ in range(draws):
        groups = np.repeat(np.arange(count), rng.integers(5, 61, count))
        n = len(groups)
        columns = np.column_stack([rng.standard_normal(n), rng.standard_normal(count)[groups]])
        common, own = rng.standard_normal(count)[groups], rng.standard_normal(n)
        y = columns @ truth[:2] + truth[2] + np.sqrt(0.2) * common + np.sqrt(0.8) * own
        fit = co.solve(co.Problem("squared", "none", intercept=True), (columns, y), agents=2)
        lower, upper = inferred(fit, groups).intervals.T
        covered += (lower <= truth) & (truth <= upper)
    assert (covered / draws >= least).all(), covered / draws
