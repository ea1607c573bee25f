"""Descriptions: those of pandas on pooled rows, from sums and counts that parties tell."""

from __future__ import annotations

import functools
import json
import math
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.errors import CorruptFile, InvalidData, InvalidInput, PartyLost, Refused
from coterie.study.description import describe_together
from coterie.study.study import load_party
from tests.harness.parties import ANYTHING, NAMES, together, write_study
from tests.harness.shell import shell

RNG = np.random.default_rng(2)
N = 300
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(50, 10, N),
        "visits": RNG.poisson(3, N),
        "city": RNG.choice(["Oslo", "Rome", "Bern"], N, p=[0.5, 0.49, 0.01]),
        "pressure": RNG.normal(120, 15, N),
        "name": [f"person {k}" for k in range(N)],
        "ill": np.where(RNG.random(N) < 0.3, "yes", "no"),
    }
)
FRAME["dose"] = FRAME.age / 10 + RNG.normal(0, 1, N)
FRAME.loc[::9, "dose"] = np.nan
FRAME.loc[4::10, "city"] = None
PARTS = [FRAME[:100], FRAME[100:220], FRAME[220:]]
NUMBERS = ["age", "visits", "pressure", "dose"]


def check(found, frame, minimum=1):
    """The numbers of pandas."""
    assert found.rows == len(frame)
    for name in NUMBERS:
        column, values = found[name], frame[name].dropna()
        assert (column.count, column.missing) == (len(values), len(frame) - len(values))
        assert column.mean == pytest.approx(values.mean(), rel=1e-12)
        assert column.std == pytest.approx(values.std(), rel=1e-12)
        exact = values.quantile(list(found.probabilities))
        assert (np.array(column.low) <= exact).all()
        assert (exact <= np.array(column.high)).all()
        if minimum == 1:
            assert list(column.quantiles) == pytest.approx(exact.tolist(), abs=1e-3 * values.std())
    cities = frame.city.value_counts()
    told = {name: rows for name, rows in found["city"].categories.items() if name != "(other)"}
    exact = {name: rows for name, rows in cities.items() if rows >= minimum}
    assert told.keys() == exact.keys()
    # Rows of a category may be counted among the others, so that these are not few at a party.
    assert all(0 <= exact[name] - rows <= 3 * (minimum - 1) for name, rows in told.items())
    assert found["city"].missing == frame.city.isna().sum()
    assert found.labels == frame.ill.value_counts().to_dict()
    assert found["name"].categories is None
    assert set(found.correlated) == set(NUMBERS)
    np.testing.assert_allclose(found.correlation, frame[list(found.correlated)].corr(), atol=1e-12)


def test_they_are_those_of_the_pooled_rows():
    found = co.describe(PARTS, target="ill", per_party=True)
    check(found, FRAME)
    for name, part in zip(("party 0", "party 1", "party 2"), PARTS, strict=True):
        check(found.parties[name], part)
    assert "text with many different values" in str(found)
    assert "Labels (ill): no" in str(found)
    assert found.bill.total.messages > 0


def test_small_groups_are_not_looked_into():
    rare = FRAME.assign(seldom=np.where(np.arange(N) < 3, 7.0, np.nan))
    found = co.describe([rare[:100], rare[100:]], target="ill", minimum=5)
    check(found, rare, minimum=5)
    assert (found["seldom"].count, found["seldom"].missing) == (0, N)
    assert math.isnan(found["seldom"].mean)
    assert "Bern" not in found["city"].categories
    assert found["city"].categories["(other)"] >= 5
    assert "seldom" not in found.correlated


def test_columns_without_missing_values_and_other_forms_of_data():
    X = FRAME[["age", "pressure"]].to_numpy()
    found = co.describe(
        [(X[:100], FRAME.visits[:100]), (sp.csr_array(X[100:]), FRAME.visits[100:])],
        target="visits",
    )
    assert found["x0"].mean == pytest.approx(FRAME.age.mean())
    assert found.labels == {str(k): v for k, v in sorted(FRAME.visits.value_counts().items())}
    np.testing.assert_allclose(found.correlation, np.corrcoef(X.T), atol=1e-12)
    numbers = co.describe((X, FRAME.pressure), target="pressure")
    assert numbers.labels is None
    assert numbers["pressure"].mean == pytest.approx(FRAME.pressure.mean())
    bare = co.describe(X, correlation=False, quantiles=[])
    assert bare.correlation is None
    assert bare["x1"].quantiles == ()
    constant = co.describe(pd.DataFrame({"a": np.ones(9), "b": np.arange(9.0)}))
    assert math.isnan(constant.correlation[0, 1])
    assert constant["a"].quantiles == (1.0,) * 5


def test_an_empty_party_and_other_columns():
    empty = FRAME[:0]
    assert (
        co.describe([*PARTS, empty], target="ill").columns
        == co.describe(PARTS, target="ill").columns
    )
    turned = co.describe(
        [PARTS[0], *(part[part.columns[::-1]] for part in PARTS[1:])], target="ill"
    )
    check(turned, FRAME)
    with pytest.raises(InvalidData, match="no column 'dose', which party 'party 0' has"):
        co.describe([PARTS[0], PARTS[1].drop(columns="dose")])
    with pytest.raises(InvalidData, match="no column called 'agee'"):
        co.describe(FRAME, columns=["agee"])
    with pytest.raises(InvalidData, match="no party has any rows"):
        co.describe([empty])
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        co.describe(FRAME, quantiles=[50])
    with pytest.raises(InvalidData, match="infinite"):
        co.describe((np.array([[np.inf]]), [1.0]))


def test_columns_of_text_at_one_party_and_numbers_at_another():
    found = co.describe([pd.DataFrame({"code": ["1", "x"]}), pd.DataFrame({"code": [1, 2]})])
    assert found["code"].categories == {"1": 2, "2": 1, "x": 1}


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("engine", ["ray", "spark", "peers"])
def test_on_every_engine_the_same(engine):
    data = PARTS if engine == "peers" else [functools.partial(pd.DataFrame, part) for part in PARTS]
    there = co.describe(data, target="ill", engine=engine, secure_sums=False)
    here = co.describe(PARTS, target="ill")
    assert there["age"] == here["age"]  # others have NaNs, which differ
    assert str(there) == str(here)
    assert there.bill == here.bill


def test_with_secure_sums_the_same():
    plain, secure = (co.describe(PARTS, target="ill", secure_sums=how) for how in (False, True))
    assert secure["age"].mean == pytest.approx(plain["age"].mean, rel=1e-14)
    assert secure["city"].categories == plain["city"].categories


# -- doors -----------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    for name, part in zip(("north", "south", "west"), PARTS, strict=True):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def test_the_command_and_the_file(files):
    paths = [str(files / f"{name}.csv") for name in ("north", "south", "west")]
    options = ["--target", "ill", "--leave-out", "name", "--per-party"]
    ran = shell("describe", *paths, *options, "--json", "-o", str(files / "found.json"))
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.output)
    assert [column["name"] for column in told["columns"]] == [
        name for name in FRAME.columns if name != "name"
    ]
    saved = co.Description.load(files / "found.json")
    assert str(saved) == str(co.describe(paths, target="ill", leave_out=["name"], per_party=True))
    assert list(saved.parties) == ["north", "south", "west"]
    text = shell(
        "describe", *paths, "--target", "ill", "--quantiles", "0.5", "--no-correlation"
    ).output
    assert "50%" in text
    assert "Correlation" not in text
    assert shell("describe", *paths, "--quantiles", "half").exit_code == 2
    (files / "found.json").write_text("{}")
    with pytest.raises(CorruptFile):
        co.Description.load(files / "found.json")


# -- between organisations -------------------------------------------------------------------------


def write_parts(folder, **settings):
    problem = {"loss": "logistic", "penalty": "l2", "strength": 0.1, "intercept": False}
    write_study(folder, problem=problem, **{"split": "samples", **settings})
    for name, part in zip(NAMES, PARTS, strict=True):
        part.drop(columns="name").to_csv(folder / name / "data.csv", index=False)
        file = folder / name / "party.toml"
        file.write_text(file.read_text().replace('target = "y"', 'target = "ill"'))


def test_parties_are_described_together(tmp_path):
    write_parts(tmp_path, policy=ANYTHING + "\npolicy.minimum-count = 5")
    file = tmp_path / "bea" / "party.toml"
    file.write_text(file.read_text() + "policy.per-party = true\n")
    found = together(tmp_path, work=describe_together)
    parts = [part.drop(columns="name") for part in PARTS]
    here = co.describe(parts, target="ill", minimum=5, secure_sums=True)
    for one in found:
        assert one.columns == here.columns
        np.testing.assert_array_equal(one.correlation, here.correlation)
        assert one.bill == here.bill
        assert list(one.parties) == ["bea"]
        assert one.parties["bea"]["age"].mean == pytest.approx(parts[1].age.mean())
    assert (
        co.Description.load(tmp_path / "ada" / "result" / "description.json").columns
        == here.columns
    )
    # A policy of few numbers leaves things out, and another one refuses.
    file.write_text(file.read_text().replace("policy.budget = inf", "policy.budget = 0.05"))
    short = together(tmp_path, work=describe_together)
    assert any("left out" in note for note in short[0].notes)
    assert short[0]["age"].mean == here["age"].mean
    file.write_text(
        file.read_text().replace("policy.minimum-rows = 0", "policy.minimum-rows = 1000")
    )
    assert all(isinstance(one, Refused) for one in together(tmp_path, work=describe_together))
    # So few that not even sums may be told. Those that were told before are known, unless the party
    # forgets them.
    shutil.rmtree(tmp_path / "bea" / "told")
    file.write_text(
        file.read_text().replace("minimum-rows = 1000", "minimum-rows = 0").replace("0.05", "0.001")
    )
    assert any(isinstance(one, PartyLost) for one in together(tmp_path, work=describe_together))


def test_columns_of_other_parties_are_told_only_where_a_policy_says_so(tmp_path):
    write_parts(tmp_path, split="features")
    for name, columns in zip(NAMES, (["age", "ill"], ["visits"], ["dose"]), strict=True):
        FRAME[columns].to_csv(tmp_path / name / "data.csv", index=False)
    file = tmp_path / "cyd" / "party.toml"
    file.write_text(file.read_text() + "policy.per-party = true\n")
    ada, bea, cyd = together(tmp_path, work=describe_together)
    assert [column.name for column in ada.columns] == ["age", "ill"]
    assert ada.parties["cyd"]["dose"].missing == FRAME.dose.isna().sum()
    assert list(bea.parties) == ["cyd"]
    assert not cyd.parties


def test_the_command_with_a_party(tmp_path):
    write_parts(tmp_path)
    party = str(tmp_path / "ada" / "party.toml")
    refused = shell("describe", party)
    assert "you have not approved this page" in refused.text
    assert "what ada sends for `coterie describe`" in refused.output
    own, _ = load_party(party)
    PARTS[0].drop(columns="name").to_csv(own.data, index=False)
    with ThreadPoolExecutor(2) as pool:
        others = [
            pool.submit(describe_together, *load_party(tmp_path / n / "party.toml"), consent=True)
            for n in NAMES[1:]
        ]
        ran = shell("describe", party, "--yes", "--json")
        assert others[0].result().rows == N
    assert json.loads(ran.stdout.splitlines()[-1])["rows"] == N


# -- quantiles of few rows -------------------------------------------------------------------------


def few_rows(seed, n):
    """Columns with long tails, whole numbers, and numbers far from 0."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "cost": rng.lognormal(7, 1.5, n),
            "crp": rng.lognormal(1, 1, n),
            "age": rng.integers(20, 90, n).astype(float),
            "days": rng.geometric(0.2, n).astype(float),
            "balance": rng.normal(0, 100, n),
            "year": rng.integers(1990, 2020, n).astype(float),
        }
    )


def printed_cells(found, name):
    """The quantiles of a column as they are printed, each as its two ends."""
    line = next(line for line in str(found).splitlines() if line.startswith(name))
    cells = re.findall(r"(-?[\d.e+]+) to (-?[\d.e+]+)|(-?[\d.e+]+)", line.removeprefix(name))
    ends = [
        (float(low), float(high)) if low else (float(one), float(one)) for low, high, one in cells
    ]
    return ends[4:]


@pytest.mark.parametrize("n", [30, 60, 300])
def test_a_quantile_that_is_not_known_well_is_printed_as_an_interval(n):
    wide = 0
    for seed in range(2):
        frame = few_rows(seed, n)
        found = co.describe([frame[: n // 3], frame[n // 3 :]], minimum=5, correlation=False)
        for name in frame:
            exact, column = frame[name].quantile(list(found.probabilities)), found[name]
            for true, (low, high), value in zip(
                exact, printed_cells(found, name), column.quantiles, strict=True
            ):
                near = 1e-4 * max(abs(true), column.std)
                if low == high:
                    assert abs(low - true) <= 0.01 * abs(true) + near
                    assert value == pytest.approx(low, rel=1e-4)
                else:
                    wide += 1
                    assert low - near <= true <= high + near
                    assert np.isnan(value)
        assert ("the quantile lies between" in str(found)) == (
            " to " in str(found).partition("a to b")[0]
        )
    assert wide


def test_intervals_are_the_same_in_text_json_and_files(tmp_path):
    frame = few_rows(0, 60)
    found = co.describe([frame], minimum=5)
    assert " to " in str(found)
    plain = found.summary()["columns"][0]
    assert any(math.isnan(value) for value in plain["quantiles"])
    assert str(co.Description.load(found.save(tmp_path / "description.json"))) == str(found)
    frame.to_csv(tmp_path / "few.csv", index=False)
    told = json.loads(
        shell("describe", str(tmp_path / "few.csv"), "--minimum", "5", "--json").output
    )
    column = told["columns"][0]
    unknown = [k for k, value in enumerate(column["quantiles"]) if value is None]
    assert unknown
    assert all(column["low"][k] < column["high"][k] for k in unknown)


def test_quantiles_of_many_rows_are_numbers():
    found = co.describe([few_rows(0, 3000)])
    assert " to " not in str(found)
    assert all(np.isfinite(column.quantiles).all() for column in found.columns)
