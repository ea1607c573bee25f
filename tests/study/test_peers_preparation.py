"""A preparation between organisations: the numbers of one process, a policy that may refuse, and a
page.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import coterie as co
from coterie.api.result import Result
from coterie.errors import InvalidInput, Refused
from coterie.study.disclosure import disclosure
from coterie.study.party import read_own
from coterie.study.proof import verify_together
from coterie.study.study import load_party, load_study
from tests.harness.parties import ANYTHING, NAMES, same_secrets, together, write_study

LOGISTIC = {"loss": "logistic", "penalty": "l2", "strength": 0.02, "intercept": True}
RECIPES = {"numbers": "impute, min-max", "text": "one-hot(5)", "columns": {"age": "spline(4)"}}


def participants(n=90, seed=0):
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.integers(20, 90, n),
            "bmi": np.where(random.random(n) < 0.2, np.nan, random.normal(25, 4, n)),
            "town": random.choice(["Bern", "Ulm", "Oslo"], n, p=[0.6, 0.39, 0.01]),
            "y": np.where(random.random(n) < 0.5, "ill", "well"),
        }
    )
    frame.loc[n - 12 :, "town"] = "Rom"
    return frame


def study(folder, split="samples", policy=ANYTHING, **settings):
    write_study(folder, problem=LOGISTIC, split=split, policy=policy, tol=1e-8, **settings)
    text = (folder / "study.toml").read_text()
    columns = "".join(
        f"{name} = {json.dumps(recipe)}\n" for name, recipe in RECIPES["columns"].items()
    )
    lines = "".join(f"{name} = {json.dumps(RECIPES[name])}\n" for name in ("numbers", "text"))
    prepare = f"[prepare]\n{lines}[prepare.columns]\n{columns}"
    (folder / "study.toml").write_text(text.replace("[problem]", f"{prepare}[problem]"))
    whole = participants()
    if split == "samples":
        parts = [whole[:40], whole[40:60], whole[60:]]
    else:
        parts = [whole[["age", "y"]], whole[["bmi"]], whole[["town"]]]
    for name, part in zip(NAMES, parts, strict=True):
        part.to_csv(folder / name / "data.csv", index=False)
    return parts


def test_three_organisations_are_one_process_and_verify_together(tmp_path):
    parts = study(tmp_path, policy=ANYTHING + "\npolicy.minimum-count = 1")
    results = together(tmp_path)
    assert all(isinstance(result, Result) for result in results), results
    data = [(part.drop(columns="y"), part["y"].to_numpy()) for part in parts]
    problem, engine = co.Problem(**LOGISTIC), same_secrets(tmp_path)
    local = co.solve(
        problem, data, prepare=RECIPES, tol=1e-8, secure_sums=True, engine=engine, progress=False
    )
    for name, result in zip(NAMES, results, strict=True):
        np.testing.assert_array_equal(result.model.coef_, local.model.coef_)
        assert result.model.preparation == local.model.preparation
        assert result.model.columns == local.model.columns
        assert result.bill == local.bill
        assert result.history.bits.tolist() == local.history.bits.tolist()
        again = co.models.load_model(tmp_path / name / "result" / "model.npz")
        np.testing.assert_array_equal(
            again.predict(participants()), local.model.predict(participants())
        )
    found = together(tmp_path, work=verify_together)
    assert all(one.holds for one in found), found
    frame = pd.read_csv(tmp_path / "bea" / "data.csv")
    frame.loc[0, "age"] += 1
    frame.to_csv(tmp_path / "bea" / "data.csv", index=False)
    found = together(tmp_path, work=verify_together)
    assert found[0].objections == ("bea: its data is not the data that was certified",)


def test_by_features_nothing_is_told_and_parts_keep_their_columns(tmp_path):
    study(tmp_path, "features")
    results = together(tmp_path)
    assert all(isinstance(result, Result) for result in results), results
    assert "preparation" not in results[0].bill.per_purpose
    assert results[2].model.columns == ("town=Bern", "town=Rom", "town=Ulm", "town=(other)")
    page = disclosure(load_study(tmp_path / "study.toml"), "cyd", results_table(tmp_path, "cyd"))
    assert (
        "Prepared by you, without a message:\n  - impute, min-max; one-hot(5); age: spline(4)"
        in page
    )


def results_table(folder, name):
    return read_own(*load_party(folder / name / "party.toml"))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (
            'prepare = ["impute", "one-hot", "spline"]',
            "'min-max' in [prepare] is not among prepare = ['impute',",
        ),
        (
            "minimum-count = 6",
            "'one-hot(5)' in [prepare] names categories of fewer rows than minimum-count = 6",
        ),
    ],
)
def test_a_policy_refuses_steps_before_anything_is_told(tmp_path, rules, words):
    study(tmp_path)
    path = tmp_path / "bea" / "party.toml"
    path.write_text(path.read_text() + f"policy.{rules}\n")
    found = together(tmp_path)
    assert all(isinstance(one, Refused) for one in found), found
    assert words in str(found[1])
    assert str(found[0]) == "refused by bea's policy"


def test_a_budget_counts_what_a_preparation_tells(tmp_path):
    study(tmp_path, policy="policy.minimum-rows = 0\npolicy.budget = 0.4")
    found = together(tmp_path)
    assert any("with the next message it is" in str(one) for one in found), found


def test_studies_and_pages(tmp_path):
    study(tmp_path)
    loaded = load_study(tmp_path / "study.toml")
    assert loaded.make_preparation() == co.Preparation(**RECIPES)
    assert 'prepare = {"numbers": "impute, min-max"' in loaded.agreement
    assert "prepare" not in replace_prepare(loaded, None).agreement
    page = disclosure(loaded, "ada", results_table(tmp_path, "ada"))
    assert "Sent once to prepare the columns (impute, min-max; one-hot(5); age: spline(4))" in page
    assert "the bits of the smallest and the largest value of each column" in page
    text = (tmp_path / "study.toml").read_text()
    (tmp_path / "study.toml").write_text(text.replace("min-max", "minimum"))
    with pytest.raises(InvalidInput, match=r"study.toml: \[prepare\]: there is no step"):
        load_study(tmp_path / "study.toml")


def replace_prepare(study, value):
    return type(study)(
        **{**{name: getattr(study, name) for name in study.__struct_fields__}, "prepare": value}
    )


def test_text_without_a_recipe_is_refused_before_anybody_is_called(tmp_path):
    study(tmp_path)
    path = tmp_path / "bea" / "data.csv"
    path.write_text(path.read_text().replace("age,", "height,", 1))
    with pytest.raises(
        InvalidInput, match=r"party 'bea': prepare: there is no column called 'age'"
    ):
        results_table(tmp_path, "bea")
    own, loaded = load_party(tmp_path / "ada" / "party.toml")
    with pytest.raises(
        InvalidInput, match=r"'town' holds text, e.g. 'Bern', and there is no recipe for it"
    ):
        read_own(own, replace_prepare(loaded, "impute"))
