"""Offsets and exposures as people meet them: estimators and the command line."""

from __future__ import annotations

import json
from io import StringIO

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import PoissonRegressor
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import coterie as co
from coterie.commands.exit_codes import REFUSED
from coterie.errors import InvalidData
from tests.harness.shell import shell

RNG = np.random.default_rng(5)
N = 120
X = RNG.standard_normal((N, 3))
EXPOSURE = RNG.uniform(0.1, 2.0, N)
OFFSET = np.log(EXPOSURE)
COUNTS = RNG.poisson(EXPOSURE * np.exp(X @ [0.4, -0.2, 0.1]))
ILL = (RNG.random(N) < 1 / (1 + np.exp(-X[:, 0] - OFFSET))).astype(int)


def test_regressors_and_classifiers_take_an_offset():
    fitted = co.LinearRegressor("poisson", alpha=0.01, tol=1e-10).fit(X, COUNTS, offset=OFFSET)
    # A rate, weighted by its exposure, is a count with an offset, but for the number that losses
    # are divided by.
    rates = PoissonRegressor(alpha=0.01 * N / EXPOSURE.sum(), solver="newton-cholesky", tol=1e-9)
    rates.fit(X, COUNTS / EXPOSURE, sample_weight=EXPOSURE)
    np.testing.assert_allclose(fitted.coef_, rates.coef_, atol=1e-6)
    np.testing.assert_allclose(
        fitted.predict(X, offset=OFFSET), rates.predict(X) * EXPOSURE, rtol=1e-5
    )
    assert fitted.score(X, COUNTS, offset=OFFSET) > fitted.score(X, COUNTS, offset=0.0)
    scores = rates.score(X, COUNTS / EXPOSURE, sample_weight=EXPOSURE)
    assert fitted.score(X, COUNTS, offset=OFFSET) == pytest.approx(scores, abs=1e-6)
    with pytest.raises(InvalidData, match="poisson loss is for"):
        fitted.score(X, -1 - COUNTS, offset=OFFSET)
    classifier = co.LinearClassifier(tol=1e-8).fit(X, ILL, offset=OFFSET.tolist())
    model = classifier.result_.model
    np.testing.assert_array_equal(
        classifier.decision_function(X, OFFSET), model.decision_function(X, OFFSET)
    )
    np.testing.assert_array_equal(classifier.predict(X, OFFSET), model.predict(X, OFFSET))
    np.testing.assert_allclose(
        np.exp(classifier.predict_log_proba(X, OFFSET)), model.predict_proba(X, OFFSET)
    )
    assert classifier.score(X, ILL, offset=OFFSET) > 0.6
    for asked in (fitted.predict, classifier.predict, classifier.predict_proba):
        with pytest.raises(InvalidData, match="fitted with an offset"):
            asked(X)
    with pytest.raises(InvalidData, match="fitted without an offset"):
        co.LinearClassifier().fit(X, ILL).predict(X, OFFSET)
    with pytest.raises(InvalidData, match="several classes would need one each"):
        co.LinearClassifier().fit(X, np.arange(N) % 3, offset=OFFSET)
    with pytest.raises(InvalidData, match="low-rank model takes none"):
        co.LowRankRegressor().fit(X, X, offset=OFFSET)


def test_rows_of_weight_zero_are_left_out_with_their_offsets():
    weights = np.where(np.arange(N) < 20, 0.0, 1.5)
    some = co.LinearRegressor("poisson").fit(X, COUNTS, weights, OFFSET)
    same = co.LinearRegressor("poisson").fit(X[20:], COUNTS[20:], offset=OFFSET[20:])
    np.testing.assert_allclose(some.coef_, same.coef_, atol=1e-4)


def test_metadata_is_routed():
    with sklearn.config_context(enable_metadata_routing=True):
        asks = co.LinearRegressor("poisson").set_fit_request(offset=True)
        asks = asks.set_predict_request(offset=True).set_score_request(offset=True)
        pipeline = make_pipeline(StandardScaler(), asks)
        pipeline.fit(X, COUNTS, offset=OFFSET)
        np.testing.assert_allclose(
            pipeline.predict(X, offset=OFFSET) / EXPOSURE, pipeline.predict(X, offset=np.zeros(N))
        )
        scores = cross_validate(pipeline, X, COUNTS, cv=3, params={"offset": OFFSET})["test_score"]
        assert np.isfinite(scores).all()


@pytest.fixture
def insurers(tmp_path):
    frame = pd.DataFrame(X, columns=["age", "power", "density"]).assign(
        years=EXPOSURE, log=OFFSET, claims=COUNTS
    )
    files = []
    for name, part in zip(("north", "south", "west"), np.split(np.arange(N), 3), strict=True):
        frame.iloc[part].to_csv(tmp_path / f"{name}.csv", index=False)
        files.append(str(tmp_path / f"{name}.csv"))
    return tmp_path, files


def run(*words: object, code: int = 0) -> str:
    result = shell(*words)
    assert result.exit_code == code, result.output
    return result.text if code else result.output


def test_an_exposure_from_the_shell(insurers):
    folder, files = insurers
    fit = [
        "fit",
        *files,
        "--target",
        "claims",
        "--loss",
        "poisson",
        "--intercept",
        "--columns",
        "age,power,density",
    ]
    data = co.data.split(
        co.Table(X, COUNTS, columns=("age", "power", "density"), offset=OFFSET), "samples", 3
    )
    expected = co.solve(co.Problem("poisson", intercept=True), data)
    table = run(*fit, "--exposure", "years", "--inference", "model", "-o", folder / "years")
    assert "age" in table
    run(*fit, "--offset", "log", "-o", folder / "log")
    for way in ("years", "log"):
        model = co.models.load_model(folder / way / "model.npz")
        np.testing.assert_allclose(model.coef_, expected.model.coef_, atol=1e-9)
    shown = folder / "years" / "certificate.json"
    assert json.loads(shown.read_text())["settings"]["problem"]["offset"] is True
    assert "Offset" in (folder / "years" / "report.html").read_text()
    proof = [
        shown,
        folder / "years" / "model.npz",
        *files,
        "--target",
        "claims",
        "--columns",
        "age,power,density",
    ]
    assert "with an intercept and an offset" in run(
        "verify", *proof, "--exposure", "years"
    ).replace("\n", " ")
    assert "the model has an offset, but the data has none" in run("verify", *proof, code=REFUSED)
    model = folder / "years" / "model.npz"
    written = run("predict", model, files[0], "--exposure", "years", "--score")
    found = pd.read_csv(StringIO(written))
    np.testing.assert_allclose(
        found["prediction"], expected.model.predict(X[:40], offset=OFFSET[:40]), rtol=1e-6
    )
    np.testing.assert_allclose(np.exp(found["score"]), found["prediction"])
    assert "--offset or --exposure" in run("predict", model, files[0], code=REFUSED)
    assert "deviance" in run("evaluate", model, *files, "--target", "claims", "--exposure", "years")
    alone = run(
        "fit", *files, "--target", "claims", "--split", "users", "--exposure", "years", code=REFUSED
    )
    assert "models of every user take no offset" in alone
    assert "offset and exposure both name the numbers" in run(
        *fit, "--offset", "log", "--exposure", "years", code=REFUSED
    )
    path = [
        "path",
        *fit[1:],
        "--penalty",
        "l1",
        "--exposure",
        "years",
        "--cv",
        "2",
        "--strengths",
        "0.1,0.01",
        "-o",
        folder / "path",
    ]
    assert "strength" in run(*path)


def test_exposures_that_are_not_above_zero_are_refused_by_party_and_row(insurers):
    folder, files = insurers
    frame = pd.read_csv(files[1])
    frame.loc[[4, 6], "years"] = [0.0, -1.0]
    frame.to_csv(files[1], index=False)
    told = run(
        "fit",
        *files,
        "--target",
        "claims",
        "--loss",
        "poisson",
        "--exposure",
        "years",
        "-o",
        folder,
        code=REFUSED,
    )
    assert (
        f"party 'south': 2 exposures are not above 0 (first at line 6 of {files[1]}, column "
        "'years': 0.0)"
    ) in told
