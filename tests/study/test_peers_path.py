"""Paths and standard errors between organisations: the bits of one process, billed, agreed to,
under the policies.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

import coterie as co
from coterie.data.summary import TableSummary
from coterie.errors import InvalidData, InvalidInput, Refused
from coterie.stats.folds import Folds
from coterie.study.disclosure import disclosure
from coterie.study.policy import Policy
from coterie.study.proof import verify_together
from coterie.study.study import load_party
from tests.harness.parties import (
    ANYTHING,
    NAMES,
    data,
    free_ports,
    same_secrets,
    together,
    write_data,
    write_study,
)
from tests.harness.shell import shell_line
from tests.pages import DOCS, NUMBER, blocks, commands, prints, put_in_place

LASSO = {"loss": "logistic", "penalty": "l1", "intercept": True}
RIDGE = {"loss": "squared", "penalty": "l2", "intercept": False}
PLAIN = {"loss": "logistic", "penalty": "none", "intercept": True}


def path(**settings):
    """[path] of a study, as `write_study` takes it."""
    return {f"path.{name}": value for name, value in settings.items()}


def paths(folder):
    return [co.Path.load(folder / name / "result" / "path") for name in NAMES]


def test_a_path_is_that_of_one_process_bit_by_bit(tmp_path):
    tables = data("samples", classification=True)
    write_study(
        tmp_path, problem=LASSO, split="samples", tol=1e-6, **path(count=2, cv=2, rule="1se")
    )
    results = together(tmp_path, tables)
    local = co.path(
        co.Problem(**LASSO, strength=1.0),
        tables,
        count=2,
        cv=2,
        rule="1se",
        secure_sums=True,
        engine=same_secrets(tmp_path),
    )
    for name, result, found in zip(NAMES, results, paths(tmp_path), strict=True):
        assert found.strengths == local.strengths
        np.testing.assert_array_equal(found.scores, local.scores)
        np.testing.assert_array_equal(found.coefficients, local.coefficients)
        assert [one.bill for one in found.results] == [one.bill for one in local.results]
        assert found.validation == local.validation
        assert result.certificate.model_digest == found.chosen_result.certificate.model_digest
        assert set(result.certificate.signatures) == set(NAMES)
        billed = json.loads((tmp_path / name / "result" / "bill.json").read_text())
        assert billed["path"]["total"] == vars(found.total)
    verified = together(tmp_path, tables, work=verify_together)
    assert all(one.holds for one in verified), verified


@pytest.mark.slow
def test_the_radius_of_a_low_rank_model_is_chosen_together(tmp_path):
    random = np.random.default_rng(0)
    X = random.standard_normal((60, 4)) + 2.0
    y = np.array(["red", "green", "blue"])[(X @ random.standard_normal((4, 3))).argmax(axis=1)]
    tables = [
        replace(t, name=n, rows=None)
        for t, n in zip(co.data.split(co.read((X, y)), "samples", 3), NAMES, strict=True)
    ]
    problem = {"loss": "multinomial", "penalty": "traceball", "intercept": True}
    write_study(tmp_path, problem=problem, split="samples", tol=1e-3, **path(count=2, cv=2))
    together(tmp_path, tables)
    study = load_party(tmp_path / NAMES[0] / "party.toml")[1]
    said = disclosure(study, NAMES[0], tables[0])
    assert "for each class: the weight of your rows" in said
    how = {"count": 2, "cv": 2, "tol": 1e-3, "secure_sums": True, "engine": same_secrets(tmp_path)}
    local = co.path(co.Problem(**problem, radius=1.0), tables, **how)
    for found in paths(tmp_path):
        assert found.knob == "radius"
        assert found.strengths == local.strengths
        np.testing.assert_array_equal(found.scores, local.scores)
        np.testing.assert_array_equal(found.coefficients, local.coefficients)
    assert all(one.holds for one in together(tmp_path, tables, work=verify_together))
    with pytest.raises(InvalidInput, match="leave radius out"):
        write_study(
            tmp_path, problem={**problem, "radius": 3.0}, split="samples", **path(count=2, cv=2)
        )


def test_columns_at_several_parties_too(tmp_path):
    tables = data("features", classification=True)
    problem = {"loss": "logistic", "penalty": "l2", "intercept": True}
    write_study(
        tmp_path,
        problem=problem,
        split="features",
        method="lbfgs",
        **path(strengths=[0.1, 0.01], cv=2),
    )
    results = together(tmp_path, tables)
    local = co.path(
        co.Problem(**problem, strength=1.0),
        tables,
        [0.1, 0.01],
        cv=2,
        split="features",
        method="lbfgs",
        agents=None,
    )
    for result, found in zip(results, paths(tmp_path), strict=True):
        np.testing.assert_allclose(found.scores, local.scores, rtol=1e-4)
        assert result.model.part is not None
    pooled = np.concatenate([result.model.coef_ for result in results])
    np.testing.assert_allclose(pooled, local.chosen_result.model.coef_, atol=1e-3)


def test_folds_that_lose_a_class_are_dealt_again_at_all_parties(tmp_path):
    """Two rows of a class at two parties, which the first deal puts into one fold for this seed."""
    tables = [replace(table, y=np.ones(table.n)) for table in data("samples", classification=True)]
    for table in tables[:2]:
        table.y[0] = -1.0
    first = Folds((20, 20, 20), "samples", 2, seed=4).all()
    assert first[0][0] == first[1][0], "the first deal is of no use"
    problem = {"loss": "logistic", "penalty": "l2", "intercept": False}
    policy = ANYTHING + "\npolicy.minimum-count = 1"
    write_study(
        tmp_path,
        problem=problem,
        split="samples",
        seed=4,
        policy=policy,
        **path(strengths=[1.0], cv=2),
    )
    together(tmp_path, tables)
    local = co.path(
        co.Problem("logistic", "l2", 1.0, intercept=False),
        tables,
        [1.0],
        cv=2,
        seed=4,
        secure_sums=True,
    )
    for found in paths(tmp_path):
        np.testing.assert_array_equal(found.scores, local.scores)
    tables[1].y[0] = 1.0
    for end in together(tmp_path, tables):
        assert "some fold would have no rows, or leave only one class" in str(end)


@pytest.mark.parametrize(
    ("problem", "asked", "words"),
    [
        (LASSO | {"strength": 0.1}, {}, "leave strength out"),
        (LASSO, {"cv": 1}, "cv must be a whole number from 2"),
        (LASSO, {"strengths": [0.1, -1.0]}, "strengths are numbers"),
        (LASSO, {"rule": "2se"}, "rule"),
    ],
)
def test_a_path_that_makes_no_sense_is_refused_where_it_is_read(tmp_path, problem, asked, words):
    with pytest.raises(InvalidInput, match=words):
        write_study(
            tmp_path,
            problem=problem,
            split="samples",
            **path(cv=2, **asked) if "cv" not in asked else path(**asked),
        )


def test_policies_count_folds_and_standard_errors(tmp_path):
    parts = [TableSummary(name, 300, 10, 3000, False, []) for name in NAMES]
    write_study(
        tmp_path,
        problem=RIDGE,
        split="samples",
        method="newton",
        **{"secure-sums": False},
        **path(strengths=[1.0, 0.1, 0.01, 0.001, 0.0001], cv=5),
    )
    study = load_party(tmp_path / "ada" / "party.toml")[1]
    assert "a fold of [path] has 59 rows, fewer than minimum-rows = 60" in Policy(
        minimum_rows=60
    ).objection(study, 299)
    assert Policy(minimum_rows=60).objection(study, 300) is None
    assert "newton would send about" in Policy().allows(study, parts, 0)["newton"]
    write_study(
        tmp_path / "plain",
        problem=PLAIN,
        split="samples",
        inference="robust",
        **{"secure-sums": False},
    )
    asked = load_party(tmp_path / "plain" / "ada" / "party.toml")[1]
    # 11 coefficients: two triangles of 66 numbers, 11 slopes and 3 more, beside what newton tells.
    assert "tell about" not in Policy(budget=1.0).allows(asked, parts, 0)["newton"]


def test_who_refuses_the_folds_says_so_before_anything_is_sent(tmp_path):
    write_study(
        tmp_path,
        problem=LASSO,
        split="samples",
        policy="policy.minimum-rows = 11\npolicy.budget = inf",
        **path(cv=2),
    )
    ends = together(tmp_path, data("samples", classification=True))
    assert all(isinstance(end, Refused) for end in ends), ends
    assert "a fold of [path] has 10 rows" in str(ends[0])


def test_the_page_that_a_party_agrees_to_says_it(tmp_path):
    write_study(tmp_path, problem=LASSO | {"strength": 0.1}, split="samples")
    before = load_party(tmp_path / "ada" / "party.toml")[1]
    write_study(tmp_path, problem=LASSO, split="samples", **path(count=4, cv=3))
    after = load_party(tmp_path / "ada" / "party.toml")[1]
    table = data("samples", classification=True)[0]
    assert "[path]" not in disclosure(before, "ada", table)
    page = disclosure(after, "ada", table)
    assert "[path] with 4 strengths and 3 folds" in page
    assert "16 times" in page
    assert "whether you have enough rows of the class outside the fold" in page
    assert before.run_id != after.run_id
    write_study(tmp_path, problem=PLAIN, split="samples", inference="robust")
    page = disclosure(load_party(tmp_path / "ada" / "party.toml")[1], "ada", table)
    assert 'standard errors (inference = "robust")' in page


# -- standard errors -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model", "robust", "clustered"])
def test_standard_errors_are_those_of_one_process(tmp_path, kind):
    tables = data("samples", classification=True, n=150, d=3, seed=2)
    flipped = np.random.default_rng(5).random(50) < 0.3
    tables = [replace(table, y=np.where(flipped, -table.y, table.y)) for table in tables]
    clusters = [np.array([f"ward {(7 * j + k) % 9}" for j in range(50)]) for k in range(3)]
    policy = ANYTHING + ('\ncluster = "ward"' if kind == "clustered" else "")
    write_study(tmp_path, problem=PLAIN, split="samples", inference=kind, tol=1e-8, policy=policy)
    given = (
        [replace(table, ids=own) for table, own in zip(tables, clusters, strict=True)]
        if "ward" in policy
        else tables
    )
    results = together(tmp_path, given)
    assert all(result.status.success for result in results), results
    local = co.solve(co.Problem(**PLAIN), tables, tol=1e-8, secure_sums=True)
    known = inferred(local, kind, clusters if kind == "clustered" else None)
    exactly = {"rtol": 1e-9} if kind == "clustered" else {"rtol": 0.0}
    for name, result in zip(NAMES, results, strict=True):
        found = co.Inference.load(tmp_path / name / "result" / "inference.json")
        np.testing.assert_allclose(found.covariance, known.covariance, **exactly)
        assert (found.names, found.about) == (known.names, known.about)
        assert result.certificate.settings["inference"]["kind"] == kind
        billed = json.loads((tmp_path / name / "result" / "bill.json").read_text())["inference"]
        assert billed["total"] == vars(known.bill.total)
    assert all(one.holds for one in together(tmp_path, given, work=verify_together))


def inferred(result, kind, clusters=None, **settings):
    """Standard errors; few clusters are warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return result.inference(kind, clusters, **settings)


@pytest.mark.parametrize("correction", [None, "CR1"])
def test_few_clusters_within_parties_have_cr2_between_organisations(tmp_path, correction):
    tables = data("samples", n=150, d=2, seed=4)
    clusters = [np.array([f"{name} {j % 4}" for j in range(50)]) for name in NAMES]
    given = [replace(table, ids=own) for table, own in zip(tables, clusters, strict=True)]
    settings = {} if correction is None else {"correction": correction}
    problem = {"loss": "squared", "penalty": "none", "intercept": True}
    policy = ANYTHING + '\ncluster = "ward"'
    write_study(
        tmp_path,
        problem=problem,
        split="samples",
        inference="clustered",
        tol=1e-8,
        policy=policy,
        **settings,
    )
    together(tmp_path, given)
    local = co.solve(co.Problem(**problem), tables, tol=1e-8, secure_sums=True)
    known = inferred(local, "clustered", clusters, **settings)
    found = co.Inference.load(tmp_path / NAMES[0] / "result" / "inference.json")
    assert found.correction == known.correction == (correction or "CR2")
    np.testing.assert_allclose(found.covariance, known.covariance, rtol=1e-9)
    np.testing.assert_allclose(found.degrees, known.degrees, rtol=1e-9)
    assert "only 12 clusters" in str(found)


def test_cr2_is_refused_where_parties_share_clusters(tmp_path):
    tables = data("samples", n=90, d=2, seed=4)
    given = [replace(table, ids=np.array([f"ward {j % 6}" for j in range(30)])) for table in tables]
    policy = ANYTHING + '\ncluster = "ward"'
    problem = {"loss": "squared", "penalty": "none", "intercept": True}
    write_study(
        tmp_path,
        problem=problem,
        split="samples",
        inference="clustered",
        correction="CR2",
        tol=1e-6,
        policy=policy,
    )
    for end in together(tmp_path, given):
        assert isinstance(end, InvalidData)
        assert 'Write correction = "CR1" into the study' in str(end)


def test_a_study_says_what_weights_mean(tmp_path):
    tables = data("samples", classification=True, n=150, d=3, seed=2)
    flipped = np.random.default_rng(5).random(50) < 0.3
    weights = np.random.default_rng(6).uniform(0.5, 2.0, 50)
    tables = [
        replace(table, y=np.where(flipped, -table.y, table.y), weights=weights) for table in tables
    ]
    policy = ANYTHING + '\nweight = "share"'
    write_study(tmp_path, problem=PLAIN, split="samples", inference="model", policy=policy)
    with pytest.raises(
        InvalidInput, match='weights = "frequency", "sampling" or "precision" into the study'
    ):
        load_party(tmp_path / "ada" / "party.toml")
    write_study(
        tmp_path,
        problem=PLAIN,
        split="samples",
        inference="model",
        weights="sampling",
        tol=1e-8,
        policy=policy,
    )
    together(tmp_path, tables)
    local = co.solve(co.Problem(**PLAIN), tables, tol=1e-8, secure_sums=True)
    known = local.inference("robust", weights="sampling")
    found = co.Inference.load(tmp_path / "ada" / "result" / "inference.json")
    assert (found.kind, found.weights, found.correction) == (
        "robust",
        "sampling",
        "HC0 · n/(n − 1)",
    )
    np.testing.assert_allclose(found.covariance, known.covariance, rtol=1e-9)


def test_a_fit_without_standard_errors_is_written_with_the_reason(tmp_path):
    tables = [
        replace(table, y=np.sign(table.X[:, 0]))
        for table in data("samples", classification=True, n=90, d=3)
    ]
    write_study(tmp_path, problem=PLAIN, split="samples", inference="model", tol=1e-4)
    for name, end in zip(NAMES, together(tmp_path, tables), strict=True):
        assert isinstance(end, InvalidData)
        assert "without standard errors: the best coefficients are infinite" in str(end)
        assert co.Result.load(tmp_path / name / "result").status.success
        assert not (tmp_path / name / "result" / "inference.json").exists()


def test_what_cannot_be_inferred_is_refused_where_it_is_read(tmp_path):
    with pytest.raises(InvalidInput, match="penalty biases"):
        write_study(tmp_path, problem=LASSO | {"strength": 0.1}, split="samples", inference="model")
    huber = {"loss": "huber", "penalty": "none", "intercept": True}
    with pytest.raises(InvalidInput, match='Use inference = "robust"'):
        write_study(tmp_path, problem=huber, split="samples", inference="model")
    with pytest.raises(InvalidInput, match='correction = "CR1" is not for inference = "robust"'):
        write_study(tmp_path, problem=PLAIN, split="samples", inference="robust", correction="CR1")
    with pytest.raises(InvalidInput, match="weights is for standard errors"):
        write_study(tmp_path, problem=PLAIN, split="samples", weights="sampling")
    write_study(tmp_path, problem=PLAIN, split="samples", inference="clustered")
    with pytest.raises(InvalidInput, match="cluster names the column"):
        load_party(tmp_path / "ada" / "party.toml")


@pytest.mark.slow
def test_three_processes_choose_a_strength(tmp_path):
    tables = data("samples")
    write_study(
        tmp_path, problem=RIDGE | {"intercept": True}, split="samples", **path(count=4, cv=3)
    )
    write_data(tmp_path, tables)
    command = [sys.executable, "-m", "coterie", "agent", str(tmp_path), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(ran.stdout)["parties"]
    assert {one["exit_code"] for one in found.values()} == {0}, ran.stderr
    local = co.path(
        co.Problem("squared", "l2", 1.0, intercept=True), tables, count=4, cv=3, secure_sums=True
    )
    for one in found.values():
        assert one["strength"] == local.chosen_strength


@pytest.mark.slow
def test_the_four_hospitals_of_the_tutorial(tmp_path, monkeypatch):
    """The commands of the page that start a process for each hospital, on ports that are free."""
    page = DOCS / "tutorials" / "digits-at-four-hospitals.md"
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.text, str(page), "exec"), {})
        elif put_in_place(block, tmp_path):
            study = tmp_path / "hospitals" / "study.toml"
            for told, free in zip(range(7410, 7414), free_ports(4), strict=True):
                study.write_text(study.read_text().replace(f":{told}", f":{free}"))
        elif block.text.startswith("$ coterie provision"):
            assert all(shell_line(command).exit_code == 0 for command, _ in commands(block))
    (last,) = (
        block for block in blocks(page) if block.text.startswith("$ coterie agent hospitals\n")
    )
    for command, expected in commands(last):
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert prints(done.stdout, expected, NUMBER), f"{command}\n{done.stdout}"
    found = [
        co.Path.load(tmp_path / "hospitals" / name / "result" / "path")
        for name in ("north", "west")
    ]
    assert found[0].chosen_strength == found[1].chosen_strength
    assert found[0].chosen_result.model.preparation is not None
