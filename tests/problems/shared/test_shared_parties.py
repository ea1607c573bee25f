"""A common model with deviations between organisations: the bits of one process, each party with
its own deviation.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import coterie as co
from coterie.estimators import PersonalizedClassifier
from coterie.study.disclosure import disclosure
from coterie.study.proof import verify_together
from coterie.study.study import load_study
from tests.engines.test_gossip_clusters import NAMES, parties
from tests.harness.parties import together, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(300)]
PROBLEM = {"loss": "logistic", "penalty": "l1", "strength": 0.01, "mu": 0.02}


def test_parties_come_to_the_bits_of_one_process(tmp_path):
    names, tables = NAMES[:3], parties(NAMES[:3])
    write_study(tmp_path, names, PROBLEM, split="users", tol=1e-8)
    page = disclosure(load_study(tmp_path / "study.toml"), names[1], tables[1])
    assert "your deviation from the common model" in page
    assert "a weighted sum of your rows" in page
    local = co.solve(
        co.Shared(**PROBLEM), tables, split="users", tol=1e-8, secure_sums=True, progress=False
    )
    for k, result in enumerate(together(tmp_path, tables, names)):
        assert result.status == local.status == "optimal"
        assert result.bill == local.bill
        assert result.model.users == (names[k],)
        assert (result.model.coef_ == local.model.coef_).all()
        assert (result.model.deviations[0] == local.model.deviations[k]).all()
        assert result.certificate.gap == local.certificate.gap
        assert np.isfinite(co.Result.load(tmp_path / names[k] / "result").certificate.gap)


def test_parties_choose_as_users_in_one_process_do(tmp_path):
    names, rng = NAMES[:3], np.random.default_rng(4)
    tables = []
    for k, name in enumerate(names):
        X = rng.standard_normal((24, 2))
        y = np.where(X @ [2.0, -1.0] + 3 * (k - 1) + 0.5 * rng.standard_normal(24) > 0, 1.0, -1.0)
        tables.append(co.Table(X, y, name=name))
    write_study(tmp_path, names, {"loss": "logistic"}, split="users", tol=1e-6)
    study = load_study(tmp_path / "study.toml")
    assert study.chooses
    assert "Sent to choose among models" in disclosure(study, names[1], tables[1])
    X, y = np.concatenate([t.X for t in tables]), np.concatenate([t.y for t in tables])
    local = co.engines.engine("local")  # with its fits of the same method
    here = PersonalizedClassifier(method="shared", engine=local, random_state=0).fit(
        X, y, np.repeat(names, 24)
    )
    assert sorted(names) == list(names), "users of one process are sorted"
    alone = co.choose(tables, engine=local, seed=0, secure_sums=True, progress=False)
    assert alone.choice == here.choice_
    assert alone.cost.bits > here.choice_cost_.bits > 0
    for k, result in enumerate(together(tmp_path, tables, names)):
        assert (
            f"{here.choice_} was chosen by cross-validation at the users (pooled"
            in result.explanation
        )
        assert result.model.problem.nu == pytest.approx(here.model_.problem.nu, rel=1e-9)
        np.testing.assert_allclose(result.model.coef_, here.model_.coef_, atol=1e-4)
        told = json.loads((tmp_path / names[k] / "result" / "choice.json").read_text())
        assert told["choice"] == here.choice_
        assert [t["choice"] for t in told["trials"]] == [t["choice"] for t in here.trials_]
        for name in ("score", "loss", "folds"):
            found = [trial[name] for trial in told["trials"]]
            assert found == pytest.approx([trial[name] for trial in here.trials_], rel=1e-9)
        billed = json.loads((tmp_path / names[k] / "result" / "bill.json").read_text())
        assert billed["choice"] == vars(alone.cost)
    for one in together(tmp_path, tables, names, work=verify_together):
        assert one.holds, one
        assert any(text.startswith("choice.json: the chosen model") for text in one.compared)
        assert any("only fitting all models again" in text for text in one.unchecked)
    file = tmp_path / names[1] / "result" / "choice.json"
    honest = json.loads(file.read_text())
    for forged, objection in forged_choices(honest):
        file.write_text(json.dumps(forged))
        for one in together(tmp_path, tables, names, work=verify_together):
            assert any(f"{names[1]}: " in text and objection in text for text in one.objections), (
                one
            )
    file.unlink()
    for one in together(tmp_path, tables, names, work=verify_together):
        assert any("choice.json" in text for text in one.objections), one


def forged_choices(honest):
    """Other choices, and what is wrong with each."""
    trials, chosen = honest["trials"], honest["choice"]
    others = sorted({trial["choice"] for trial in trials} - {chosen})
    yield {**honest, "choice": others[0]}, "another choice than run.json"
    yield {**honest, "choice": "best"}, "does not exist"
    best = max(
        (trial for trial in trials if trial["choice"] == chosen), key=lambda trial: trial["score"]
    )
    raised = [{**trial, "score": 1.0} if trial is best else trial for trial in trials]
    yield {**honest, "trials": raised}, "another choice than run.json"
    priced = [
        {**trial, "mu": float(trial["mu"]) * 1.01, "nu": float(trial["nu"]) * 1.01}
        for trial in trials
    ]
    yield {**honest, "trials": priced}, "no trial of its choice with the prices of the certificate"
    yield {**honest, "approved": True}, "has other parts"
    yield {"choice": chosen, "trials": [{}]}, "lacks a part of a choice"


@pytest.mark.rotates
@pytest.mark.parametrize("sizes", [(1, 24, 24, 24), (2, 24, 30, 24)])
def test_parties_with_one_or_two_rows_choose_with_the_others(tmp_path, sizes):
    # Without any one party, two with enough rows must be left.
    names, rng = NAMES[:4], np.random.default_rng(5)
    tables = []
    for name, n in zip(names, sizes, strict=True):
        X = rng.standard_normal((n, 2))
        tables.append(
            co.Table(X, np.where(X[:, 0] + 0.5 * rng.standard_normal(n) > 0, 1.0, -1.0), name=name)
        )
    write_study(tmp_path, names, {"loss": "logistic"}, split="users", tol=1e-6)
    for result in together(tmp_path, tables, names):
        assert result.status.success, result


@pytest.mark.parametrize("problem", [PROBLEM, {"loss": "logistic"}])
def test_a_study_of_a_common_model_has_no_graph(tmp_path, problem):
    for network in ("learned", "ring"):
        with pytest.raises(
            co.CoterieError, match=f"study.toml: .* network='{network}' does not apply"
        ):
            write_study(tmp_path, NAMES[:3], problem, split="users", network=network)
