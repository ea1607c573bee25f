"""Prepared fits equal pooled pipelines of scikit-learn; what cannot be prepared is refused in
words.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)

import coterie as co
from coterie.data.preparation.prepared import Cells, Prepared
from coterie.data.preparation.recipes import recipe_of
from coterie.data.remote import Rows, table_of
from coterie.errors import InvalidData, InvalidInput, InvalidProblem, ProtocolError, UnknownName
from coterie.run.site import Site
from coterie.stats.categories import category_counts
from coterie.stats.preparation import extremes

RIDGE = co.Problem("squared", "l2", 0.1, intercept=True)


def patients(n=240, seed=0):
    """Numbers on scales of their own, missing ones, and text of which one party alone has a
    category.
    """
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 90, n).astype(float),
            "income": np.exp(rng.normal(10, 1, n)),
            "bmi": rng.normal(25, 4, n),
            "visits": rng.poisson(2, n).astype(float),
            "city": rng.choice(["Bern", "Lyon", "Ulm", "Oslo"], n, p=[0.5, 0.3, 0.17, 0.03]),
        }
    )
    frame.loc[rng.random(n) < 0.2, "bmi"] = np.nan
    frame.loc[n - 20 :, "city"] = "Rom"
    y = (
        0.02 * frame["age"]
        + (frame["city"] == "Bern")
        + frame["bmi"].fillna(20) / 10
        + rng.normal(size=n)
    )
    return frame, y.to_numpy()


FRAME, Y = patients()
PARTS = [(FRAME.iloc[:90], Y[:90]), (FRAME.iloc[90:150], Y[90:150]), (FRAME.iloc[150:], Y[150:])]


def ridge(pipeline, frame=FRAME, y=Y, strength=0.1):
    """The pooled fit: Coterie's loss is the mean of squares over 2."""
    return make_pipeline(pipeline, Ridge(alpha=strength * len(y), tol=1e-12)).fit(frame, y)


def knots_of(model, column):
    fitted = next(one for one in model.preparation.columns if one.name == column)
    return np.array(fitted.steps[0].knots)[:, None]


NUMBERS = ["age", "income", "bmi", "visits"]
HOT = OneHotEncoder(min_frequency=12, handle_unknown="infrequent_if_exist", sparse_output=False)
PIPELINES = {
    "standardise": (
        {"numbers": "impute, standardise", "text": "one-hot"},
        lambda model: ColumnTransformer(
            [
                ("n", make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS),
                ("c", OneHotEncoder(sparse_output=False), ["city"]),
            ]
        ),
    ),
    "min-max, rare pooled": (
        {"numbers": "impute, min-max", "text": "one-hot(12)"},
        lambda model: ColumnTransformer(
            [("n", make_pipeline(SimpleImputer(), MinMaxScaler()), NUMBERS), ("c", HOT, ["city"])]
        ),
    ),
    "indicator and a constant": (
        {
            "numbers": "standardise",
            "text": "one-hot(12)",
            "columns": {"bmi": "impute(mean, indicator), standardise", "visits": "impute(-1)"},
        },
        lambda model: ColumnTransformer(
            [
                ("n", StandardScaler(), ["age", "income"]),
                ("i", make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["bmi"]),
                ("v", SimpleImputer(strategy="constant", fill_value=-1), ["visits"]),
                ("c", HOT, ["city"]),
            ]
        ),
    ),
    "polynomial": (
        {
            "numbers": "impute, standardise",
            "text": "one-hot",
            "columns": {
                "age": "standardise, polynomial(3)",
                "visits": "polynomial(2), standardise",
            },
        },
        lambda model: ColumnTransformer(
            [
                ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["income", "bmi"]),
                (
                    "p",
                    make_pipeline(StandardScaler(), PolynomialFeatures(3, include_bias=False)),
                    ["age"],
                ),
                (
                    "v",
                    make_pipeline(PolynomialFeatures(2, include_bias=False), StandardScaler()),
                    ["visits"],
                ),
                ("c", OneHotEncoder(sparse_output=False), ["city"]),
            ]
        ),
    ),
    "spline": (
        {
            "numbers": "impute, standardise",
            "text": "one-hot",
            "columns": {"age": "spline(5)", "income": "spline(4, 2), standardise"},
        },
        lambda model: ColumnTransformer(
            [
                ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["bmi", "visits"]),
                ("s", SplineTransformer(knots=knots_of(model, "age"), include_bias=False), ["age"]),
                (
                    "t",
                    make_pipeline(
                        SplineTransformer(
                            degree=2, knots=knots_of(model, "income"), include_bias=False
                        ),
                        StandardScaler(),
                    ),
                    ["income"],
                ),
                ("c", OneHotEncoder(sparse_output=False), ["city"]),
            ]
        ),
    ),
}


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("case", PIPELINES)
def test_prepared_fits_equal_pooled_pipelines(case, secure):
    recipes, pooled = PIPELINES[case]
    result = co.solve(
        RIDGE, PARTS, prepare=co.Preparation(**recipes), tol=1e-12, secure_sums=secure
    )
    expected = ridge(pooled(result.model))
    assert result.status.success
    np.testing.assert_allclose(result.model.predict(FRAME), expected.predict(FRAME), rtol=1e-6)
    found, known = sorted(result.model.coef_), sorted(expected[-1].coef_)
    np.testing.assert_allclose(found, known, rtol=1e-6, atol=1e-6 * np.abs(known).max())
    assert result.bill.per_purpose["preparation"].bits > 0
    assert result.bill.total.bits == sum(cost.bits for cost in result.bill.per_purpose.values())
    assert result.history[0].bits > result.bill.per_purpose["preparation"].bits
    assert co.verify(result.certificate, result.model, PARTS).holds


def test_a_classifier_and_one_piece():
    """Text labels are not prepared, and data in one piece gives the same as a list of parties."""
    labels = np.where(np.median(Y) < Y, "ill", "well")
    problem = co.Problem("logistic", "l2", 0.05, intercept=True)
    recipes = ["impute, standardise", "one-hot(12)"]
    result = co.solve(problem, (FRAME, labels), agents=5, prepare=recipes, tol=1e-12)
    pooled = ColumnTransformer(
        [("n", make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS), ("c", HOT, ["city"])]
    )
    expected = make_pipeline(
        pooled, LogisticRegression(C=1 / (0.05 * len(Y)), tol=1e-12, max_iter=10_000)
    )
    expected.fit(FRAME, labels)
    np.testing.assert_allclose(
        result.model.predict_proba(FRAME), expected.predict_proba(FRAME), atol=1e-6
    )
    assert set(result.model.predict(FRAME)) == {"ill", "well"}
    assert co.verify(result.certificate, result.model, (FRAME, labels)).holds
    three = co.solve(problem, (FRAME, labels), agents=[90, 60, 90], prepare=recipes, tol=1e-12)
    np.testing.assert_allclose(three.model.coef_, result.model.coef_, atol=1e-8)


def test_multinomial_models_take_raw_columns():
    labels = np.digitize(Y, np.quantile(Y, [0.3, 0.7]))
    problem = co.Problem("multinomial", "l2", 0.05, intercept=True)
    result = co.solve(
        problem, (FRAME, labels), agents=3, prepare=["impute, standardise", "one-hot"]
    )
    assert result.model.predict_proba(FRAME).shape == (len(FRAME), 3)
    assert co.verify(result.certificate, result.model, (FRAME, labels)).holds


def test_nothing_changes_without_it():
    X = FRAME[["age", "visits"]]
    plain = co.solve(RIDGE, (X, Y), agents=3)
    kept = co.solve(RIDGE, (X, Y), agents=3, prepare="keep")
    assert plain.model.preparation is None
    assert "preparation" not in plain.bill.per_purpose
    assert "prepare" not in plain.certificate.settings
    np.testing.assert_array_equal(plain.model.coef_, kept.model.coef_)


def test_by_features_each_party_prepares_its_own_columns_without_a_message():
    parts = [
        (FRAME[["age", "city"]], Y),
        (FRAME[["income", "bmi"]], None),
        (FRAME[["visits"]], None),
    ]
    recipes = {"numbers": "impute, standardise", "text": "one-hot"}
    apart = co.solve(RIDGE, parts, split="features", same_order=True, prepare=recipes, tol=1e-10)
    together = co.solve(RIDGE, PARTS, prepare=recipes, tol=1e-12)
    assert "preparation" not in apart.bill.per_purpose
    mine = FRAME[["age", "city", "income", "bmi", "visits"]]
    np.testing.assert_allclose(apart.model.predict(mine), together.model.predict(FRAME), rtol=1e-4)
    assert co.verify(apart.certificate, apart.model, parts).holds
    dealt = co.solve(
        RIDGE, (FRAME, Y), split="features", agents=[[4, 1], [0, 2, 3]], prepare=recipes, tol=1e-10
    )
    np.testing.assert_allclose(dealt.model.predict(FRAME), together.model.predict(FRAME), rtol=1e-4)
    assert dealt.model.columns == together.model.columns
    assert co.verify(dealt.certificate, dealt.model, (FRAME, Y)).holds


def test_without_a_penalty_the_first_category_is_left_out_and_inference_works():
    recipes = ["impute, standardise", "one-hot(12, drop-first)"]
    problem = co.Problem("squared", "none", intercept=True)
    result = co.solve(problem, PARTS, prepare=recipes, tol=1e-10)
    X = ColumnTransformer(
        [("n", make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS), ("c", HOT, ["city"])]
    ).fit_transform(FRAME)
    expected = LinearRegression().fit(np.delete(X, 4, axis=1), Y)
    np.testing.assert_allclose(result.model.coef_, expected.coef_, atol=1e-6)
    table = result.inference()
    assert "city=Lyon" in table.names
    np.testing.assert_allclose(result.inference(data=PARTS).standard_errors, table.standard_errors)


# -- what is odd -----------------------------------------------------------------------------------


def test_a_party_with_a_constant_column_and_one_without_values():
    parts = [(frame.copy(), y) for frame, y in PARTS]
    parts[0][0]["age"] = 40.0
    parts[1][0]["bmi"] = np.nan
    whole = pd.concat([frame for frame, _ in parts])
    recipes = {"numbers": "impute, standardise", "text": "one-hot"}
    result = co.solve(RIDGE, parts, prepare=recipes, tol=1e-12)
    pooled = ColumnTransformer(
        [
            ("n", make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS),
            ("c", OneHotEncoder(sparse_output=False), ["city"]),
        ]
    )
    np.testing.assert_allclose(
        result.model.predict(whole), ridge(pooled, whole).predict(whole), rtol=1e-6
    )


def test_a_column_that_is_constant_everywhere_is_only_shifted():
    X = np.column_stack([np.full(len(Y), 1e8 + 0.1), np.arange(len(Y)) / 7])
    for recipe in ("standardise", "min-max"):
        model = co.solve(RIDGE, (X, Y), agents=3, prepare=recipe).model
        assert model.preparation.columns[0].steps[0].scale == [1.0]
        assert np.abs(model.coef_[0]) < 1e-6
    with pytest.raises(InvalidData, match="'x0' has one value at all parties"):
        co.solve(RIDGE, (X, Y), agents=3, prepare="x0: spline(4)")


def test_a_party_without_rows():
    empty = (FRAME.iloc[:0], Y[:0])
    recipes = [
        "impute, min-max",
        "one-hot",
        "age: spline(4), standardise",
        "visits: polynomial(2), standardise",
    ]
    expected = co.solve(RIDGE, PARTS, prepare=recipes, tol=1e-12).model
    for secure in (False, True):
        found = co.solve(
            RIDGE, [*PARTS, empty], prepare=recipes, tol=1e-12, secure_sums=secure
        ).model
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-9)


def test_missing_everywhere_is_refused_and_so_are_missing_values_without_impute():
    frame = FRAME.drop(columns="city")
    with pytest.raises(
        InvalidData,
        match=r"column 'bmi' has \d+ missing values at all parties.*Begin it with impute",
    ):
        co.solve(RIDGE, (frame, Y), prepare="standardise")
    frame = frame.assign(bmi=np.nan)
    with pytest.raises(InvalidData, match=r"column 'bmi' has no value at any party. Leave it out"):
        co.solve(RIDGE, (frame, Y), prepare="impute, standardise")


def test_missing_text_is_a_category():
    frame = FRAME.assign(city=FRAME["city"].where(FRAME["city"] != "Lyon"))
    model = co.solve(RIDGE, (frame, Y), agents=3, prepare=["impute", "one-hot"]).model
    assert model.columns[-4:] == ("city=Oslo", "city=Rom", "city=Ulm", "city=(missing)")
    assert np.isfinite(model.predict(frame)).all()


def test_text_at_one_party_and_numbers_at_another_are_the_same_categories():
    one, other = FRAME.iloc[:120].assign(code="A"), FRAME.iloc[120:].assign(code=7)
    one.loc[:60, "code"] = "7"
    parts = [(one[["age", "code"]], Y[:120]), (other[["age", "code"]], Y[120:])]
    model = co.solve(RIDGE, parts, prepare=["standardise", "one-hot"]).model
    assert model.columns == ("age", "code=7", "code=A")
    with pytest.raises(
        InvalidData, match=r"'code' holds text, e.g. '7', and its recipe is 'standardise'"
    ):
        co.solve(RIDGE, parts, prepare=["code: standardise"])
    with pytest.raises(
        InvalidData, match=r"'code' holds text, e.g. '7', and there is no recipe for it"
    ):
        co.solve(RIDGE, parts, prepare="standardise")


@pytest.mark.parametrize("kind", ["pandas", "nullable", "categories", "polars", "arrow", "rows"])
def test_frames_of_all_kinds_are_read_alike(kind):
    frame = FRAME.assign(ok=FRAME["age"] > 50, gone=None)
    made = {
        "pandas": lambda: frame,
        "nullable": lambda: frame.astype(
            {"bmi": "Float64", "visits": "Int64", "city": "string", "ok": "boolean"}
        ),
        "categories": lambda: frame.astype({"city": "category"}),
        "polars": lambda: pytest.importorskip("polars").from_pandas(frame),
        "arrow": lambda: pa.Table.from_pandas(frame),
        "rows": lambda: pa.Table.from_pandas(frame.assign(y=Y)),
    }[kind]()
    recipes = co.Preparation("impute", text="one-hot")
    rows = Rows(None, target="y", prepare=recipes)
    table = table_of(made, rows) if kind == "rows" else co.read(made, prepare=recipes)
    assert table.columns == tuple(frame.columns)
    assert table.texts == {"city": ("Bern", "Lyon", "Oslo", "Rom", "Ulm")}
    np.testing.assert_array_equal(table.X[:, 2], FRAME["bmi"])
    np.testing.assert_array_equal(
        np.array(table.texts["city"])[table.X[:, 4].astype(int)], FRAME["city"]
    )
    np.testing.assert_array_equal(table.X[:, 5], FRAME["age"] > 50)
    assert np.isnan(table.X[:, 6]).all()
    with pytest.raises(
        InvalidData, match=r"'day' holds 240 values of type .*, neither numbers nor text"
    ):
        co.read(frame.assign(day=pd.Timestamp("2026-01-01")), prepare=recipes)


def test_rare_names_are_not_told():
    """Of a category that is too rare, others learn a hash and a count; the model does not name
    it.
    """
    frame = pd.DataFrame(
        {"x": np.arange(60) / 7, "name": ["a"] * 30 + ["b"] * 28 + ["secret", "hidden"]}
    )
    model = co.solve(
        RIDGE, [(frame[:20], Y[:20]), (frame[20:], Y[20:60])], prepare="one-hot(5)"
    ).model
    assert model.columns == ("x", "name=a", "name=b", "name=(other)")
    assert "secret" not in json.dumps(model.preparation.state())


@pytest.mark.filterwarnings("ignore::coterie.errors.DataWarning")
def test_too_many_categories_and_too_long_ones():
    ids = pd.DataFrame({"id": [f"person {k}" for k in range(1200)]})
    y = np.arange(1200.0)
    with pytest.raises(
        InvalidData, match=r"'id' has 1200 categories, more than 1000. Pool rare ones"
    ):
        co.solve(RIDGE, (ids, y), agents=3, prepare="one-hot")
    with pytest.raises(InvalidData, match="'id' has a category of 5001 bytes"):
        co.solve(RIDGE, (ids.assign(id="x" * 5000), y), agents=3, prepare="one-hot")


def packed(*content):
    """Bytes of names and their lengths, as numbers of a message."""
    whole = b"".join(content)
    whole = whole.ljust(-(-len(whole) // 6) * 6, b"\0")
    return [float(int.from_bytes(whole[k : k + 6], "big")) for k in range(0, len(whole), 6)]


NAMED = packed(b"\0\2ta", b"\0\2tb")
"""What the party of the next test sends."""


@pytest.mark.parametrize(
    "answers",
    [
        [[2.0, 1e9]],
        [[1.0, 1.0]],
        [[2.0, 0.0], [1.0, 2.0]],
        [[2.0, 1.0], [*NAMED, 0.5]],
        [[2.0, 2.0], [*NAMED, *packed(b"\0\2ta", b"\0\2ta")]],
        [[2.0, 1.0], [*NAMED, *packed(b"\0\7ta")]],
        [[2.0, 2.0], [*NAMED, *packed(b"\0\2ta"), 0.0]],
        [[2.0, 1.0], [*NAMED, *packed(b"\0\2ta\0\0"[:4], b"\0\3")]],
    ],
)
def test_what_a_party_may_not_tell(answers):
    """Sizes and names that cannot be are found before anything is made of them."""
    protocol = category_counts(
        "town", Cells(np.array([0.0, 1.0, 1.0]), ("a", "b")), 1, True, Site(0, 2, None)
    )
    message = next(protocol).x
    for answer in answers[:-1]:
        message = protocol.send(message if answer is None else np.array(answer)).x
    with pytest.raises(
        ProtocolError, match=r"a party sent impossible sizes|do not agree on the categories"
    ):
        protocol.send(np.array(answers[-1]))


def test_what_is_far_from_the_fit():
    model = co.solve(RIDGE, PARTS, prepare=["impute, standardise", "one-hot"]).model
    new = FRAME.head(4).copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(new)
    with pytest.warns(UserWarning, match=r"1 column is far .*'age' \(2 rows\)"):
        model.predict(new.assign(age=[20, 9000, -5000, 30]))
    with pytest.raises(
        InvalidData, match=r"'city' has 1 category in 1 row that the fit did not have: 'Wien'"
    ):
        model.predict(new.assign(city=["Bern", "Wien", "Ulm", "Ulm"]))
    with pytest.raises(InvalidData, match=r"'age' has text, e.g. 'new'; it had numbers"):
        model.predict(new.assign(age=["old", "old", "new", "new"]))
    with pytest.raises(InvalidData, match=r"'age' has 1 infinite value. Correct"):
        model.predict(new.assign(age=[1, 2, 3, np.inf]))
    pooled = co.solve(RIDGE, PARTS, prepare=["impute, standardise", "one-hot(12)"]).model
    rare, unknown = (pooled.predict(new.assign(city=name)) for name in ("Oslo", "Wien"))
    np.testing.assert_array_equal(rare, unknown)
    assert np.isfinite(pooled.predict(new.drop(columns="bmi").assign(bmi=np.nan))).all()


def test_arrays_without_names_and_lists():
    X = FRAME[NUMBERS].to_numpy()
    model = co.solve(
        RIDGE, (X, Y), agents=3, prepare=["impute, standardise", "x0: spline(4)"]
    ).model
    assert model.columns[:2] == ("x0 spline 1", "x0 spline 2")
    np.testing.assert_array_equal(model.predict(X), model.predict(X.tolist()))
    objects = FRAME.to_numpy()
    text = co.solve(RIDGE, (objects, Y), agents=3, prepare=["impute, standardise", "one-hot"]).model
    named = co.solve(RIDGE, (FRAME, Y), agents=3, prepare=["impute, standardise", "one-hot"]).model
    np.testing.assert_allclose(text.predict(objects), named.predict(FRAME))
    np.testing.assert_allclose(text.predict(objects.tolist()), named.predict(FRAME))
    with pytest.raises(InvalidData, match=r"is for 4 columns .* but here are 3"):
        model.predict(X[:, :3])


def test_a_fitted_preparation_is_used_again_without_a_message():
    first = co.solve(RIDGE, PARTS, prepare=PIPELINES["spline"][0], tol=1e-12)
    again = co.solve(RIDGE, PARTS, prepare=first.model.preparation, tol=1e-12)
    np.testing.assert_array_equal(again.model.coef_, first.model.coef_)
    assert "preparation" not in again.bill.per_purpose
    assert again.model.preparation == first.model.preparation
    apart = co.solve(
        RIDGE, (FRAME, Y), split="features", agents=2, prepare=first.model.preparation, tol=1e-8
    )
    np.testing.assert_allclose(apart.model.predict(FRAME), first.model.predict(FRAME), rtol=1e-3)
    shuffled = FRAME[["city", "age", "visits", "bmi", "income"]].assign(more=1.0)
    for prepared in (first.model.preparation, apart.model.preparation):
        tables = [
            co.read((frame, Y[:30]), prepare=prepared) for frame in (FRAME[:30], shuffled[:30])
        ]
        np.testing.assert_array_equal(*(prepared.apply(table).X for table in tables))


def test_the_file_of_a_model_has_its_preparation(tmp_path):
    recipes = {**PIPELINES["spline"][0], "text": "one-hot(12)"}
    result = co.solve(RIDGE, PARTS, prepare=recipes)
    result.save(tmp_path)
    again = co.Result.load(tmp_path)
    assert again.model.preparation == result.model.preparation
    np.testing.assert_array_equal(again.model.predict(FRAME), result.model.predict(FRAME))
    assert co.verify(again.certificate, again.model, PARTS).holds
    assert again.certificate.settings["prepare"]["text"] == "one-hot(12)"
    page = co.report.write_report(result, tmp_path / "report.html").read_text()
    assert "impute, standardise; one-hot(12); age: spline(5)" in page
    changed = again.model.preparation.state()
    changed["columns"][0]["steps"][0]["knots"][0] -= 1.0
    other = type(again.model)(**{**vars(again.model), "preparation": Prepared.restored(changed)})
    assert not co.verify(again.certificate, other, PARTS).holds
    with pytest.raises(ValueError, match="its preparation is damaged"):
        Prepared.restored({"columns": 3})


def test_survival_models_take_raw_columns():
    rng = np.random.default_rng(4)
    times = co.survival_labels(np.ceil(rng.exponential(20, len(Y))), rng.random(len(Y)) < 0.7)
    problem, columns = co.Problem("cox", "l2", 0.01), ["age", "bmi", "city"]
    parts = [(FRAME[columns].iloc[rows], times[rows]) for rows in (slice(0, 100), slice(100, None))]
    result = co.solve(problem, parts, prepare=["impute, standardise", "one-hot(12)"], tol=1e-9)
    pooled = ColumnTransformer(
        [("n", make_pipeline(SimpleImputer(), StandardScaler()), columns[:2]), ("c", HOT, ["city"])]
    ).fit(FRAME)
    by_hand = [(pooled.transform(frame), y) for frame, y in parts]
    expected = co.solve(problem, by_hand, tol=1e-9)
    np.testing.assert_allclose(result.model.coef_, expected.model.coef_, atol=1e-8)
    found, known = result.model.baseline(parts[0]), expected.model.baseline(by_hand[0])
    np.testing.assert_allclose(found.curves[0].hazard, known.curves[0].hazard, rtol=1e-6)
    assert co.verify(result.certificate, result.model, parts).holds


def test_numbers_that_do_not_follow_from_the_data_are_found():
    """A proof about other numbers holds for these; `verify` says that the recipes do not give
    them.
    """
    recipes = {"numbers": "impute, standardise", "text": "one-hot"}
    first = co.solve(RIDGE, PARTS, prepare=recipes)
    state = first.model.preparation.state()
    state["columns"][0]["steps"][1]["shift"][0] += 1e-3
    other = co.solve(RIDGE, PARTS, prepare=Prepared.restored(state))
    assert co.verify(other.certificate, other.model, PARTS).holds
    claimed = {**other.certificate.settings, "prepare": co.Preparation(**recipes).settings()}
    forged = replace(other.certificate, settings=claimed)
    found = co.verify(forged, other.model, PARTS).objections
    assert found == ("the numbers of the preparation do not follow from the data",)
    silent = replace(
        other.certificate, settings={k: v for k, v in claimed.items() if k != "prepare"}
    )
    assert (
        "disagree on whether columns were prepared"
        in co.verify(silent, other.model, PARTS).objections[0]
    )
    ring = co.solve(RIDGE, PARTS, prepare=recipes, network="ring", secure_sums=True)
    assert co.verify(ring.certificate, ring.model, PARTS).holds


def test_a_preparation_changes_neither_labels_nor_weights():
    rng = np.random.default_rng(3)
    counts, weights = rng.poisson(3, len(Y)).astype(float), rng.uniform(1, 2, len(Y))
    X = FRAME[["age", "visits"]]
    problem = co.Problem("poisson", "l2", 0.01, intercept=True)
    prepared = co.solve(problem, (X, counts, weights), agents=3, prepare="standardise", tol=1e-10)
    by_hand = StandardScaler().fit_transform(X)
    expected = co.solve(problem, (by_hand, counts, weights), agents=3, tol=1e-10)
    np.testing.assert_allclose(prepared.model.coef_, expected.model.coef_, atol=1e-9)


# -- the shell -------------------------------------------------------------------------------------


@pytest.fixture
def run(shell):
    for k, (frame, y) in enumerate(PARTS):
        frame.assign(code=[f"{j % 3:03d}" for j in range(len(frame))], cost=y).to_csv(
            f"party{k}.csv", index=False
        )
    return shell


FILES = ["party0.csv", "party1.csv", "party2.csv", "--target", "cost"]
FIT = ["fit", *FILES, "--strength", "0.1", "--intercept", "--tol", "1e-10", "-o", "answer"]


def test_text_in_csv_at_several_parties_from_fit_to_predict(run, tmp_path):
    """Codes stay text where their column is named: 007 is not 7."""
    recipes = [
        "--prepare",
        "impute, standardise",
        "--prepare",
        "one-hot(12)",
        "--prepare",
        "code: one-hot",
    ]
    code, out, err = run(*FIT, *recipes)
    assert code == 0, out + err
    model = co.models.load_model("answer/model.npz")
    assert model.columns[-4:] == ("city=(other)", "code=000", "code=001", "code=002")
    assert run("verify", "answer/certificate.json", "answer/model.npz", *FILES)[0] == 0
    code, out, err = run(
        "predict", "answer/model.npz", "party1.csv", "--keep", "city", "-o", "out.csv"
    )
    assert (code, err) == (0, "")
    found = pd.read_csv("out.csv")
    table = co.read("party1.csv", columns=model.preparation.raw, prepare=model.preparation)
    np.testing.assert_allclose(found["prediction"], model.predict(table))
    new = pd.read_csv("party1.csv", dtype={"code": str}).assign(age=5000.0)
    new.to_csv("new.csv", index=False)
    code, _, err = run("predict", "answer/model.npz", "new.csv", "-o", "out.csv")
    assert code == 0
    assert (
        "warning: 1 column is far from what the model was fitted to: 'age' (60 rows)"
        in " ".join(err.split())
    )
    new.assign(code="004").to_csv("new.csv", index=False)
    code, _, err = run("predict", "answer/model.npz", "new.csv")
    assert code == 3
    assert "'code' has 1 category in 60 rows that the fit did not have: '004'" in " ".join(
        err.split()
    )


def test_recipes_in_files(run, tmp_path):
    recipes = {"numbers": "impute, min-max", "text": "one-hot", "columns": {"age": "spline(4)"}}
    written = 'numbers = "impute, min-max"\ntext = "one-hot"\n[columns]\nage = "spline(4)"\n'
    (tmp_path / "recipes.toml").write_text(written)
    (tmp_path / "fit.toml").write_text(
        written.replace("numbers", "[prepare]\nnumbers").replace("[col", "[prepare.col")
    )
    code, out, err = run(*FIT, "--config", "fit.toml")
    assert code == 0, out + err
    model, certificate = (
        co.models.load_model("answer/model.npz"),
        co.Certificate.load("answer/certificate.json"),
    )
    assert certificate.settings["prepare"] == recipes
    assert "age spline 1" in model.columns
    assert run("plan", *FILES, "--prepare", "recipes.toml")[0] == 0
    assert "prepare=" in (tmp_path / "answer" / "report.html").read_text()
    assert run(*FIT, "--prepare", "recipes.toml", "--prepare", "keep")[0] == 2
    (tmp_path / "recipes.toml").write_text('numbers = "scale"')
    assert "step of a preparation" in run(*FIT, "--prepare", "recipes.toml")[2]
    code, _, err = run(*FIT)
    assert (code, "impute them (prepare)" in " ".join(err.split())) == (3, True)


# -- recipes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("standarise", "Did you mean"),
        ("spline", r"write spline\(5\)"),
        ("spline(1)", "from 2 to 100"),
        ("polynomial(x)", "the degree is a whole number"),
        ("impute(median)", r"write impute\(mean\)"),
        ("standardise, impute", "impute comes first"),
        ("one-hot, standardise", "one-hot stands alone"),
        ("standardise(3)", "takes nothing in brackets"),
        (["standardise", "min-max"], "two recipes for numbers"),
        ({"numbers": "one-hot"}, "one-hot is for text"),
        ({"text": "standardise"}, "text can only become"),
        ({"rows": "keep"}, "part of a preparation"),
        ("polynomial(2), spline(3)", "one of polynomial and spline"),
        (7, "recipes such as 'standardise'"),
    ],
)
def test_recipes_that_make_no_sense(given, told):
    with pytest.raises(InvalidInput, match=told):
        co.Preparation.of(given)


@pytest.mark.parametrize(
    "recipe", ["impute(mean, indicator), min-max", "spline(5, 2)", "one-hot(10, drop-first)"]
)
def test_recipes_are_written_as_they_are_read(recipe):
    assert ", ".join(map(str, recipe_of(recipe, ""))) == recipe


def test_what_a_preparation_is_not_for():
    with pytest.raises(UnknownName, match="agee"):
        co.solve(RIDGE, (FRAME[["age"]], Y), prepare="agee: spline(4)", split="features", agents=1)
    with pytest.raises(InvalidData, match=r"agee.*Did you mean 'age'"):
        co.solve(RIDGE, (FRAME[["age"]], Y), prepare="agee: spline(4)")
    with pytest.raises(InvalidProblem, match="prepare is for linear models"):
        co.solve(co.Personal(), [(FRAME[["age"]], Y > 3)] * 2, split="users", prepare="standardise")
    table = co.read(FRAME.assign(y=Y), target="y", prepare=co.Preparation(text="one-hot"))
    with pytest.raises(InvalidData, match=r"'city' holds text. Prepare it with one-hot"):
        co.solve(RIDGE, table)


# -- the smallest and the largest value ------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True])
def test_extremes_are_exact(secure):
    rng = np.random.default_rng(1)
    values = [rng.normal(size=(n, 3)) * [1e-300, 1.0, 1e300] for n in (5, 0, 7)]
    values[0][0, 0] = -0.0
    protocols = [
        extremes(own, Site(k, 3, None, secure_sums=secure)) for k, own in enumerate(values)
    ]
    messages = [next(protocol).x for protocol in protocols]
    while True:
        total = np.sum(messages, axis=0)
        try:
            messages = [protocol.send(total).x for protocol in protocols]
        except StopIteration as end:
            low, high = end.value
            break
    whole = np.vstack(values)
    np.testing.assert_array_equal(low, whole.min(axis=0))
    np.testing.assert_array_equal(high, whole.max(axis=0))
    if secure:
        assert set(np.unique(messages)) <= {0.0, 1.0}
