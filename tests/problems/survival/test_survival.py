"""Survival as users meet it: files, the shell, studies, the estimator, baselines, concordance,
reports.
"""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from statsmodels.duration.hazard_regression import PHReg

import coterie as co
from coterie.data.remote import table_of
from coterie.engines.local import Local
from coterie.errors import InvalidData, InvalidInput, InvalidProblem, UnknownName
from coterie.problems.survival.likelihood import concordance_counts
from coterie.run.settings import Settings
from coterie.run.tables import prepare_tables
from coterie.stats.reading import remote_tables
from coterie.study.party import read_own
from coterie.study.study import load_party
from tests.harness.parties import write_study
from tests.harness.shell import shell

RNG = np.random.default_rng(8)
SURVIVAL = ["--time", "days", "--event", "died"]


def patients(n):
    age, dose = RNG.normal(60, 10, n).round(1), RNG.integers(0, 2, n)
    days = np.ceil(RNG.exponential(np.exp((60 - age) * 0.04 + dose * 0.6)) * 300)
    sex = np.array(["f", "m"])[RNG.integers(0, 2, n)]
    died = (RNG.random(n) < 0.7).astype(int)
    since = np.floor(days * RNG.random(n) * 0.3)
    return pd.DataFrame(
        {"age": age, "dose": dose, "sex": sex, "days": days, "died": died, "since": since}
    )


FRAMES = [patients(n) for n in (50, 60, 70)]
ROLES = {"time": "days", "event": "died", "entry": "since", "strata": "sex"}
TABLES = [co.read(frame, name=f"h{k}", **ROLES) for k, frame in enumerate(FRAMES)]
X, DAYS, DIED = (
    FRAMES[2][["age", "dose"]].to_numpy(float),
    FRAMES[2]["days"].to_numpy(),
    FRAMES[2]["died"].to_numpy(),
)


LABELS = co.survival_labels(DAYS, DIED)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    for k, frame in enumerate(FRAMES):
        frame.to_csv(folder / f"h{k}.csv", index=False)
    return [str(folder / f"h{k}.csv") for k in range(3)]


def refusal(*arguments):
    refused = shell(*arguments)
    assert refused.exit_code != 0
    return refused.text


# -- files and frames ------------------------------------------------------------------------------


def test_columns_are_named_by_what_they_are():
    table = TABLES[0]
    assert table.columns == ("age", "dose")
    codes = (FRAMES[0]["sex"] == "m").astype(float)
    np.testing.assert_array_equal(
        table.y, np.column_stack([FRAMES[0][["days", "died", "since"]], codes])
    )
    plain = co.read(FRAMES[0][["age", "days", "died"]], time="days", event="died")
    assert plain.y.shape == (50, 2)
    for wrong in (
        {"time": "days"},
        {"time": "days", "event": "died", "target": "age"},
        {"event": "died"},
    ):
        with pytest.raises(
            InvalidInput, match="survival needs a column for time and one for event"
        ):
            co.read(FRAMES[0], **wrong)
    with pytest.raises(InvalidData, match="party 'north': event holds"):
        co.read(FRAMES[0], time="days", event="sex", name="north")
    with pytest.raises(InvalidData, match="Name the columns of time and event"):
        co.solve(co.Problem("cox"), [co.read(FRAMES[0][["age", "dose"]])])


def test_a_party_of_a_study_names_its_columns(tmp_path):
    write_study(
        tmp_path,
        ("north", "south"),
        problem={"loss": "cox", "penalty": "l2", "strength": 0.1},
        split="samples",
    )
    file = tmp_path / "north" / "party.toml"
    text = file.read_text()
    file.write_text(
        text.replace(
            'target = "y"', 'time = "days"\nevent = "died"\nentry = "since"\nstrata = "sex"'
        )
    )
    FRAMES[0].to_csv(tmp_path / "north" / "data.csv", index=False)
    np.testing.assert_array_equal(read_own(*load_party(file)).y, TABLES[0].y)
    file.write_text(text.replace('target = "y"', 'target = "days"\ncolumns = ["age"]'))
    with pytest.raises(
        InvalidData, match="party 'north': the labels are one value a row; survival needs more"
    ):
        read_own(*load_party(file))


def test_rows_of_a_cluster_stay_there():
    problem = co.Problem("cox")
    prepare = partial(prepare_tables, problem=problem, split="samples")
    sources = [partial(getattr, table, "__self__", table) for table in TABLES]
    found = remote_tables(sources, Local(), problem, Settings())
    for stand_in, table in zip(found.tables, TABLES, strict=True):
        assert stand_in.known_digest == prepare([table])[0][0].digest()
        np.testing.assert_array_equal(stand_in.fetch().y, table.y)
    batch = pa.Table.from_pandas(FRAMES[0][["age", "dose", "days", "died"]], preserve_index=False)
    read = table_of(batch, co.Rows(None, target=["days", "died"]))
    np.testing.assert_array_equal(read.y, FRAMES[0][["days", "died"]])
    with pytest.raises(InvalidData, match="columns of times and events"):
        co.CoxRegressor().fit(co.Rows(None, target="days"))


# -- the shell -------------------------------------------------------------------------------------


def test_fit_verify_evaluate_and_baseline(files, tmp_path):
    more = [*SURVIVAL, "--entry", "since", "--strata", "sex"]
    fitted = shell(
        "fit",
        *files,
        "--loss",
        "cox",
        *more,
        "--inference",
        "robust",
        "-o",
        tmp_path / "fit",
        "--json",
    )
    assert fitted.exit_code == 0, fitted.output
    result = co.solve(co.Problem("cox"), TABLES)
    model = co.models.load_model(tmp_path / "fit" / "model.npz")
    np.testing.assert_array_equal(model.coef_, result.model.coef_)
    found = co.Inference.load(tmp_path / "fit" / "inference.json")
    assert found.table()[0]["exp(coef)"] == pytest.approx(np.exp(model.coef_[0]))
    page = (tmp_path / "fit" / "report.html").read_text()
    assert "hazard ratio" in page
    assert 'id="survival"' in page
    assert "Concordance 0." in page
    kept = tmp_path / "fit" / "certificate.json", tmp_path / "fit" / "model.npz"
    assert shell("verify", *kept, *files, *more).exit_code == 0
    assert "in place of --target" in refusal("verify", *kept, *files, "--target", "days")
    scored = json.loads(shell("evaluate", kept[1], *files, *more, "--json").output)
    assert scored["scores"]["concordance"] == co.evaluate(result, TABLES).scores["concordance"]
    baseline = shell("baseline", kept[1], files[1], *more, "-o", tmp_path / "own.csv")
    assert baseline.exit_code == 0, baseline.output
    curve = pd.read_csv(tmp_path / "own.csv")
    assert list(curve)[:3] == ["stratum", "time", "at_risk"]
    assert len(curve) == len(model.baseline(TABLES[1]).table())
    assert "name the columns" in refusal("baseline", kept[1], files[1])


def test_mistakes_at_the_shell_name_the_fix(files, tmp_path):
    out = ["-o", tmp_path / "fit"]
    for arguments, words in [
        (
            ["--loss", "cox", "--target", "days"],
            "--loss cox takes --time COLUMN and --event COLUMN",
        ),
        (["--loss", "cox", "--time", "days"], "--loss cox takes --time COLUMN and --event COLUMN"),
        ([*SURVIVAL], "--time is for survival times: add --loss cox"),
        (
            ["--loss", "cox", "--time", "days", "--event", "age", "--columns", "dose"],
            "has the event",
        ),
    ]:
        assert words in refusal("fit", files[0], *arguments, *out)


# -- concordance -----------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000), n=st.integers(0, 25))
@settings(max_examples=60, deadline=None)
def test_concordance_counts_pairs(seed, n):
    rng = np.random.default_rng(seed)
    time = rng.integers(1, 8, n).astype(float)
    entry = np.floor(time * rng.random(n) * rng.integers(0, 2, n)) - 1.0
    y = co.survival_labels(time, rng.random(n) < 0.6, entry, rng.integers(0, 2, n))
    u, s = rng.integers(0, 4, n).astype(float), rng.uniform(0.5, 2.0, n)
    lower = equal = every = 0.0
    for i in np.flatnonzero(y[:, 1] > 0):
        for j in range(n):
            later = time[j] > time[i] or (time[j] == time[i] and y[j, 1] == 0)
            if later and y[j, 3] == y[i, 3] and entry[j] < time[i]:
                pair = s[i] * s[j]
                every += pair
                lower += pair * (u[i] > u[j])
                equal += pair * (u[i] == u[j])
    np.testing.assert_allclose(concordance_counts(y, u, s), [lower, equal, every], atol=1e-9)


def test_evaluation_is_the_same_at_several_parties():
    model = co.solve(co.Problem("cox"), TABLES).model
    found = co.evaluate(model, TABLES, per_party=True)
    counts = sum(concordance_counts(table.y, table.X @ model.coef_) for table in TABLES)
    assert found.scores["concordance"] == pytest.approx((counts[0] + counts[1] / 2) / counts[2])
    assert found.scores["deviance"] < found.scores["null_deviance"]
    assert set(found.parties) == {"h0", "h1", "h2"}
    assert found.rows == 180


# -- baselines -------------------------------------------------------------------------------------


def test_a_baseline_is_breslows():
    model = co.solve(co.Problem("cox"), (X, LABELS)).model
    found = model.baseline((X, LABELS))
    scores = X @ model.coef_
    times = np.unique(DAYS[DIED == 1])
    steps = [
        (DIED[t == DAYS].sum()) / np.exp(scores - scores.mean())[t <= DAYS].sum() for t in times
    ]
    (curve,) = found.curves
    np.testing.assert_allclose(curve.times, times)
    np.testing.assert_allclose(curve.hazard, np.cumsum(steps))
    np.testing.assert_allclose(curve.at_risk, [(t <= DAYS).sum() for t in times])
    expected = np.exp(-np.exp(scores[:2] - scores.mean())[:, None] * np.cumsum(steps)[[4, 9]])
    np.testing.assert_allclose(found.survival(scores[:2], times[[4, 9]]), expected)
    assert (found.survival(scores[:2], [0.0]) == 1).all()
    # Rows that count n times have the same curve; martingale residuals add up to 0.
    assert (np.exp(scores - scores.mean()) * curve.at(DAYS)).sum() == pytest.approx(DIED.sum())


def test_strata_have_baselines_of_their_own():
    model = co.solve(co.Problem("cox"), TABLES).model
    found = model.baseline(TABLES[0])
    assert [curve.stratum for curve in found.curves] == [0.0, 1.0]
    men = FRAMES[0]["sex"] == "m"
    alone = model.baseline((TABLES[0].X[men], TABLES[0].y[men]))
    shift = np.exp(alone.reference - found.reference)
    np.testing.assert_allclose(found.curves[1].hazard, alone.curves[0].hazard / shift)
    with pytest.raises(UnknownName, match="stratum"):
        found.survival([0.0], [1.0])
    with pytest.raises(InvalidData, match="no times and events"):
        model.baseline((X, DAYS))


# -- the estimator ---------------------------------------------------------------------------------


@pytest.mark.slow
@parametrize_with_checks([co.CoxRegressor()])
def test_scikit_learn_approves(estimator, check):
    check(estimator)


def test_the_estimator_takes_labels_as_people_have_them():
    first = co.CoxRegressor("none", tol=1e-9).fit(X, DAYS, DIED)
    structured = np.array([*zip(DIED == 1, DAYS, strict=True)], [("event", bool), ("time", float)])
    for y in (LABELS, structured):
        np.testing.assert_array_equal(clone(first).fit(X, y).coef_, first.coef_)
    twin = co.solve(co.Problem("cox"), (X, LABELS), tol=1e-9)
    np.testing.assert_array_equal(first.coef_, twin.model.coef_)
    assert first.score(X, DAYS, DIED) == pytest.approx(
        co.evaluate(twin, (X, LABELS)).scores["concordance"]
    )
    curves = first.predict_survival(X[:3], [10.0, 500.0])
    assert curves.shape == (3, 2)
    assert (np.diff(curves, axis=1) < 0).all()
    assert first.certificate_.gap < 1e-6
    with pytest.raises(InvalidData, match="Give them once"):
        co.CoxRegressor().fit(X, structured, event=DIED)
    with pytest.raises(InvalidData, match="two fields"):
        co.CoxRegressor().fit(X, np.array([(1.0, 2.0)] * len(X), [("a", float), ("b", float)]))


def test_strata_and_entry_reach_the_fit():
    frame, table = FRAMES[0], TABLES[0]
    fitted = co.CoxRegressor("l1", alpha=0.01).fit(
        table.X, frame["days"], event=frame["died"], entry=frame["since"], strata=frame["sex"]
    )
    twin = co.solve(co.Problem("cox", "l1", 0.01), table)
    np.testing.assert_array_equal(fitted.coef_, twin.model.coef_)
    assert len(fitted.baseline_) == 1
    assert len(fitted.baseline_[0].curves) == 2
    with pytest.raises(InvalidProblem, match="strength"):
        co.CoxRegressor("l2", alpha=-1.0).fit(X, DAYS, DIED)


def test_an_offset_reaches_the_fit_and_what_is_predicted():
    shift = np.linspace(-1.0, 1.0, len(X))
    fitted = co.CoxRegressor("none", tol=1e-9).fit(X, DAYS, DIED, offset=shift)
    twin = co.solve(co.Problem("cox"), (X, LABELS), offset=shift, tol=1e-9)
    np.testing.assert_array_equal(fitted.coef_, twin.model.coef_)
    np.testing.assert_allclose(fitted.predict(X, shift), X @ fitted.coef_ + shift)
    assert fitted.score(X, DAYS, DIED, offset=shift) != fitted.score(
        X, DAYS, DIED, offset=np.zeros(len(X))
    )
    later = fitted.predict_survival(X[:3], [100.0], offset=shift[:3] + 1.0)
    assert (later < fitted.predict_survival(X[:3], [100.0], offset=shift[:3])).all()
    with pytest.raises(InvalidInput, match="fitted with an offset"):
        fitted.predict(X)


# -- agents and strata -----------------------------------------------------------------------------


def pooled_rows(n=300):
    """Rows whose order says much about their hazards, so that blocks of them are strata that
    matter.
    """
    rng = np.random.default_rng(5)
    rows = np.column_stack([rng.integers(0, 2, n), rng.integers(17, 45, n)]).astype(float)
    place = np.linspace(-1.5, 1.5, n)
    rows[:, 0] = rng.random(n) < 0.5 + 0.3 * place / 1.5
    weeks = np.ceil(
        40 * rng.exponential(np.exp(0.4 * rows[:, 0] + 0.05 * (rows[:, 1] - 30) + place))
    )
    return rows, np.minimum(weeks, 52.0), (weeks <= 52).astype(float)


ROWS, WEEKS, ARRESTED = pooled_rows()
POOLED = co.survival_labels(WEEKS, ARRESTED)


def test_the_model_of_pooled_rows_does_not_depend_on_agents():
    expected = PHReg(WEEKS, ROWS, ARRESTED, ties="breslow").fit().params
    strata = np.repeat(np.arange(6), 50)
    stratified = PHReg(WEEKS, ROWS, ARRESTED, ties="breslow", strata=strata).fit().params
    assert np.abs(expected - stratified).max() > 0.1
    problem = co.Problem("cox", intercept=False)
    for agents in (None, 1, [300]):
        found = co.solve(problem, (ROWS, POOLED), agents=agents, tol=1e-10).model.coef_
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        by_estimator = co.CoxRegressor("none", agents=agents, tol=1e-10).fit(ROWS, WEEKS, ARRESTED)
        np.testing.assert_allclose(by_estimator.coef_, expected, rtol=1e-5)
    asked = co.Problem("cox", agent_strata=True, intercept=False)
    result = co.solve(asked, (ROWS, POOLED), agents=6, tol=1e-10)
    np.testing.assert_allclose(result.model.coef_, stratified, rtol=1e-5)
    fitted = co.CoxRegressor("none", agents=6, agent_strata=True, tol=1e-10).fit(
        ROWS, WEEKS, ARRESTED
    )
    np.testing.assert_array_equal(fitted.coef_, result.model.coef_)
    assert co.Problem.from_settings(asked.settings()) == asked
    assert co.verify(result.certificate, result.model, (ROWS, POOLED)).holds
    parties = [(ROWS[rows], POOLED[rows]) for rows in np.array_split(np.arange(300), 6)]
    np.testing.assert_allclose(
        co.solve(problem, parties, tol=1e-10).model.coef_, stratified, rtol=1e-5
    )


def test_several_agents_of_pooled_rows_are_refused():
    problem, data = co.Problem("cox", "l2", 0.1, intercept=False), (ROWS, POOLED)
    result = co.solve(problem, data)
    for agents in (2, np.int64(8), [100, 200], [list(range(150)), list(range(150, 300))]):
        for ask in (
            lambda agents: co.solve(problem, data, agents=agents),
            lambda agents: co.solve(problem, data, agents=agents, prepare="standardise"),
            lambda agents: co.solve(problem, co.Table(*data), agents=agents, engine="peers"),
            lambda agents: co.path(problem, data, [0.1], agents=agents),
            lambda agents: co.plan(problem, data, agents=agents),
            lambda agents: co.evaluate(result, data, agents=agents),
            lambda agents: co.CoxRegressor(agents=agents).fit(ROWS, WEEKS, ARRESTED),
        ):
            with pytest.raises(
                InvalidProblem, match=r"every agent is a stratum .* agent_strata=True"
            ):
                ask(agents)
    with pytest.raises(InvalidProblem, match="agents must be a whole number"):
        co.solve(problem, data, agents=2.5)
    with pytest.raises(InvalidProblem, match="agent_strata is True or False"):
        co.Problem("cox", agent_strata="party", intercept=False)
    assert co.plan(problem, (200, 3), agents=4).rounds > 0


def test_results_say_by_what_they_are_stratified(tmp_path):
    problem = co.Problem("cox", intercept=False)
    parties = [(ROWS[::2], POOLED[::2]), (ROWS[1::2], POOLED[1::2])]
    words = "tratified by party: 2 parties, each with its own baseline hazard"
    result = co.solve(problem, parties)
    assert words in str(result)
    assert words in str(result.inference())
    result.save(tmp_path)
    assert words in str(co.Result.load(tmp_path))
    assert words in co.report.write_report(result, tmp_path / "report.html").read_text()
    alone = co.solve(problem, (ROWS, POOLED))
    assert "Not stratified by party" in str(alone)
    assert "not stratified by party" in str(alone.inference())
    by_agent = co.solve(
        co.Problem("cox", agent_strata=True, intercept=False), (ROWS, POOLED), agents=3
    )
    assert "Stratified by agent: 3 agents" in str(by_agent)


def test_the_shell_fits_one_file_as_one_stratum(tmp_path):
    file = tmp_path / "all.csv"
    pd.DataFrame({"fin": ROWS[:, 0], "age": ROWS[:, 1], "days": WEEKS, "died": ARRESTED}).to_csv(
        file, index=False
    )
    ask = ["fit", file, "--loss", "cox", *SURVIVAL, "-o", tmp_path / "fit", "--json"]
    problem = co.Problem("cox", intercept=False)
    found = shell(*ask)
    assert found.exit_code == 0, found.output
    model = co.models.load_model(tmp_path / "fit" / "model.npz")
    np.testing.assert_array_equal(model.coef_, co.solve(problem, (ROWS, POOLED)).model.coef_)
    assert "Not stratified by party" in json.loads(found.output)["explanation"]
    assert "6 agents would fit another model" in refusal(*ask, "--agents", "6")
    stratified = shell(*ask, "--agents", "6", "--option", "agent-strata=true", "--test", "0.3")
    assert stratified.exit_code == 0, stratified.output
    assert "Stratified by agent: 6 agents" in json.loads(stratified.output)["explanation"]


class Counting(Local):
    """A cluster that only says how many parts of a data frame it is asked for."""

    def hosting(self, data, agents):
        raise InvalidData(f"asked for {agents} parts")


def test_partitions_of_a_data_frame_are_no_strata():
    """Workers hold partitions as it happens; the model is that of all rows, so one worker has
    them.
    """
    rows, problem = (
        co.Rows(None, target=["days", "died"]),
        co.Problem("cox", "l2", 0.1, intercept=False),
    )
    model = co.solve(problem, (ROWS, POOLED)).model
    for ask in (
        lambda: co.solve(problem, rows, engine=Counting()),
        lambda: co.CoxRegressor(engine=Counting()).fit(rows),
        lambda: co.evaluate(model, rows, engine=Counting()),
    ):
        with pytest.raises(InvalidData, match="asked for 1 parts"):
            ask()
    for ask in (co.solve, co.path):
        with pytest.raises(InvalidProblem, match="every agent is a stratum"):
            ask(problem, rows, engine=Counting(), agents=7)
    for ask in (co.plan, co.path):
        with pytest.raises(InvalidData, match="Rows of a NoneType are in a cluster"):
            ask(problem, rows)
    strata = co.Problem("cox", agent_strata=True, intercept=False)
    with pytest.raises(InvalidData, match="asked for None parts"):
        co.solve(strata, rows, engine=Counting())
