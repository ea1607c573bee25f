"""Evaluation and prediction between organisations: the numbers of one process, as far as every
policy allows.
"""

from __future__ import annotations

import csv
import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import coterie as co
from coterie.errors import InvalidData, InvalidInput, Refused
from coterie.study.description import describe_together
from coterie.study.disclosure import disclosure
from coterie.study.party import read_own
from coterie.study.scores import evaluate_together, predict_together
from coterie.study.study import load_party
from tests.harness.parties import ANYTHING, NAMES, data, together, write_data, write_study
from tests.harness.shell import shell

LOGISTIC = {"loss": "logistic", "penalty": "l2", "strength": 0.05, "intercept": False}
STUDY = {"problem": LOGISTIC, "split": "samples", "method": "newton", "tol": 1e-3}


def fitted(folder, **settings):
    """A study that was fitted to the first rows of each party, and the tables of the others."""
    write_study(folder, **{**STUDY, "policy": ANYTHING + "\npolicy.minimum-count = 1", **settings})
    whole = data("samples", classification=True, n=300, d=3)
    half = [np.arange(50), np.arange(50, 100)]
    train, test = ([table.take_rows(rows) for table in whole] for rows in half)
    write_data(folder, train)
    assert [result.status for result in together(folder, train)] == ["optimal"] * 3
    return train, test


def hold_out(folder, tables):
    """Each party's test file, and its name in party.toml."""
    for table in tables:
        named = folder / table.name / "test.csv"
        rows = np.column_stack([table.X, table.y]).tolist()
        named.write_text(
            "\n".join(
                [",".join([*table.columns, "y"]), *(",".join(map(repr, row)) for row in rows)]
            )
        )
        file = folder / table.name / "party.toml"
        file.write_text('test = "test.csv"\n' + file.read_text())


def beside_the_shell(folder, arguments, work):
    """What ada's command prints as JSON, and what the others come to, in threads."""
    with ThreadPoolExecutor(2) as pool:
        others = [
            pool.submit(work, *load_party(folder / name / "party.toml"), consent=True)
            for name in NAMES[1:]
        ]
        ran = shell(*arguments)
        assert ran.exit_code == 0, ran.output
        return json.loads(ran.stdout.splitlines()[-1]), [one.result() for one in others]


def test_the_scores_are_those_of_one_process(tmp_path):
    _, test = fitted(tmp_path)
    hold_out(tmp_path, test)
    file = tmp_path / "bea" / "party.toml"
    file.write_text(file.read_text() + "policy.per-party = true\n")
    found = together(tmp_path, work=evaluate_together)
    model = co.models.load_model(tmp_path / "ada" / "result" / "model.npz")
    tables = [co.read(tmp_path / name / "test.csv", target="y", name=name) for name in NAMES]
    here = co.evaluate(model, tables, secure_sums=True, per_party=True)
    for one in found:
        assert one.scores == here.scores
        np.testing.assert_array_equal(one.confusion, here.confusion)
        assert one.calibration == here.calibration
        assert one.bill == here.bill
        assert one.parties == {"bea": here.parties["bea"]}
    assert co.Evaluation.load(tmp_path / "cyd" / "result" / "evaluation.json").scores == here.scores
    # A party without rows hides nobody; where sums are shown, the others evaluate without it.
    file, study = tmp_path / "ada" / "party.toml", tmp_path / "study.toml"
    before = file.read_text(), study.read_text()
    file.write_text(before[0].replace('test = "test.csv"\n', ""))
    refusals = [str(one) for one in together(tmp_path, work=evaluate_together)]
    assert refusals[0] == "refused by bea's and cyd's policy"
    assert all("secure sums need 3 parties" in one for one in refusals[1:])
    study.write_text("secure-sums = false\n" + before[1])
    one = together(tmp_path, work=evaluate_together)[0]
    assert one.rows == 100
    assert one.scores == co.evaluate(model, test[1:]).scores
    file.write_text(before[0])
    study.write_text(before[1])
    # A policy of few numbers: the AUC is known less well, and the budget holds.
    file = tmp_path / "cyd" / "party.toml"
    file.write_text(file.read_text().replace("policy.budget = inf", "policy.budget = 0.9"))
    short = together(tmp_path, work=evaluate_together)
    assert short[0].auc_bound > found[0].auc_bound
    assert abs(short[0].scores["auc"] - found[0].scores["auc"]) <= short[0].auc_bound
    assert short[0].bill.total.scalars // 6 <= 0.9 * 50 * 4
    file.write_text(file.read_text().replace("policy.budget = 0.9", "policy.budget = 0.4"))
    shorter = together(tmp_path, work=evaluate_together)
    assert math.isnan(shorter[0].scores["auc"])
    assert shorter[0].scores["brier"] == found[0].scores["brier"]
    # A policy that refuses, and a model that is another.
    file.write_text(file.read_text().replace("policy.minimum-rows = 0", "policy.minimum-rows = 60"))
    for one in together(tmp_path, work=evaluate_together):
        assert isinstance(one, Refused)
        assert "cyd's policy" in str(one)
    model.save(tmp_path / "bea" / "result" / "model.npz")
    replace(model, coef_=2 * model.coef_).save(tmp_path / "bea" / "result" / "model.npz")
    file.write_text(file.read_text().replace("policy.minimum-rows = 60", "policy.minimum-rows = 0"))
    assert any("different models" in str(one) for one in together(tmp_path, work=evaluate_together))


def test_a_share_of_the_rows_is_held_out(tmp_path):
    write_study(tmp_path, **STUDY)
    whole = data("samples", classification=True, n=300, d=3)
    write_data(tmp_path, whole)
    for name in NAMES:
        file = tmp_path / name / "party.toml"
        file.write_text("test = 0.2\n" + file.read_text())
    results = together(tmp_path)
    assert [participant.rows for participant in results[0].certificate.participants] == [80, 80, 80]
    found = together(tmp_path, work=evaluate_together)
    assert found[0].rows == 60
    own, study = load_party(tmp_path / "bea" / "party.toml")
    assert read_own(own, study).n == 80
    assert "per-party" in disclosure(study, "bea", read_own(own, study))
    file = tmp_path / "bea" / "party.toml"
    file.write_text(file.read_text().replace("test = 0.2", "test = 2.0"))
    with pytest.raises(InvalidInput, match="a share of the rows between 0 and 1"):
        load_party(file)


def test_raw_columns_of_a_study_that_prepares_them(tmp_path):
    """Missing values and text: described, fitted to 80 % of the rows, and evaluated on the
    others.
    """
    random = np.random.default_rng(3)
    write_study(tmp_path, **STUDY)
    study = tmp_path / "study.toml"
    study.write_text(
        study.read_text() + '\n[prepare]\nnumbers = "impute, standardise"\ntext = "one-hot(5)"\n'
    )
    for name in NAMES:
        lines = ["age,city,y"]
        for _ in range(100):
            age, city = random.normal(50, 10), random.choice(["Oslo", "Rome"])
            lines.append(
                f"{'' if random.random() < 0.1 else age},{city},{int(age + 10 * random.normal() > 50)}"
            )
        (tmp_path / name / "data.csv").write_text("\n".join(lines))
        file = tmp_path / name / "party.toml"
        file.write_text("test = 0.2\n" + file.read_text())
    described = together(tmp_path, work=describe_together)
    assert described[0]["city"].categories.keys() == {"Oslo", "Rome"}
    assert described[0]["age"].missing > 0
    results = together(tmp_path)
    found = together(tmp_path, work=evaluate_together)
    assert found[0].rows == 60
    assert found[0].scores == pytest.approx(found[2].scores, rel=0, abs=0, nan_ok=True)
    model, held = results[0].model, []
    for name in NAMES:
        own, agreed = load_party(tmp_path / name / "party.toml")
        raw = co.read(own.data, target="y", prepare=model.preparation)
        held += co.data.hold_out([raw], 0.2, by="samples", seed=agreed.seed)[1]
    assert found[0].scores["brier"] == pytest.approx(co.evaluate(model, held).scores["brier"])


def test_columns_at_several_parties(tmp_path):
    """The party with the labels alone learns scores; its output has ids, probabilities and other
    columns.
    """
    write_study(tmp_path, problem=LOGISTIC, network="path", tol=1e-3, id="patient")
    tables = data("features", classification=True, d=6)
    random = np.random.default_rng(1)
    for table in tables:
        order = random.permutation(table.n)
        for name in ("data.csv", "test.csv"):
            with (tmp_path / table.name / name).open("w", newline="") as file:
                labels = [] if table.y is None else [table.y]
                writer = csv.writer(file)
                writer.writerow(["patient", "note", *table.columns, *(["y"] if labels else [])])
                columns = [*table.X.T, *labels]
                writer.writerows(
                    [f"p{i}", f"=n{i}", *(column[i] for column in columns)] for i in order
                )
        file = tmp_path / table.name / "party.toml"
        file.write_text(
            f'test = "test.csv"\ncolumns = {json.dumps(list(table.columns))}\n' + file.read_text()
        )
    results = together(tmp_path)
    found = together(tmp_path, work=evaluate_together)
    X, y = np.hstack([table.X for table in tables]), tables[0].y
    coef = np.concatenate([result.model.coef_ for result in results])
    whole = co.LinearModel(coef, 0.0, co.Problem(**LOGISTIC), np.array([-1.0, 1.0]))
    assert found[0].scores == pytest.approx(co.evaluate(whole, (X, y)).scores)
    assert found[1:] == [None, None]
    options = [
        "--proba",
        "--score",
        "--id",
        "patient",
        "--keep",
        "note",
        "--raw",
        "--json",
        "--yes",
    ]

    told, others = beside_the_shell(
        tmp_path,
        [
            "predict",
            tmp_path / "ada" / "party.toml",
            tmp_path / "ada" / "test.csv",
            *options,
            "-o",
            tmp_path / "a.csv",
        ],
        lambda own, study, consent: predict_together(
            own, study, tmp_path / own.party / "test.csv", consent=consent
        ),
    )
    assert [one.scores for one in others] == [None, None]
    rows = [int(one[1:]) for one in told["ids"]]
    assert told["columns"]["note"] == [f"=n{row}" for row in rows]
    assert told["columns"]["score"] == pytest.approx(X[rows] @ coef)
    assert told["columns"]["probability 1.0"] == pytest.approx(1 / (1 + np.exp(-X[rows] @ coef)))
    header = (tmp_path / "a.csv").read_text().splitlines()[0]
    assert header == "patient,note,prediction,probability -1.0,probability 1.0,score"
    file = tmp_path / "ada" / "party.toml"
    file.write_text(file.read_text().replace('test = "test.csv"\n', "test = 0.5\n"))
    with pytest.raises(InvalidInput, match="test is a file"):
        load_party(file)


def test_commands(tmp_path):
    """`coterie evaluate` with a party.toml asks for consent; split by samples, `coterie predict`
    needs nobody.
    """
    _, test = fitted(tmp_path)
    hold_out(tmp_path, test)
    party = str(tmp_path / "ada" / "party.toml")
    new = str(tmp_path / "ada" / "test.csv")
    ran = shell("predict", party, new, "--proba", "--keep", "y", "--json")
    assert ran.exit_code == 0, ran.output
    assert set(json.loads(ran.output)["columns"]) == {"y", "probability -1.0", "probability 1.0"}
    (tmp_path / "ada" / "consent.json").unlink()
    refused = shell("evaluate", party)
    assert "you have not approved this page" in refused.text
    assert shell("evaluate", party, new, new).exit_code == 2
    assert shell("evaluate", str(tmp_path / "ada" / "result" / "model.npz")).exit_code == 2

    told, others = beside_the_shell(
        tmp_path, ["evaluate", party, "--yes", "--json"], evaluate_together
    )
    assert told["scores"] == others[0].scores == others[1].scores
    assert told["rows"] == 150
    (tmp_path / "ada" / "result" / "model.npz").unlink()
    own, study = load_party(party)
    with pytest.raises(InvalidInput, match="fit the study first"):
        evaluate_together(own, study)


def test_what_is_refused_alone(tmp_path):
    fitted(tmp_path)
    own, study = load_party(tmp_path / "ada" / "party.toml")
    (tmp_path / "few.csv").write_text("x0,x1,y\n1,2,1\n")
    with pytest.raises(InvalidData, match="x2"):
        evaluate_together(own, study, tmp_path / "few.csv")
    file = tmp_path / "ada" / "party.toml"
    file.write_text(file.read_text() + "policy.per-party = 3\n")
    with pytest.raises(InvalidInput, match="bool"):
        load_party(file)
    file.write_text(
        file.read_text()
        .replace("policy.per-party = 3", "")
        .replace("minimum-count = 1", "minimum-count = 0")
    )
    with pytest.raises(InvalidInput, match="minimum-count"):
        load_party(file)
